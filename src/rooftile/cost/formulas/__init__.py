"""FLOP and bytes of every op, one family a file. No other place has such formulas."""

from __future__ import annotations

from rooftile.cost.formulas import (
    attention_ops,
    convolution,
    distance,
    encoder,
    fft,
    flex,
    gather,
    grouped,
    linalg,
    loss,
    matmul,
    movement,
    normalization,
    optimizer,
    pointwise,
    pooling,
    recurrent,
    reduction,
    resampling,
    scan,
    scatter,
    softmax,
    sort,
)
from rooftile.cost.formulas.operands import Formula

FAMILIES = (
    matmul,
    grouped,
    convolution,
    attention_ops,
    flex,
    encoder,
    recurrent,
    gather,
    scatter,
    pointwise,
    loss,
    reduction,
    distance,
    normalization,
    softmax,
    pooling,
    resampling,
    sort,
    movement,
    scan,
    optimizer,
    fft,
    linalg,
)

# Our op's name -> its formula.
FORMULAS: dict[str, Formula] = {
    name: formula for family in FAMILIES for name, formula in family.OPS.items()
}
