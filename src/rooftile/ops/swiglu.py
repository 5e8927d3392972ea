"""SwiGLU: y = silu(gate) * up.

Source: Shazeer 2020, https://arxiv.org/abs/2002.05202
Cost:   rooftile.cost.formulas.fused.swiglu_forward (memory-bound at every shape)
"""

from __future__ import annotations

import torch
from torch import Tensor

from rooftile.ops._repeat import repeats
from rooftile.ops.flat.glu import differentiable_glu


def swiglu_ref(gate: Tensor, up: Tensor) -> Tensor:
    """The definition, in plain PyTorch. It computes in float32, or in float64 for float64."""
    acc = torch.promote_types(gate.dtype, torch.float32)
    return (torch.nn.functional.silu(gate.to(acc)) * up.to(acc)).to(gate.dtype)


@repeats()
def swiglu(gate: Tensor, up: Tensor) -> Tensor:
    """Multiply ``up`` by the SiLU of ``gate``: ``gate * sigmoid(gate) * up``.

    Halves of a fused projection (``x.chunk(2, -1)``) are read where they lie. Autocast leaves the
    dtype as it is.

    Args:
        gate: Shape ``[...]``, float32, float16 or bfloat16, of any strides.
        up: Of the shape, dtype and device of ``gate``.

    Returns:
        A contiguous tensor, shape and dtype of ``gate``. Computed in float32.

    Raises:
        InputError: A shape, dtype or device is not as above.

    Cost:
        ``fused.swiglu_forward`` and ``fused.swiglu_backward``: two reads and one write of each
        element; three reads and two writes.

    Source:
        https://arxiv.org/abs/2002.05202
    """
    return differentiable_glu(gate, up, "silu")
