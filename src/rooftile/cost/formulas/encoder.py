"""Torch's fused fast paths of attention layers in evaluation: several kernels behind one op.

Counted: the projections, attention over all pairs, the feed-forward and the layers' norms. Bytes
are those of the op's own arguments and results: what its kernels hand to each other is not counted,
so the least time stays a lower bound. Launches are the products, the attention and the norms.
"""

from __future__ import annotations

from rooftile.cost.formulas.attention import Mask, Work, forward_work
from rooftile.cost.formulas.matmul import matmul_flops
from rooftile.cost.formulas.normalization import LAYER_NORM_FLOPS
from rooftile.cost.formulas.operands import Formula, cost, flag, matrix_math, operand, ranked
from rooftile.errors import InputError
from rooftile.records.cost import Cost
from rooftile.records.graph import Op
from rooftile.records.tensor import Tensor

_GELU_FLOPS, _RELU_FLOPS = 5, 1
# QKV, attention, output; the feed-forward's two products and the two norms beside them.
_ATTENTION_KERNELS, _LAYER_KERNELS = 3, 7


def _heads(op: Op, name: str) -> int:
    heads = op.attrs.get(name)
    if not isinstance(heads, int) or heads < 1:
        raise InputError(f"{op.aten}: {name} must be a positive integer, got {heads!r}")
    return heads


def _attention(q: Tensor, k: Tensor, heads: int, masked: bool) -> Work:
    """Projections of q, k and v, attention, the output's projection, their biases."""
    batch, q_len, width = q.shape
    k_len = k.shape[1]
    pairs = batch * heads * Mask().pairs(q_len, k_len)
    head = width // heads
    core = forward_work(pairs, pairs, batch * q_len * width, head, head, extras=int(masked))
    rows = 2 * batch * q_len + 2 * batch * k_len
    products = matmul_flops(rows, width, width)
    return Work(core.matrix + products, core.dense + products, core.vector + rows * width)


def _multi_head_attention(op: Op) -> Cost:
    q, k = ranked(op, 3, "query"), ranked(op, 3, "key")
    work = _attention(q, k, _heads(op, "num_head"), op.operand("mask") is not None)
    return cost(
        op,
        "encoder.multi_head_attention",
        matrix=work.matrix,
        vector=work.vector,
        math=matrix_math(op, q),
        kernels=_ATTENTION_KERNELS,
    )


def _encoder_layer(op: Op) -> Cost:
    x, inner = ranked(op, 3, "src"), operand(op, "ffn_weight_1").shape[0]
    batch, length, width = x.shape
    rows = batch * length
    work = _attention(x, x, _heads(op, "num_heads"), op.operand("mask") is not None)
    feed_forward = 2 * matmul_flops(rows, inner, width)
    activation = _GELU_FLOPS if flag(op, "use_gelu") else _RELU_FLOPS
    biases_and_activation = rows * (inner * (1 + activation) + width)
    norms_and_residuals = 2 * rows * width * (LAYER_NORM_FLOPS + 1)
    return cost(
        op,
        "encoder.transformer_encoder_layer",
        matrix=work.matrix + feed_forward,
        vector=work.vector + biases_and_activation + norms_and_residuals,
        math=matrix_math(op, x),
        kernels=_LAYER_KERNELS,
    )


OPS: dict[str, Formula] = {
    "multi_head_attention": _multi_head_attention,
    "transformer_encoder_layer": _encoder_layer,
}
