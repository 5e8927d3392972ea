"""The page's data: columns of numbers, and one table of texts that they point into.

A model's layers repeat, so an op's figures stand in a table of distinct pieces of work, once; an op
is a row of five numbers. 20,000 ops of 2,000 sizes take 2 MB.
"""

from __future__ import annotations

import json
from collections.abc import Hashable
from typing import Any

from rooftile.records.estimate import Estimate, OpEstimate
from rooftile.records.plan import FusionGroup, Plan, Verdict
from rooftile.report.insights import estimate_of

NONE = -1  # an op without a verdict

_WORK = (
    "name",
    "aten",
    "phase",
    "shapes",
    "formula",
    "math",
    "vector_math",
    "bound",
    "kernels",
    "matrix_flops",
    "dense_matrix_flops",
    "vector_flops",
    "read_bytes",
    "write_bytes",
    "launch_s",
    "matrix_s",
    "vector_s",
    "hbm_s",
    "l2_s",
)
_OP = ("index", "work", "module", "line", "verdict")
_VERDICT = ("action", "rule", "reason", "cover", "rooftile_op", "why_not", "at_stake_s")
_GROUP = (
    "ops",
    "kind",
    "bytes_before",
    "bytes_after",
    "before_s",
    "after_s",
    "module",
    "line",
    "compiler",
    "rooftile_ops",
)
_REFUSAL = ("producer", "consumer", "reason", "detail")


class _Strings:
    """Distinct texts and their numbers."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}

    def __call__(self, text: str) -> int:
        return self.numbers.setdefault(text, len(self.numbers))


class _Table:
    """Rows kept as columns; ``distinct`` keeps equal rows once."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names
        self.columns: tuple[list[Any], ...] = tuple([] for _ in names)
        self.rows: dict[Hashable, int] = {}

    def add(self, row: tuple[Any, ...]) -> int:
        """The number of a new row."""
        for column, value in zip(self.columns, row, strict=True):
            column.append(value)
        return len(self.columns[0]) - 1

    def distinct(self, row: tuple[Any, ...]) -> int:
        """The number of the row, new or seen before."""
        if row not in self.rows:
            self.rows[row] = self.add(row)
        return self.rows[row]

    def as_dict(self) -> dict[str, list[Any]]:
        """Column by name."""
        return dict(zip(self.names, self.columns, strict=True))


def store_json(record: Estimate | Plan) -> str:
    """The page's data as JSON that may stand in a script element: no ``<`` is in it."""
    text = json.dumps(store(record), separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.replace("<", "\\u003c")


def store(record: Estimate | Plan) -> dict[str, Any]:
    """The page's data: ``meta``, ``strings`` and the tables that point into them.

    Ops that launch no kernel are left out; every op keeps its index in the graph.
    """
    plan = record if isinstance(record, Plan) else None
    estimate = estimate_of(record)
    text = _Strings()
    work, ops, verdicts = _op_tables(estimate, plan, text)
    groups, refusals = _Table(_GROUP), _Table(_REFUSAL)
    for group in plan.groups if plan else ():
        groups.add(_group_row(group, text))
    for refusal in plan.refusals if plan else ():
        words = (text(refusal.reason), text(refusal.detail))
        refusals.add((refusal.producer, refusal.consumer, *words))
    return {
        "meta": _meta(estimate, plan),
        "ops": ops.as_dict(),
        "work": work.as_dict(),
        "verdicts": verdicts.as_dict(),
        "groups": groups.as_dict(),
        "refusals": refusals.as_dict(),
        "strings": list(text.numbers),
    }


def _op_tables(
    estimate: Estimate, plan: Plan | None, text: _Strings
) -> tuple[_Table, _Table, _Table]:
    """The distinct pieces of work, the ops that do them, and the distinct verdicts on these."""
    work, ops, verdicts = _Table(_WORK), _Table(_OP), _Table(_VERDICT)
    verdict_of = {verdict.index: verdict for verdict in plan.verdicts} if plan else {}
    for op in estimate.ops:
        if op.bound == "free":
            continue
        verdict = verdict_of.get(op.index)
        ops.add(
            (
                op.index,
                work.distinct(_work_row(op, text)),
                text(op.module),
                text(op.line),
                NONE if verdict is None else verdicts.distinct(_verdict_row(verdict, text)),
            )
        )
    return work, ops, verdicts


def _meta(estimate: Estimate, plan: Plan | None) -> dict[str, Any]:
    """What the charts need to know of the step and the GPU."""
    device = estimate.device
    return {
        "target": estimate.graph.target,
        "gpu": device.name,
        "least_s": estimate.totals.least_s,
        "bandwidth": device.bandwidth.value,
        "peaks": {name: peak.value for name, peak in device.peaks.items() if peak.value},
        "planned": plan is not None,
        "hot_share": plan.hot_share if plan else None,
    }


def _work_row(op: OpEstimate, text: _Strings) -> tuple[Any, ...]:
    """An op's figures, whichever module it stands in."""
    cost, times = op.cost, op.times
    words = (op.name, op.aten, op.phase, op.shapes, cost.formula, cost.math, cost.vector_math)
    floors = (times.launch_s, times.matrix_s, times.vector_s, times.hbm_s, times.l2_s)
    return (
        *map(text, words),
        text(op.bound),
        cost.kernels,
        cost.matrix_flops,
        cost.dense_matrix_flops,
        cost.vector_flops,
        cost.read_bytes,
        cost.write_bytes,
        *map(_short, floors),
    )


def _verdict_row(verdict: Verdict, text: _Strings) -> tuple[Any, ...]:
    """A verdict; its ``why_not`` as pairs of action and reason."""
    why_not = tuple((text(action), text(reason)) for action, reason in verdict.why_not.items())
    words = (verdict.action, verdict.rule, verdict.reason, verdict.cover, verdict.rooftile_op)
    return (*map(text, words), why_not, _short(verdict.at_stake_s))


def _group_row(group: FusionGroup, text: _Strings) -> tuple[Any, ...]:
    """A fusion group; its ops by their index in the graph."""
    return (
        group.ops,
        text(group.kind),
        group.bytes_before,
        group.bytes_after,
        _short(group.before_s),
        _short(group.after_s),
        text(group.module),
        text(group.line),
        int(group.compiler),
        text(", ".join(group.rooftile_ops)),
    )


def _short(value: float) -> float:
    """Six significant digits: a pixel and a printed figure need no more."""
    return float(f"{value:.6g}")
