"""Formulas over sizes: a product of whole numbers, sizes and ``ceil(F / N)``.

They stand in a manifest as text: ``"rows"``, ``"batch * heads"``, ``"ceil(rows / 4) * heads"``.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import prod

from rooftile.errors import InputError

_MOST_CEILS = 16  # more than any has: each is a step of recursion, in Rust and C too
_TOKEN = re.compile(r"\s*(ceil\b|[A-Za-z_]\w*|-?\d+|[*/()])")


def evaluate(formula: str, sizes: Mapping[str, int]) -> int:
    """The value of a formula.

    Args:
        formula: ``"ceil(rows / 4)"``.
        sizes: Value of every size that it names.

    Raises:
        InputError: It is no such formula, or a size is not known.
    """
    tokens = _tokens(formula)
    value, rest = _product(formula, tokens, sizes)
    if rest:
        raise InputError(f"formula {formula!r} has {rest[0]!r} where an end or '*' is wanted")
    return value


def _tokens(formula: str) -> list[str]:
    tokens, at = [], 0
    while at < len(formula.rstrip()):
        found = _TOKEN.match(formula, at)
        if found is None:
            raise InputError(
                f"formula must be of sizes, numbers, '*' and 'ceil(F / N)', got {formula!r}"
            )
        tokens.append(found[1])
        at = found.end()
    if tokens.count("ceil") > _MOST_CEILS:
        raise InputError(f"formula must have at most {_MOST_CEILS} ceil, got {formula[:40]!r}...")
    return tokens


def _product(formula: str, tokens: list[str], sizes: Mapping[str, int]) -> tuple[int, list[str]]:
    """Factors between stars, and the tokens behind them."""
    value, rest = _factor(formula, tokens, sizes)
    while rest and rest[0] == "*":
        factor, rest = _factor(formula, rest[1:], sizes)
        value *= factor
    return value, rest


def _factor(formula: str, tokens: list[str], sizes: Mapping[str, int]) -> tuple[int, list[str]]:
    if not tokens:
        raise InputError(f"formula {formula!r} ends where a size or a number is wanted")
    first, rest = tokens[0], tokens[1:]
    if first == "ceil":
        inner, rest = _product(formula, _past(formula, rest, "("), sizes)
        rest = _past(formula, rest, "/")
        if not rest or not rest[0].isdigit() or int(rest[0]) == 0:
            raise InputError(f"formula {formula!r} must divide by a number above 0")
        return -(-inner // int(rest[0])), _past(formula, rest[1:], ")")
    if first.removeprefix("-").isdigit():
        return int(first), rest
    if first not in sizes:
        raise InputError(f"formula {formula!r} names {first!r}, sizes are {', '.join(sizes)}")
    return sizes[first], rest


def _past(formula: str, tokens: list[str], wanted: str) -> list[str]:
    if not tokens or tokens[0] != wanted:
        came = tokens[0] if tokens else "its end"
        raise InputError(f"formula {formula!r} has {came!r} where {wanted!r} is wanted")
    return tokens[1:]


def fit(
    values: Sequence[int], probes: Sequence[Mapping[str, int]], divisors: Iterable[int] = ()
) -> str | None:
    """The simplest formula that gives these values, None where there is none.

    Args:
        values: What came for each probe.
        probes: Sizes of each probe.
        divisors: What a formula may divide by: a kernel's constants.
    """
    constant = [str(values[0])]
    names = list(probes[0])
    candidates = (_products(names), constant, _quotients(names, sorted(set(divisors))))
    for candidate in itertools.chain.from_iterable(candidates):
        if all(evaluate(candidate, p) == v for p, v in zip(probes, values, strict=True)):
            return candidate
    return None


def factors_of(formula: str) -> list[str]:
    """What stands between the outermost stars of a formula: ``["ceil(rows / 4)", "heads"]``."""
    factors, depth = [""], 0
    for letter in formula:
        depth += (letter == "(") - (letter == ")")
        if letter == "*" and depth == 0:
            factors.append("")
        else:
            factors[-1] += letter
    return [factor.strip() for factor in factors]


def names_in(formula: str) -> list[str]:
    """The sizes that a formula names, each once."""
    names = re.findall(r"[A-Za-z_]\w*", formula)
    return [name for name in dict.fromkeys(names) if name != "ceil"]


def divisors_in(formula: str) -> list[int]:
    """The numbers by which a formula divides."""
    return [int(number) for number in re.findall(r"/ (\d+)", formula)]


def _groups(names: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Every choice of names, small ones first."""
    for count in range(1, len(names) + 1):
        yield from itertools.combinations(names, count)


def _products(names: Sequence[str]) -> Iterator[str]:
    """Products of sizes."""
    yield from (" * ".join(group) for group in _groups(names))


def _quotients(names: Sequence[str], divisors: Sequence[int]) -> Iterator[str]:
    """Rounded-up quotients of products, alone and times other sizes; then of two sizes each."""
    for divisor in divisors:
        if divisor < 2:
            continue
        for group in _groups(names):
            quotient = f"ceil({' * '.join(group)} / {divisor})"
            yield quotient
            for others in _groups([name for name in names if name not in group]):
                yield f"{quotient} * {' * '.join(others)}"
    for one, other in itertools.permutations([d for d in divisors if d > 1], 2):
        for left, right in itertools.permutations(names, 2):
            yield f"ceil({left} / {one}) * ceil({right} / {other})"


def elements(shape: Iterable[str], sizes: Mapping[str, int]) -> int:
    """Elements of a tensor whose extents are formulas."""
    return prod(evaluate(extent, sizes) for extent in shape)
