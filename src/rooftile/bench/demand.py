"""A gate on measured numbers: ``ratio_to_copy >= 0.95``."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rooftile.errors import GateError, InputError
from rooftile.records.measurement import Measurement

_COMPARE: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}
# what may stand on the left -> of a row; None where the row has no such number
_NUMBERS: dict[str, Callable[[Measurement], float | None]] = {
    "ratio_to_copy": lambda m: m.ratio_to_copy,
    "ratio_to_matmul": lambda m: m.ratio_to_matmul,
    "ratio_to_best_peer": lambda m: m.ratio_to_best_peer,
    "fraction_of_bandwidth": lambda m: m.fraction_of_bandwidth,
    "fraction_of_peak": lambda m: m.fraction_of_peak,
    "bytes_per_s": lambda m: m.bytes_per_s,
    "flops_per_s": lambda m: m.flops_per_s,
    "median_s": lambda m: m.median_s,
    "host_s": lambda m: m.host_s,
    "peak_bytes": lambda m: m.peak_bytes,
}
_FORM = re.compile(r"\s*(?P<name>\w+)\s*(?P<op>>=|<=|>|<)\s*(?P<limit>[-+.\deE]+)\s*")


@dataclass(frozen=True, slots=True)
class Demand:
    """What every row of one's own must satisfy.

    Attributes:
        name: Which number of the row.
        compare: ``">="``, ``"<="``, ``">"`` or ``"<"``.
        limit: What it is compared with.
    """

    name: str
    compare: str
    limit: float

    def __str__(self) -> str:
        return f"{self.name} {self.compare} {self.limit:g}"


def parse(text: str) -> Demand:
    """Read a gate.

    Raises:
        InputError: It is not of the form ``ratio_to_copy >= 0.95``, or there is no such number.
    """
    match = _FORM.fullmatch(text)
    if match is None or match["name"] not in _NUMBERS:
        raise InputError(
            f"gate must be such as 'ratio_to_copy >= 0.95', of {', '.join(_NUMBERS)}, got {text!r}"
        )
    try:
        limit = float(match["limit"])
    except ValueError:
        raise InputError(f"gate must end in a number, got {text!r}") from None
    if not math.isfinite(limit):
        raise InputError(f"gate must end in a finite number, got {text!r}")
    return Demand(match["name"], match["op"], limit)


def hold(demand: Demand, rows: Sequence[Measurement]) -> None:
    """Every row must satisfy the gate. A row without a time, or without the number, does not.

    Raises:
        GateError: The message lists the rows that do not.
    """
    broken = []
    for row in rows:
        value = _NUMBERS[demand.name](row) if row.timed else None
        if value is None or not _COMPARE[demand.compare](value, demand.limit):
            shape = "x".join(map(str, row.shape.values()))
            got = row.error or "not measured" if value is None else f"{value:.4g}"
            broken.append(f"{row.op} {row.direction} {shape}: {got}")
    if broken:
        listed = "\n  ".join(broken)
        raise GateError(
            f"gate {demand} does not hold for {len(broken)} of {len(rows)}:\n  {listed}"
        )
