"""The Hopper attention kernels of packed sequences, compiled without such a GPU."""

from __future__ import annotations

import pytest
import torch
from compile.test_attention_hopper import CAUSAL, WINDOW, examine

from rooftile.ops.flash import hopper_bwd, hopper_fwd
from rooftile.ops.flash.packed_tiles import Packing

# columns, band, whether it counts from the last query and key; loads and stores of local memory in
# hot loops: of the forward and the backward under a Triton above 3.6, of the backward under 3.6.
# The plain kernels have as many where no tile of keys divides the keys.
QUICK = [(128, CAUSAL, False, (0, 0), (4, 0), (4, 0))]
REST = [
    (128, {}, False, (0, 0), (10, 3), (9, 3)), (128, CAUSAL, True, (0, 0), (4, 0), (4, 0)),
    (128, WINDOW, True, (31, 25), (11, 9), (4, 0)), (64, {}, False, (0, 0), (2, 1), (0, 0)),
    (64, CAUSAL, False, (0, 0), (1, 0), (0, 0)), (64, CAUSAL, True, (0, 0), (1, 0), (0, 0)),
    (256, {}, False, (2, 0), (13, 2), (0, 0)), (256, CAUSAL, False, (2, 0), (15, 1), (0, 0)),
    (256, CAUSAL, True, (6, 0), (20, 3), (0, 0)),
]  # fmt: skip


def calls(columns, band, bottom):
    """A forward, a backward and one in order, of the same packed operands."""
    q = torch.empty(1, 4, 1024, columns, dtype=torch.bfloat16)
    k = torch.empty(1, 2, 1000, columns, dtype=torch.bfloat16)
    lse, cu = torch.empty(1, 4, 1024), torch.zeros(5, dtype=torch.int32)
    where = {"scale": 0.1, "packing": Packing(cu, cu, bottom), **band}
    yield lambda: hopper_fwd.attention_fwd(q, k, k, q, lse, **where)
    for deterministic in (False, True):
        yield lambda ordered=deterministic: hopper_bwd.attention_bwd(
            q, k, k, q, lse, q, q, k, k, deterministic=ordered, **where
        )


@pytest.mark.parametrize("case", QUICK, ids=str)
def test_the_kernels_keep_to_registers(case):
    """No hot loop touches local memory, but for what the plain kernels' do as well."""
    columns, band, bottom, ahead, back, older = case
    forward, backward, ordered = calls(columns, band, bottom)
    examine(forward, *ahead)
    examine(backward, *back, *older)
    examine(ordered, *(back if columns == 256 else (0, 0)))


@pytest.mark.slow
@pytest.mark.parametrize("case", REST, ids=str)
def test_every_variant_keeps_to_registers(case):
    """Any width and mask."""
    test_the_kernels_keep_to_registers(case)
