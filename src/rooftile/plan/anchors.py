"""Products and what may share their kernel: an epilogue, a prologue, attention written out."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from rooftile.plan import kinds
from rooftile.plan.grouping import Group, join, run_as_one
from rooftile.plan.legality import (
    AXIS,
    KERNEL,
    REUSED,
    SPACE,
    SRAM,
    Objection,
    product_row_fits,
    size_of,
)
from rooftile.records.graph import Op
from rooftile.records.tensor import Tensor

if TYPE_CHECKING:
    from rooftile.plan.fusion import Fused

# Queries of the smallest tile of an attention kernel, and the dtype its tiles are kept in.
_QUERY_TILE, _KEY_TILE = 64, 64


def join_attention(fused: Fused) -> None:
    """Join product, row softmax and product where the scores are used nowhere else."""
    for group in fused.groups():
        if group.anchored or not group.axes or group.axes[0][0] != 1:
            continue
        softmaxes = [i for i in group.ops if fused.op(i).name in ("softmax", "safe_softmax")]
        if not softmaxes:
            continue
        first = _scores(group, fused)
        second = _values(group, fused)
        if first is None or second is None:
            continue
        need = _attention_bytes(fused.op(first), fused.op(second))
        if need > fused.sram:
            found = Objection(SRAM, f"a tile takes {need:,} bytes, a block has {fused.sram:,}")
            inside = {p for p, _ in fused.links.producers[second]} & set(group.ops)
            fused.objections.update({(p, second): found for p in inside})
            continue
        _merge(fused, [first, second], group, "attention")


def attach_products(fused: Fused) -> None:
    """Give each product what is pointwise behind it, else in front of it."""
    anchors = [i for i, shape in fused.shapes.items() if shape.form == "matmul"]
    for index in anchors:
        _take_epilogue(index, fused)
    for index in anchors:
        _take_prologue(index, fused)


def _take_epilogue(index: int, fused: Fused) -> None:
    op = fused.op(index)
    if fused.group_of[index].root().kind:
        return
    readers = _readers(op, fused)
    groups = list(dict.fromkeys(fused.group_of[c].root() for c in readers))
    if not groups:
        return
    found = _epilogue_objection(op, readers, groups, fused)
    if found is None and not _merge(fused, [index], groups[0], "matmul epilogue"):
        found = Objection(KERNEL, "another kernel must run between the product and this")
    if found is not None:
        for c in readers:
            if not fused.group_of[c].root().anchored:
                fused.objections[index, c] = found


def _epilogue_objection(
    op: Op, readers: list[int], groups: list[Group], fused: Fused
) -> Objection | None:
    """Why what reads a product cannot run on its tiles; None if it can."""
    open_groups = [group for group in groups if not group.anchored]
    if len(groups) > 1:
        return Objection(REUSED, f"{len(groups)} kernels read the product") if open_groups else None
    group = groups[0]
    if group.anchored:
        return Objection(REUSED, "its reader has a product already")
    written = op.writes[0]
    for c in readers:
        for tensor in fused.op(c).reads:
            if tensor.storage == written.storage and tensor.numel != written.numel:
                return Objection(SPACE, f"{fused.op(c).name} reads a part of the product")
            if tensor.storage == written.storage and not _rows_kept(written, tensor):
                return Objection(SPACE, f"{fused.op(c).name} reads the product in another order")
    if group.numel != written.numel:
        return Objection(SPACE, f"loops of {written.numel:,} and {group.numel:,} elements")
    if not group.axes:
        return None
    columns = written.shape[-1]
    sums = [i for i in group.ops if fused.op(i).name in kinds.ROWS_AND_COLUMNS]
    if sums:
        words = f"{fused.op(sums[0]).name} sums along columns too"
        return Objection(AXIS, words)
    if group.axes != ((1, columns),):
        return Objection(AXIS, "it reduces along other elements than a row of the product")
    return product_row_fits(columns, fused.sram)


def _take_prologue(index: int, fused: Fused) -> None:
    op = fused.op(index)
    anchor = fused.group_of[index].root()
    if anchor.kind:
        return
    for p in dict.fromkeys(p for p, _ in fused.links.producers[index]):
        group = fused.group_of[p].root()
        if group.anchored or group.phase != op.phase:
            continue
        found = _prologue_objection(p, index, group, fused)
        if found is None and _merge(fused, [index], group, "matmul prologue"):
            return
        fused.objections[p, index] = found or Objection(
            KERNEL, "another kernel must run between this and the product"
        )


def _prologue_objection(p: int, index: int, group: Group, fused: Fused) -> Objection | None:
    """Why a product cannot compute its operand as it loads it; None if it can."""
    if group.axes:
        return Objection(AXIS, "its operand needs whole rows before the first tile is loaded")
    kept = {*group.ops, index}
    for i in group.ops:
        for tensor in fused.op(i).writes:
            if fused.links.escapes(i, tensor.storage, kept):
                return Objection(REUSED, f"{fused.op(i).name}'s result is wanted elsewhere too")
    sizes = {t.numel for t in fused.op(index).reads if t.storage == fused.op(p).writes[0].storage}
    if sizes != {group.numel}:
        return Objection(SPACE, f"the operand is not the {group.numel:,} elements of its loop")
    return None


def _merge(fused: Fused, anchors: list[int], group: Group, kind: str) -> bool:
    """Put products into a group, if no other kernel must run in between."""
    groups = list(dict.fromkeys(fused.group_of[i].root() for i in anchors))
    together = [*groups, group]
    level = run_as_one(together, ())
    if level is None:
        return False
    whole = together[0]
    for other in together[1:]:
        whole = join(whole, other)
    whole.level, whole.kind, whole.anchored = level, kind, True
    return True


def _readers(op: Op, fused: Fused) -> list[int]:
    """All that read an op's results in the same pass."""
    readers = dict.fromkeys(fused.links.readers(op))
    return [c for c in readers if fused.op(c).phase == op.phase]


def _scores(group: Group, fused: Fused) -> int | None:
    """The batched product whose result the group alone reads, whole."""
    for i in group.ops:
        for p, _ in fused.links.producers[i]:
            op = fused.op(p)
            if op.name not in ("bmm", "baddbmm", "mm", "matmul") or op.phase != group.phase:
                continue
            inside = all(fused.group_of[c].root() is group for c in _readers(op, fused))
            columns = op.writes[0].shape[-1]
            free = not fused.group_of[p].root().kind
            if inside and free and op.writes[0].numel == group.numel:
                return p if group.axes == ((1, columns),) else None
    return None


def _values(group: Group, fused: Fused) -> int | None:
    """The batched product that alone reads the probabilities, as its left operand."""
    found: dict[int, int] = {}
    for i in group.ops:
        for storage in {t.storage for t in fused.op(i).writes}:
            for c in fused.links.consumers.get((i, storage), ()):
                if fused.op(c).phase == group.phase and c not in group.ops:
                    found[c] = storage
    if len(found) != 1:
        return None
    (index, storage), op = next(iter(found.items())), fused.op(next(iter(found)))
    left = op.operand("self")
    fits = op.name in ("bmm", "mm", "matmul") and left is not None and left.storage == storage
    free = not fused.group_of[index].root().kind
    return index if fits and free and left is not None and left.numel == group.numel else None


def _attention_bytes(first: Op, second: Op) -> int:
    """Shared memory of the smallest tile: queries, keys and values in their dtype [B]."""
    query = first.operand("self") or first.operand("batch1")
    assert query is not None  # every product has a left operand
    value_width = second.writes[0].shape[-1]
    width = query.shape[-1]
    return (_QUERY_TILE * width + _KEY_TILE * (width + value_width)) * size_of(query)


def _rows_kept(written: Tensor, read: Tensor) -> bool:
    """Whether the tile of a product holds what its reader wants at each place.

    A pointwise reader may see the product under any view that keeps all of it.
    """
    return prod(written.shape) == prod(read.shape) and 0 not in read.stride
