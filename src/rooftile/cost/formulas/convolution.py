"""Convolutions, transposed and grouped too, and their gradients.

Every tap counts, those over padding included: ``2 * positions * weights`` FLOP, where positions are
the batch's output places (of a transposed convolution the input's) and weights the weight tensor's
elements, which holds groups and transposition by itself: it is ``[C_out, C_in / groups, *kernel]``,
transposed ``[C_in, C_out / groups, *kernel]``. The gradient of the input and that of the weight
cost the forward each, the gradient of the bias a sum. A stride longer than the kernel skips input,
which is then not read.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod

from rooftile.cost.formulas.arithmetic import addition, is_complex
from rooftile.cost.formulas.operands import (
    Formula,
    cost,
    flag,
    integers,
    mask,
    matrix_math,
    operand,
    reads_without,
    result,
)
from rooftile.cost.regions import region_bytes
from rooftile.errors import InputError
from rooftile.records.cost import Cost
from rooftile.records.graph import Op
from rooftile.records.tensor import Tensor
from rooftile.spec.dtypes import itemsize


def convolution_flops(positions: int, weight_shape: tuple[int, ...]) -> int:
    """FLOP of a convolution.

    Args:
        positions: Batch times output places; times input places where transposed.
        weight_shape: ``[C_out, C_in / groups, *kernel]``, transposed
            ``[C_in, C_out / groups, *kernel]``.
    """
    return 2 * positions * prod(weight_shape)


@lru_cache(maxsize=4_096)
def positions_read(
    size: int, out: int, kernel: int, stride: int, padding: int, dilation: int
) -> int:
    """Places of one input dimension that a convolution or a pooling window touches."""
    if stride <= kernel and dilation == 1:
        return min(size, max(0, (out - 1) * stride + kernel - padding))
    touched = {o * stride + k * dilation - padding for o in range(out) for k in range(kernel)}
    return sum(0 <= place < size for place in touched)


def window_bytes(op: Op, x: Tensor, out: Tensor, kernel: tuple[int, ...]) -> int:
    """Bytes of the input that the windows touch: all of it unless the stride skips some."""
    whole = region_bytes([x])
    rank = len(kernel)
    if isinstance(op.attrs.get("padding"), str) or not integers_given(op, "stride"):
        return whole
    stride, padding = integers(op, "stride", rank, 1), integers(op, "padding", rank, 0)
    dilation = integers(op, "dilation", rank, 1)
    sizes, outs = x.shape[-rank:], out.shape[-rank:]
    touched = map(positions_read, sizes, outs, kernel, stride, padding, dilation)
    return min(whole, prod(touched) * prod(x.shape[:-rank]) * itemsize(x.dtype))


def integers_given(op: Op, name: str) -> bool:
    """The attribute holds something: torch takes an empty stride for the kernel's size."""
    return op.attrs.get(name, ()) != ()


def _positions(x: Tensor, weight: Tensor, places: Tensor) -> int:
    """Batch times the spatial places of ``places``, whether the input has a batch or not."""
    rank = len(weight.shape) - 2
    if rank < 1 or len(x.shape) not in (rank + 1, rank + 2):
        raise InputError(
            "convolution: input must have one dimension of channels and those of the kernel, "
            f"got input {x.shape} and weight {weight.shape}"
        )
    return prod(places.shape[-rank:]) * prod(x.shape[: len(x.shape) - rank - 1])


def _real_products(x: Tensor) -> int:
    """A complex multiply-add is four real ones."""
    return 4 if is_complex(x) else 1


def _forward(op: Op, transposed: bool, epilogue: int = 0) -> Cost:
    x, weight = operand(op, "input", "self"), operand(op, "weight")
    out = result(op)
    flops = convolution_flops(_positions(x, weight, x if transposed else out), weight.shape)
    vector = out.numel * ((op.operand("bias") is not None) * addition(x) + epilogue)
    read = region_bytes([x]) if transposed else window_bytes(op, x, out, weight.shape[2:])
    others = [t for t in reads_without(op, "input", "self") if t is not x]
    return cost(
        op,
        f"convolution.{op.name}",
        matrix=flops * _real_products(x),
        vector=vector,
        math=matrix_math(op, x),
        read_bytes=read + region_bytes(others),
    )


def _convolution(op: Op) -> Cost:
    return _forward(op, flag(op, "transposed"))


def _plain(op: Op) -> Cost:
    return _forward(op, transposed=False)


def _transposed(op: Op) -> Cost:
    return _forward(op, transposed=True)


def _with_relu(op: Op) -> Cost:
    return _forward(op, transposed=False, epilogue=1)


def _backward(op: Op) -> Cost:
    dy, x, weight = operand(op, "grad_output"), operand(op, "input"), operand(op, "weight")
    wanted = mask(op, "output_mask", 3)
    transposed = flag(op, "transposed")
    forward = convolution_flops(_positions(x, weight, x if transposed else dy), weight.shape)
    # without an input the gradients are zeros, whatever stands in the weight
    read = region_bytes([dy, weight] if wanted[0] and x.numel else [dy])
    if wanted[1]:
        read += region_bytes([x]) if transposed else window_bytes(op, x, dy, weight.shape[2:])
    return cost(
        op,
        "convolution.convolution_backward",
        matrix=forward * (wanted[0] + wanted[1]) * _real_products(x),
        vector=dy.numel * wanted[2] * addition(dy),
        math=matrix_math(op, x),
        read_bytes=read,
    )


OPS: dict[str, Formula] = {
    "convolution": _convolution,
    "conv1d": _plain,
    "conv2d": _plain,
    "conv3d": _plain,
    "conv_transpose1d": _transposed,
    "conv_transpose2d": _transposed,
    "conv_transpose3d": _transposed,
    "convolution_relu": _with_relu,
    "convolution_backward": _backward,
}
