"""cross_entropy of logits, mean over the rows."""

from __future__ import annotations

from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from rooftile.bench import liger, quack
from rooftile.bench.case import Case, Dims
from rooftile.bench.ours import our_op
from rooftile.cost.formulas import loss as formulas
from rooftile.records.cost import Cost

# tokens x vocabulary of Llama 2 and Llama 3
_SHAPES = ((8192, 32_000), (8192, 128_256))
_ours = our_op("cross_entropy")


def _inputs(dims: Dims, dtype: torch.dtype, device: str) -> tuple[Tensor, ...]:
    m, v = dims["M"], dims["V"]
    logits = torch.randn(m, v, dtype=dtype, device=device, requires_grad=True)
    return logits, torch.randint(v, (m,), device=device)


def _both(dims: Dims, itemsize: int) -> Cost:
    forward = formulas.cross_entropy_forward(dims["M"], dims["V"], itemsize)
    backward = formulas.cross_entropy_backward(dims["M"], dims["V"], itemsize)
    return replace(
        backward,
        vector_flops=forward.vector_flops + backward.vector_flops,
        read_bytes=forward.read_bytes + backward.read_bytes,
        write_bytes=forward.write_bytes + backward.write_bytes,
        kernels=2,
    )


CASES = (
    Case(
        op="cross_entropy",
        dims=("M", "V"),
        inputs=_inputs,
        function=lambda logits, target: _ours(logits, target),
        reference=lambda logits, target: F.cross_entropy(logits, target),
        costs={
            "forward": lambda d, size: formulas.cross_entropy_forward(d["M"], d["V"], size),
            "backward": lambda d, size: formulas.cross_entropy_backward(d["M"], d["V"], size),
            "forward_backward": _both,
        },
        shapes={"forward": _SHAPES, "backward": (), "forward_backward": _SHAPES},
        small=((4, 257), (3, 1023)),
        peers={"liger": liger.CROSS_ENTROPY, "quack": quack.CROSS_ENTROPY},
    ),
)
