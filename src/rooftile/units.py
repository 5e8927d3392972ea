"""Numbers to text and back.

Traffic and rates are decimal (GB = 1e9 B, as bandwidths are sold); capacities are binary (GiB). A
FLOP is one addition or one multiplication. Text is ASCII, so that it survives every pipe.
"""

from __future__ import annotations

import math
import re

from rooftile.errors import InputError

_DECIMAL = ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_BINARY = ((2.0**50, "Pi"), (2.0**40, "Ti"), (2.0**30, "Gi"), (2.0**20, "Mi"), (2.0**10, "Ki"))
_SMALL = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"))
_FACTORS = {prefix.lower(): factor for factor, prefix in (*_DECIMAL, *_BINARY)}
_QUANTITY = re.compile(
    r"(?P<number>[+-]?(?:\d[\d_,]*(?:\.\d*)?|\.\d+)(?:e[+-]?\d+)?)\s*"
    r"(?P<prefix>[kmgtpe]i?)?(?P<unit>flops?|bytes?|b)?(?P<rate>/s)?",
    re.IGNORECASE,
)
_TIME = re.compile(r"(?P<number>(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?)\s*(?P<unit>s|ms|us|ns)")
_MICRO = str.maketrans("\N{MICRO SIGN}\N{GREEK SMALL LETTER MU}", "uu")  # as papers print it


def flop(value: float) -> str:
    """FLOP as text: ``"30.74 TFLOP"``."""
    return _scaled(value, _DECIMAL, "FLOP")


def flop_rate(value: float) -> str:
    """FLOP/s as text: ``"989.4 TFLOP/s"``."""
    return _scaled(value, _DECIMAL, "FLOP/s")


def traffic(value: float) -> str:
    """Bytes moved as decimal text: ``"1.342 GB"``."""
    return _scaled(value, _DECIMAL, "B")


def bandwidth(value: float) -> str:
    """Bytes per second as decimal text: ``"3.35 TB/s"``."""
    return _scaled(value, _DECIMAL, "B/s")


def capacity(value: float) -> str:
    """Bytes of a memory as binary text: ``"1.25 GiB"``."""
    return _scaled(value, _BINARY, "B")


def seconds(value: float) -> str:
    """Seconds as text in s, ms, us or ns: ``"12.3 us"``."""
    if value == 0:
        return "0 s"
    size = _rounded(abs(value))
    for factor, unit in _SMALL:
        if size >= factor:
            return f"{_digits(value / factor)} {unit}"
    return f"{_digits(value / 1e-9)} ns"


def percent(part: float, whole: float = 1.0) -> str:
    """A part of a whole as text: ``"62.1 %"``; ``"-"`` where the whole is nothing."""
    if whole == 0:
        return "-"
    value = 100 * part / whole
    if 0 < value < 0.01:
        return "<0.01 %"
    if value < 100 and _decimals(value, 1) == "100.0":
        return ">99.9 %"  # what is missing must not be rounded away
    return f"{_decimals(value, 1 if value >= 1 else 2)} %"


def intensity(value: float) -> str:
    """FLOP per byte as text: ``"682.7"``, ``"0.375"``."""
    return _digits(value) if value < 10_000 else f"{value:,.0f}"


def count(value: int) -> str:
    """A whole number with its thousands apart: ``"30,739,080,937,472"``."""
    return f"{value:,d}"


def parse_quantity(text: str, name: str = "value", unit: str = "") -> float:
    """Read a number with an optional prefix and unit.

    Decimal prefixes are k, M, G, T, P, E and binary ones Ki, Mi, Gi, Ti, Pi, in either case: a
    thousandth is no amount of FLOP or bytes, so ``m`` is a million. Commas and underscores may
    part thousands. ``1.5e9``, ``3.2G``, ``12288``, ``1.25 GiB`` and ``989.4 TFLOP/s`` are read.

    Args:
        text: What the user wrote.
        name: The argument's name, for the message.
        unit: What it must be of if the text says so: ``"FLOP"``, ``"B"``, either with ``"/s"``, or
            ``"1"`` for a plain number; "" takes all of them.

    Returns:
        The number in plain units: FLOP, bytes, or either per second.

    Raises:
        InputError: The text is no such number, it is of another unit, or it is not finite.
    """
    match = _QUANTITY.fullmatch(text.strip())
    if match is None:
        raise InputError(f"{name} must be a number such as 12288, 1.5e9 or 3.2G, got {text!r}")
    given = _unit(match["unit"]) + ("/s" if match["rate"] else "")
    if unit and given not in ("", unit):
        wanted = "a plain number" if unit == "1" else f"in {unit}"
        raise InputError(f"{name} must be {wanted}, got {text!r}")
    number = float(match["number"].replace(",", "").replace("_", ""))
    value = number * _FACTORS[match["prefix"].lower()] if match["prefix"] else number
    if not math.isfinite(value):
        raise InputError(f"{name} must be finite, got {text!r}")
    return value


def parse_seconds(text: str, name: str = "time") -> float:
    """Read a time with its unit: ``"1.14 ms"``, ``"20us"``, ``"20 µs"``, ``"0.5 s"``.

    Args:
        text: What the user wrote.
        name: The argument's name, for the message.

    Returns:
        Seconds.

    Raises:
        InputError: The text is no positive number with a unit of s, ms, us or ns.
    """
    match = _TIME.fullmatch(text.strip().translate(_MICRO))
    if match is None:
        raise InputError(f"{name} must be a number and s, ms, us or ns, got {text!r}")
    value = float(match["number"]) * {unit: factor for factor, unit in _SMALL}[match["unit"]]
    if not (math.isfinite(value) and value > 0):
        raise InputError(f"{name} must be positive and finite, got {text!r}")
    return value


def _unit(text: str | None) -> str:
    """``FLOP`` or ``B``, however it is spelled."""
    if not text:
        return ""
    return "FLOP" if text.lower().startswith("flop") else "B"


def _scaled(value: float, prefixes: tuple[tuple[float, str], ...], unit: str) -> str:
    """The value over the largest prefix it reaches once it is rounded for print."""
    size = _rounded(abs(value))
    for factor, prefix in prefixes:
        if size >= factor:
            return f"{_digits(value / factor)} {prefix}{unit}"
    return f"{_digits(value)} {unit}"


def _rounded(value: float) -> float:
    """The value with the four significant digits that are printed."""
    return float(f"{value:.4g}")


def _digits(value: float) -> str:
    """Four significant digits, no exponent, no needless zeros."""
    if value == 0:
        return "0"
    decimals = max(0, 3 - math.floor(math.log10(abs(value))))
    text = _decimals(value, decimals)
    return text.rstrip("0").rstrip(".") if "." in text else text


def _decimals(value: float, decimals: int) -> str:
    """Fixed decimals."""
    return f"{value:.{decimals}f}"
