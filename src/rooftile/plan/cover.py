"""What does an op's work already: a library's call, or torch.compile's rules."""

from __future__ import annotations

from collections.abc import Collection

from rooftile.cost.formulas import encoder, fft, normalization, optimizer, recurrent, scan, softmax
from rooftile.plan import kinds
from rooftile.plan.fusion import Fused
from rooftile.plan.grouping import Group
from rooftile.plan.kinds import Axes
from rooftile.records.graph import Op

# Vendor -> its library of products, of convolutions.
_PRODUCTS = {"NVIDIA": "cuBLAS", "AMD": "hipBLASLt", "Intel": "oneMKL"}
_CONVOLUTIONS = {"NVIDIA": "cuDNN", "AMD": "MIOpen", "Intel": "oneDNN"}
_FOURIER = {"NVIDIA": "cuFFT", "AMD": "hipFFT", "Intel": "oneMKL"}

# Ops that torch itself runs as one kernel over each byte once.
_ONE_CALL = frozenset(
    (*normalization.OPS, *softmax.OPS, *optimizer.OPS, *encoder.OPS, *kinds.SCANS)
) | frozenset(
    [
        "cross_entropy",
        "embedding",
        "embedding_backward",
        "sort",
        "topk",
        "nll_loss",
        "index_select",
    ]
)
# Rules of what torch.compile keeps out of memory, checked against Inductor's groups in tests.
POINTWISE_RULE = "torch.compile: pointwise chain"
ROW_RULE = "torch.compile: pointwise around a row reduction"
# Norms that Inductor takes apart into kernels which read their input twice.
_TAKEN_APART = frozenset(
    ["batch_norm_with_update", "group_norm", "layer_norm_backward", "rms_norm_backward"]
)
_SCORE_CHANGES = frozenset(
    ["add", "div", "dropout", "masked_fill", "mul", "where", "copy", "softmax", "safe_softmax"]
)


def library_call(op: Op, vendor: str) -> str:
    """The library that does all of an op, "" where there is none."""
    if op.name in kinds.ATTENTION:
        return "torch.nn.functional.scaled_dot_product_attention"
    if op.name in kinds.CONVOLUTIONS:
        return f"{_CONVOLUTIONS.get(vendor, 'the vendor library')}: {op.name}"
    if op.name in kinds.LIBRARY:
        return f"{_PRODUCTS.get(vendor, 'the vendor library')}: {op.name}"
    if op.name in recurrent.OPS:
        return f"{_CONVOLUTIONS.get(vendor, 'the vendor library')}: {op.name}"
    if op.name in fft.OPS:
        return f"{_FOURIER.get(vendor, 'the vendor library')}: {op.name}"
    if op.name in scan.OPS and op.name.startswith(("selective_scan", "causal_conv1d")):
        return f"mamba-ssm: {op.name}"
    if op.name in _ONE_CALL or op.name.startswith("foreach_"):
        return f"torch: {op.name}"
    return ""


def compiler_rule(group: Group, fused: Fused) -> str:
    """The rule by which torch.compile keeps a group's intermediates out of memory; "" if none.

    Inductor makes one kernel of a pointwise chain and of what is pointwise around reductions along
    the innermost dimension. A reduction along another dimension takes in what leads to it, and
    nothing that is written for others; behind it, or behind one over everything, another kernel
    starts, but for a running sum. Some norms are taken apart.
    """
    parts = compiler_parts(group, fused)
    whole = [i for i in group.ops if not _anchor(fused.op(i))]
    if len(parts) != 1 or len(parts[0]) < len(whole):
        return ""
    return ROW_RULE if any(fused.shapes[i].axes for i in whole) else POINTWISE_RULE


def compiler_parts(group: Group, fused: Fused) -> list[list[int]]:
    """The ops of a group that torch.compile makes kernels of, by the rule above."""
    part = [i for i in group.ops if not _anchor(fused.op(i))]
    axes = {i: fused.shapes[i].axes for i in part if fused.shapes[i].axes}
    if not part or any(_taken_apart(fused.op(i)) for i in part):
        return []
    if not axes:
        return [part]
    if any(fused.op(i).name == "cat" for i in part):
        return []  # a joined tensor is written before it is reduced
    rows = [i for i, found in axes.items() if _by_rows(fused.op(i), found, group)]
    if len(rows) == len(axes):
        return [part]
    if not rows and not _gives_more(part, axes.keys(), fused):
        return [part]
    across = axes.keys() - set(rows)
    ahead = _leading_to(across, part, fused)
    if not rows and not _gives_more(ahead, across, fused):
        return [ahead, [i for i in part if i not in ahead]]
    behind = any(_reads_one(i, across, fused) for i in part)
    return [] if behind else [[i for i in part if i not in across]]


def _leading_to(reductions: Collection[int], part: list[int], fused: Fused) -> list[int]:
    """Reductions and the ops of a group that they are made from."""
    members, found = set(part), set(reductions)
    for i in sorted(part, reverse=True):
        if i in found:
            found.update(members.intersection(p for p, _ in fused.links.producers.get(i, ())))
    return sorted(found)


def _by_rows(op: Op, axes: Axes, group: Group) -> bool:
    """Whether a kernel goes on behind a reduction: along rows, but for one row of everything."""
    return axes[0][0] == 1 and (axes != ((1, group.numel),) or op.name in kinds.SCANS)


def _gives_more(part: list[int], reductions: Collection[int], fused: Fused) -> bool:
    """Whether anything but the reductions' results leaves a group."""
    members = set(part)
    return any(
        fused.links.escapes(i, tensor.storage, members)
        for i in part
        if i not in reductions
        for tensor in fused.op(i).writes
    ) or any(_reads_one(i, reductions, fused) for i in part)


def _reads_one(index: int, reductions: Collection[int], fused: Fused) -> bool:
    return any(p in reductions for p, _ in fused.links.producers.get(index, ()))


def sdpa_call(group: Group, fused: Fused) -> str:
    """How one call of torch's attention does a written-out attention; "" if it cannot.

    The scale that stands in the graph is passed on, never taken to be 1 / sqrt(width). Scores that
    are changed by anything but one number, an added bias or a mask are not torch's attention.
    """
    scale = 1.0
    for i in sorted(group.ops):
        op = fused.op(i)
        if op.name in kinds.PRODUCTS:
            continue
        if op.name not in _SCORE_CHANGES:
            return ""
        if op.name in ("mul", "div"):
            number = op.attrs.get("other")
            if not isinstance(number, int | float) or isinstance(number, bool) or not number:
                return ""
            if any(fused.op(j).name in ("add", "where") for j in group.ops if j < i):
                return ""
            scale = scale * number if op.name == "mul" else scale / number
    return f"torch.nn.functional.scaled_dot_product_attention(scale={scale:.6g})"


def library_epilogue(group: Group, fused: Fused) -> str:
    """The library call that runs a product's epilogue; "" where there is none.

    A vendor's epilogues are a bias along the columns, ReLU, and GELU in its tanh form. They give
    the last result alone: where what is before it is wanted too (for a backward), no call does.
    """
    members = set(group.ops)
    ops = [fused.op(i) for i in sorted(group.ops)]
    inner = [(op.index, t.storage) for op in ops[:-1] for t in op.writes]
    if any(fused.links.escapes(index, storage, members) for index, storage in inner):
        return ""
    product, rest = ops[0], ops[1:]
    if product.name not in kinds.PRODUCTS or not rest:
        return ""
    columns = product.writes[0].shape[-1]
    names = [op.name for op in rest]
    if names[0] == "add":
        if not any(t.shape in ((columns,), (1, columns)) for t in rest[0].reads):
            return ""
        if rest[0].attrs.get("alpha", 1) != 1:
            return ""
        names, rest = names[1:], rest[1:]
    if not names:
        return "torch.addmm: bias in the epilogue"
    if names == ["relu"] or (names == ["gelu"] and rest[0].attrs.get("approximate") == "tanh"):
        return "torch._addmm_activation: bias and activation in the epilogue"
    return ""


def _anchor(op: Op) -> bool:
    return op.name in kinds.LIBRARY


def _taken_apart(op: Op) -> bool:
    return op.name in _TAKEN_APART or (op.name == "batch_norm" and bool(op.attrs.get("training")))
