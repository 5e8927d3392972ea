"""log_softmax over the last dimension."""

from __future__ import annotations

import torch
from torch import Tensor

from rooftile.bench.case import Case, Dims
from rooftile.bench.ours import our_op
from rooftile.bench.shapes import BACKWARD, FORWARD, SMALL, rows_of
from rooftile.cost.formulas import softmax as formulas

_ours = our_op("log_softmax")


def _inputs(dims: Dims, dtype: torch.dtype, device: str) -> tuple[Tensor, ...]:
    shape = (dims["M"], dims["N"])
    return (torch.randn(shape, dtype=dtype, device=device, requires_grad=True),)


CASES = (
    Case(
        op="log_softmax",
        dims=("M", "N"),
        inputs=_inputs,
        function=lambda x: _ours(x, -1),
        reference=lambda x: torch.log_softmax(x, -1),
        costs={
            "forward": lambda d, size: formulas.softmax_forward(d["M"], d["N"], size),
            "backward": lambda d, size: formulas.softmax_backward(d["M"], d["N"], size),
        },
        shapes={"forward": rows_of(FORWARD), "backward": rows_of(BACKWARD)},
        small=SMALL,
    ),
)
