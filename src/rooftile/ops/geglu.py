"""GeGLU: y = gelu(gate) * up.

Source: Shazeer 2020, https://arxiv.org/abs/2002.05202
Cost:   rooftile.cost.formulas.fused.geglu_forward (memory-bound at every shape)
"""

from __future__ import annotations

import torch
from torch import Tensor

from rooftile.ops._check import check_approximate
from rooftile.ops._repeat import repeats
from rooftile.ops.flat.glu import differentiable_glu


def geglu_ref(gate: Tensor, up: Tensor, approximate: str = "none") -> Tensor:
    """The definition, in plain PyTorch. It computes in float32, or in float64 for float64."""
    acc = torch.promote_types(gate.dtype, torch.float32)
    activated = torch.nn.functional.gelu(gate.to(acc), approximate=approximate)
    return (activated * up.to(acc)).to(gate.dtype)


@repeats()
def geglu(gate: Tensor, up: Tensor, approximate: str = "none") -> Tensor:
    """Multiply ``up`` by the GELU of ``gate``: ``gate * Phi(gate) * up``.

    Halves of a fused projection (``x.chunk(2, -1)``) are read where they lie. Autocast leaves the
    dtype as it is.

    Args:
        gate: Shape ``[...]``, float32, float16 or bfloat16, of any strides.
        up: Of the shape, dtype and device of ``gate``.
        approximate: ``"none"`` for the error function, ``"tanh"`` for torch's approximation.

    Returns:
        A contiguous tensor, shape and dtype of ``gate``. Computed in float32; for 16-bit dtypes
        Phi is a polynomial that is wrong by at most 1.7e-6.

    Raises:
        InputError: A shape, dtype, device or ``approximate`` is not as above.

    Cost:
        ``fused.geglu_forward`` and ``fused.geglu_backward``: two reads and one write of each
        element; three reads and two writes.

    Source:
        https://arxiv.org/abs/2002.05202
    """
    check_approximate(approximate)
    return differentiable_glu(gate, up, "gelu_tanh" if approximate == "tanh" else "gelu")
