"""Sorting, selecting and searching: comparisons.

Documented convention: sorting n is n * ceil(log2 n) comparisons, selecting the k largest n and the
sort of k, a binary search ceil(log2 n) + 1, one pass over the data (nonzero, bincount, median) one
an element. Bytes are input and result once: the passes of a real sort move more, so the least time
stays a lower bound.
"""

from __future__ import annotations

from rooftile.cost.formulas.gather import gathered_bytes
from rooftile.cost.formulas.operands import Formula, cost, flag, operand, reads_without, result
from rooftile.cost.regions import region_bytes
from rooftile.errors import InputError
from rooftile.records.cost import Cost
from rooftile.records.graph import Op


def sort_flops(rows: int, n: int) -> int:
    """Comparisons that sort ``rows`` rows of n."""
    return rows * n * max(n - 1, 0).bit_length()


def topk_flops(rows: int, n: int, k: int, *, ordered: bool = True) -> int:
    """Comparisons that select the k largest of n in each of ``rows`` rows, and sort them."""
    return rows * n + (sort_flops(rows, k) if ordered else 0)


def _length(op: Op, shape: tuple[int, ...]) -> int:
    """Length of the sorted dimension; of everything where the op flattens."""
    dim = op.attrs.get("dim", -1)
    if not isinstance(dim, int):
        raise InputError(f"{op.aten}: dim must be an integer, got {dim!r}")
    return shape[dim] if shape else 1


def _sort(op: Op) -> Cost:
    x = operand(op, "self")
    n = _length(op, x.shape)
    return cost(op, "sort.sort", vector=sort_flops(x.numel // n if n else 0, n))


def _topk(op: Op) -> Cost:
    x, k = operand(op, "self"), op.attrs.get("k")
    if not isinstance(k, int):
        raise InputError(f"{op.aten}: k must be an integer, got {k!r}")
    n = _length(op, x.shape)
    rows = x.numel // n if n else 0
    flops = topk_flops(rows, n, k, ordered=flag(op, "sorted", default=True))
    return cost(op, "sort.topk", vector=flops)


def _unique(op: Op) -> Cost:
    x = operand(op, "self")
    return cost(op, "sort.unique", vector=sort_flops(1, x.numel) + x.numel)


def _search(op: Op) -> Cost:
    """A binary search touches at most its path, so at most the sequence."""
    role = "boundaries" if op.operand("boundaries") is not None else "sorted_sequence"
    sequence = operand(op, role)
    n = sequence.shape[-1] if sequence.shape else 1
    steps = max(n - 1, 0).bit_length() + 1
    found = result(op).numel
    read = gathered_bytes(sequence, found * steps) + region_bytes(reads_without(op, role))
    return cost(op, "sort.search", vector=found * steps, read_bytes=read)


def _one_pass(op: Op) -> Cost:
    return cost(op, f"sort.{op.name}", vector=operand(op, "self", "input").numel)


def _isin(op: Op) -> Cost:
    """Both sets sorted together, and one comparison an element."""
    sets = [t.numel for role in ("elements", "test_elements") if (t := op.operand(role))]
    return cost(op, "sort.isin", vector=sort_flops(1, sum(sets)) + result(op).numel)


OPS: dict[str, Formula] = {
    "sort": _sort,
    "topk": _topk,
    "unique": _unique,
    "search": _search,
    "isin": _isin,
    "bincount": _one_pass,
    "histc": _one_pass,
    "kthvalue": _one_pass,
    "masked_select": _one_pass,
    "median": _one_pass,
    "mode": _sort,
    "nonzero": _one_pass,
}
