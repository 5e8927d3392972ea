"""The attention that stands in for torch's: its shapes, its errors, its work."""

import itertools

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention.bias import CausalBias, causal_lower_right, causal_upper_left
from torch.utils.flop_counter import FlopCounterMode

from rooftile.capture.module import capture_module
from rooftile.capture.target import capture_target
from rooftile.cost.graph import price
from rooftile.errors import TargetError


class Attend(nn.Module):
    """softmax(q @ k.T) @ v."""

    def __init__(self, **options):
        super().__init__()
        self.options = options

    def forward(self, q, k, v, mask=None):
        return F.scaled_dot_product_attention(q, k, v, mask, **self.options)


def captured(q, k, v, mask=None, **options):
    """The shape that a capture gives, or None where it refuses."""
    try:
        graph = capture_module(Attend(**options), (q, k, v, mask))
    except TargetError:
        return None
    (op,) = [op for op in graph.ops if op.name == "attention"]
    last = graph.ops[-1]
    return (last.outputs or op.outputs)[0].shape


def real(q, k, v, mask=None, **options):
    """The shape that torch gives, or None where it refuses."""
    try:
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            return tuple(F.scaled_dot_product_attention(q, k, v, mask, **options).shape)
    except (RuntimeError, IndexError):
        return None


SHAPES = [
    *itertools.product([(1, 4, 6, 8), (3, 4, 6, 8), (3, 1, 6, 8)], [(1, 4, 5, 8), (3, 2, 5, 8)],
                       [(1, 4, 5, 8), (3, 4, 5, 2), (3, 2, 5, 8), (1, 1, 5, 8)]),
    ((6, 8), (5, 8), (5, 2)),
    ((4, 6, 8), (4, 5, 8), (4, 5, 8)),
    ((4, 6, 8), (5, 8), (5, 8)),
    ((2, 4, 6, 8), (4, 5, 8), (4, 5, 8)),
    ((2, 2, 4, 6, 8), (2, 2, 4, 5, 8), (2, 2, 4, 5, 8)),
    ((2, 6, 6, 8), (2, 4, 5, 8), (2, 4, 5, 8)),
    ((2, 8, 6, 8), (2, 4, 5, 8), (2, 2, 5, 8)),
    ((8,), (8,), (8,)),
    ((2, 4, 0, 8), (2, 4, 5, 8), (2, 4, 5, 8)),
    ((2, 4, 6, 8), (2, 4, 5, 4), (2, 4, 5, 8)),
    ((2, 4, 6, 8), (2, 4, 5, 8), (2, 4, 6, 8)),
]  # fmt: skip


@pytest.mark.parametrize("enable_gqa", [False, True])
@pytest.mark.parametrize(("q", "k", "v"), SHAPES)
def test_shapes_and_refusals_are_torchs(q, k, v, enable_gqa):
    """Over ranks, batches, heads and widths: what torch computes is taken, the rest refused."""
    tensors = [torch.zeros(shape) for shape in (q, k, v)]
    assert captured(*tensors, enable_gqa=enable_gqa) == real(*tensors, enable_gqa=enable_gqa)


@pytest.mark.parametrize("dtype", [torch.bool, torch.float32, torch.float16, torch.int64])
@pytest.mark.parametrize(
    "shape",
    [(6, 5), (1, 5), (6, 1), (4, 6, 5), (1, 1, 6, 5), (2, 1, 6, 5), (6, 4), (5,), (3, 6, 5)],
)
def test_masks_are_taken_and_refused_as_by_torch(shape, dtype):
    """Any that broadcasts to the scores, of a dtype that can be added; a wrong width is refused."""
    q, k = torch.zeros(1, 4, 6, 8), torch.zeros(1, 4, 5, 8)
    mask = torch.zeros(shape, dtype=dtype)
    assert captured(q, k, k, mask) == real(q, k, k, mask)


@pytest.mark.parametrize(
    ("q", "k", "v", "flops"),
    [
        # scores of one batch: 4 * 16 * 16 * 2 * 8; values of three
        ((1, 4, 16, 8), (1, 4, 16, 8), (3, 4, 16, 8), 16_384 + 3 * 16_384),
        ((1, 1, 16, 8), (1, 4, 16, 8), (1, 4, 16, 8), 2 * 16_384),
        ((3, 4, 16, 8), (1, 4, 16, 8), (1, 4, 16, 8), 6 * 16_384),
        ((16, 8), (16, 8), (16, 8), 2 * 4_096),
    ],
    ids=["values", "one query head", "queries", "matrices"],
)
def test_work_of_a_broadcast(q, k, v, flops):
    """The products that torch runs, counted by hand and by torch, forward and backward."""
    tensors = [torch.zeros(shape, requires_grad=True) for shape in (q, k, v)]
    graph = capture_module(Attend(), tensors, mode="train", loss=lambda out: out.sum())
    by_name = {op.name: price(op) for op in graph.ops}
    assert by_name["attention"].matrix_flops == flops
    math = torch.nn.attention.SDPBackend.MATH
    with FlopCounterMode(display=False) as counter, torch.nn.attention.sdpa_kernel(math):
        F.scaled_dot_product_attention(*tensors)
    assert counter.get_total_flops() == flops
    # the scores again, and two products for each of the forward's
    assert by_name["attention_backward"].matrix_flops == 2 * flops + _score_flops(q, k)


def _score_flops(q, k):
    lead = torch.broadcast_shapes(q[:-2], k[:-2])
    return 2 * torch.Size(lead).numel() * q[-2] * k[-2] * q[-1]


class Biased(nn.Module):
    """Attention under a bias made in the forward, or given."""

    def __init__(self, make=None):
        super().__init__()
        self.make = make

    def forward(self, q, k, v, bias=None):
        return F.scaled_dot_product_attention(q, k, v, self.make(4, 16) if self.make else bias)


@pytest.mark.parametrize("inside", [True, False], ids=["inside", "input"])
@pytest.mark.parametrize(
    ("make", "pairs"),
    [
        (causal_lower_right, 13 + 14 + 15 + 16),  # the last of 4 queries sees all of 16 keys
        (causal_upper_left, 1 + 2 + 3 + 4),  # the first sees the first
    ],
    ids=["lower right", "upper left"],
)
def test_a_causal_bias_is_a_flag(make, pairs, inside):
    """4 queries of 16 keys, 32 FLOP a pair of width 8: 1,856 or 320, of 2,048 dense; no mask."""
    q, k = torch.zeros(1, 1, 4, 8), torch.zeros(1, 1, 16, 8)
    model, given = (Biased(make), (q, k, k)) if inside else (Biased(), (q, k, k, make(4, 16)))
    (op,) = capture_module(model, given).ops
    cost = price(op)
    assert (cost.matrix_flops, cost.dense_matrix_flops) == (32 * pairs, 2_048)
    assert op.operand("attn_bias") is None
    assert "__new__" not in vars(CausalBias)


def test_a_target_may_make_a_causal_bias(tmp_path):
    """A bias built beside the model, without memory, is taken for what it is."""
    path = tmp_path / "target.py"
    path.write_text(
        "import torch\nfrom torch import nn\nimport torch.nn.functional as F\n"
        "from torch.nn.attention.bias import causal_lower_right\n"
        "class Model(nn.Module):\n"
        "    def forward(self, q, k, bias):\n"
        "        return F.scaled_dot_product_attention(q, k, k, bias)\n"
        "def make():\n"
        "    q, k = torch.zeros(1, 1, 4, 8), torch.zeros(1, 1, 16, 8)\n"
        "    return Model(), (q, k, causal_lower_right(4, 16))\n"
    )
    (op,) = capture_target(f"{path}:make").ops
    assert price(op).matrix_flops == 1_856


def test_a_mask_is_said_to_be_counted_densely():
    """Who passes a mask learns that its zeros save nothing here."""
    q = torch.zeros(1, 1, 4, 8)
    graph = capture_module(Attend(), (q, q, q, torch.ones(4, 4, dtype=torch.bool).tril()))
    assert any("over all pairs" in line for line in graph.assumptions)
    assert price(graph.ops[0]).matrix_flops == 4 * 4 * 32
