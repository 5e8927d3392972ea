"""Norms written out: RMS norm and layer norm as the ops that frameworks spell them with."""

from __future__ import annotations

from collections.abc import Iterator

from rooftile.plan.flow import Flow
from rooftile.plan.match import Match, Name, float_dtype, is_number
from rooftile.records.graph import Op
from rooftile.records.tensor import Tensor

_WITH_SUM: dict[Name, Name] = {"layer_norm": "add_layer_norm", "rms_norm": "add_rms_norm"}


def written_out_norms(flow: Flow, op: Op) -> Iterator[Match]:
    """The norm whose ``rsqrt``, or square root to divide by, an op is."""
    if op.name not in ("rsqrt", "sqrt"):
        return
    figure = _figure(flow, op)
    scaled = [r for r in flow.readers(op) if r.name == ("mul" if op.name == "rsqrt" else "div")]
    if figure is None or len(scaled) != 1:
        return
    last = scaled[0]
    row = _scaled_row(last, op)
    if row is None:
        return
    members = [*figure, op, last]
    x = figure[0].reads[0]
    centred = flow.made(last, row, "sub")
    mean = None if centred is None else _centres(flow, centred)
    if centred is not None and mean is not None:
        known = centred.reads[0] if figure[0].name == "var" else row
        if _same(known, x):
            yield from _finish(flow, "layer_norm", [mean, centred, *members], last)
    elif _same(row, x) and figure[0].name != "var":
        yield from _finish(flow, "rms_norm", members, last)


def with_sum(flow: Flow, match: Match) -> Match | None:
    """The same norm with the residual sum in front of it, None where there is none."""
    first = flow.ops[min(match.ops)]
    if match.name not in _WITH_SUM or first.phase != "forward" or not first.reads:
        return None
    total = flow.made(first, first.reads[0], "add")
    if total is None or len(total.reads) != 2 or total.attrs.get("alpha", 1) != 1:
        return None
    a, b = total.reads
    same = a.shape == b.shape == total.writes[0].shape and a.storage != b.storage
    if not same or not all(float_dtype(t) for t in (a, b)) or 0 in (*a.stride, *b.stride):
        return None
    return Match(_WITH_SUM[match.name], match.ops | {total.index})


def _figure(flow: Flow, root: Op) -> list[Op] | None:
    """Mean square or variance plus a number, under a root: its ops, the first reads the row."""
    above: list[Op] = []
    below = flow.made(root, root.reads[0], "add", "mean", "var")
    if below is not None and below.name == "add":
        if len(below.reads) != 1 or not is_number(below.attrs.get("other")):
            return None
        above.append(below)
        below = flow.made(below, below.reads[0], "mean", "var")
    if below is None or not _along_rows(below):
        return None
    if below.name == "var":
        biased = below.attrs.get("correction") == 0 or below.attrs.get("unbiased") is False
        return [below, *above] if biased else None
    square = flow.made(below, below.reads[0], "pow", "mul", "square")
    if square is None or not _is_square(square):
        return None
    return [square, below, *above]


def _is_square(op: Op) -> bool:
    if op.name == "pow":
        return op.attrs.get("exponent") == 2 and len(op.reads) == 1
    same = len(set(op.reads)) == 1
    return op.name == "square" or (same and op.attrs.get("other") is None)


def _along_rows(op: Op) -> bool:
    """Whether a reduction is over the last dimension alone, and keeps it."""
    rank = len(op.reads[0].shape)
    dim = op.attrs.get("dim")
    dims = dim if isinstance(dim, tuple) else (dim,)
    return dims in ((-1,), (rank - 1,)) and bool(op.attrs.get("keepdim"))


def _scaled_row(op: Op, root: Op) -> Tensor | None:
    """What an op scales by a row's figure."""
    if len(op.reads) != 2:
        return None
    figure = root.writes[0].storage
    row, by = op.reads if op.reads[1].storage == figure else op.reads[::-1]
    swapped = by is not op.reads[1]
    if by.storage != figure or row.storage == figure or (op.name == "div" and swapped):
        return None
    return row


def _same(a: Tensor, b: Tensor) -> bool:
    return (a.storage, a.numel) == (b.storage, b.numel)


def _centres(flow: Flow, op: Op) -> Op | None:
    """The mean that an op takes off each row."""
    if len(op.reads) != 2 or op.attrs.get("alpha", 1) != 1:
        return None
    mean = flow.made(op, op.reads[1], "mean")
    if mean is None or not _along_rows(mean):
        return None
    return mean if mean.reads[0].storage == op.reads[0].storage else None


def _finish(flow: Flow, name: Name, members: list[Op], last: Op) -> Iterator[Match]:
    """The norm with casts, weight and bias behind it, in the dtype that it came in."""
    first = min(members, key=lambda op: op.index)
    x = first.reads[0]
    before = flow.cast_before(first, x)
    steps = [last]
    while (step := _step(flow, steps[-1], name)) is not None:
        steps.append(step)
    while len(steps) > 1 and steps[-1].name == "copy" and before is None:
        steps.pop()
    whole = [*members, *steps[1:]]
    out = steps[-1].writes[0]
    if (
        before is not None
        and out.dtype == before.reads[0].dtype
        and float_dtype(before.reads[0])
        and flow.closed([before, *whole], steps[-1])
    ):
        yield Match(name, frozenset(op.index for op in (before, *whole)))
    elif out.dtype == x.dtype and float_dtype(x) and flow.closed(whole, steps[-1]):
        yield Match(name, frozenset(op.index for op in whole))


def _step(flow: Flow, op: Op, name: Name) -> Op | None:
    """What may follow within the norm: a cast, the weight's product, a layer norm's bias."""
    if (cast := flow.cast_after(op)) is not None:
        return cast
    found = flow.next(op, "mul", "add") if name == "layer_norm" else flow.next(op, "mul")
    if found is None or len(found.reads) != 2 or found.attrs.get("alpha", 1) != 1:
        return None
    parameter = next((t for t in found.reads if t.storage != op.writes[0].storage), None)
    width = op.writes[0].shape[-1]
    if parameter is None or parameter.numel != width or parameter.shape[-1:] != (width,):
        return None
    return found
