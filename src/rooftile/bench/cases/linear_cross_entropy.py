"""linear_cross_entropy: the loss of a vocabulary head without its logits in memory."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from rooftile.bench import liger, quack
from rooftile.bench.case import Case, Dims
from rooftile.bench.ours import our_op
from rooftile.cost.formulas import fused as formulas
from rooftile.spec.dtypes import math_key

# tokens x hidden x vocabulary of Llama 3 8B
_SHAPES = ((8192, 4096, 128_256),)
_MATH = {2: math_key("bfloat16"), 4: math_key("float32")}
_ours = our_op("linear_cross_entropy")


def _inputs(dims: Dims, dtype: torch.dtype, device: str) -> tuple[Tensor, ...]:
    m, k, v = dims["M"], dims["K"], dims["V"]
    hidden = torch.randn(m, k, dtype=dtype, device=device, requires_grad=True)
    weight = torch.randn(v, k, dtype=dtype, device=device) / k**0.5
    return hidden, weight.requires_grad_(), torch.randint(v, (m,), device=device)


CASES = (
    Case(
        op="linear_cross_entropy",
        dims=("M", "K", "V"),
        inputs=_inputs,
        function=lambda hidden, weight, target: _ours(hidden, weight, target),
        reference=lambda hidden, weight, target: F.cross_entropy(F.linear(hidden, weight), target),
        costs={
            "forward": lambda d, size: formulas.linear_cross_entropy_forward(
                d["M"], d["K"], d["V"], size, math=_MATH[size]
            ),
            "forward_backward": lambda d, size: formulas.linear_cross_entropy_forward_backward(
                d["M"], d["K"], d["V"], size, math=_MATH[size]
            ),
        },
        shapes={"forward": _SHAPES, "forward_backward": _SHAPES},
        small=((4, 32, 257),),
        peers={"liger": liger.LINEAR_CROSS_ENTROPY, "quack": quack.LINEAR_CROSS_ENTROPY},
    ),
)
