"""The counting faults of the field, end to end: a model in, the right number out."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

import rooftile

GPU = "h100-sxm"


class Call(nn.Module):
    """A function as a model."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


def audit(function, *inputs, **options):
    model = function if isinstance(function, nn.Module) else Call(function)
    return rooftile.audit(model, inputs, gpu=GPU, **options)


def total(out):
    return out.sum()


def phase_flops(estimate, phase):
    return sum(op.cost.matrix_flops for op in estimate.ops if op.phase == phase)


def sdpa(q):
    return F.scaled_dot_product_attention(q, q, q)


def test_cnt_01_attention_on_a_cpu_is_counted():
    """q (1,12,64,64) float32: 4·B·H·S·S·D, whatever backend would be picked."""
    estimate = audit(sdpa, torch.zeros(1, 12, 64, 64))
    assert estimate.totals.matrix_flops == 12_582_912
    assert estimate.totals.unpriced_ops == 0


def test_cnt_01_an_op_without_a_formula_is_listed():
    """An op nobody priced is unpriced with its bytes, never 0 FLOP in silence."""
    library = torch.library.Library("counting_test", "DEF")
    library.define("mystery(Tensor x) -> Tensor")
    torch.library.register_fake("counting_test::mystery", torch.empty_like, lib=library)
    estimate = audit(lambda x: torch.ops.counting_test.mystery(x) + 1, torch.zeros(1024))
    (op,) = [op for op in estimate.ops if op.bound == "unpriced"]
    assert op.name == "counting_test::mystery"
    assert op.cost.bytes == 2 * 4096
    assert (estimate.totals.unpriced_ops, estimate.totals.ops) == (1, 2)
    assert estimate.totals.unpriced_bytes == 8192
    library._destroy()


@pytest.mark.parametrize("backends", [None, [SDPBackend.MATH], [SDPBackend.FLASH_ATTENTION]])
def test_cnt_02_one_call_is_counted_once(backends):
    """(2,5,9,4): 12,960 by every backend, and inside another counter."""

    def call(q):
        if backends is None:
            return sdpa(q)
        with sdpa_kernel(backends):
            return sdpa(q)

    q = torch.zeros(2, 5, 9, 4)
    assert audit(call, q).totals.matrix_flops == 12_960
    with FlopCounterMode(display=False):
        assert audit(call, q).totals.matrix_flops == 12_960


def test_cnt_04_the_count_does_not_depend_on_the_layout():
    """A low-level op that takes [B,S,H,D]: 8,589,934,592 forward, 2.5 times that backward."""
    q = torch.zeros(2, 1024, 16, 64, dtype=torch.bfloat16, requires_grad=True)

    def call(q):
        forward = torch.ops.aten._efficient_attention_forward
        out = forward(q, q, q, None, None, None, None, None, 0.0, 0, True)[0]
        return out.float().sum()

    estimate = audit(call, q, mode="train")
    assert phase_flops(estimate, "forward") == 8_589_934_592
    assert phase_flops(estimate, "backward") == 21_474_836_480


def test_cnt_05_value_heads_of_another_size():
    """Dqk=192, Dv=128, S=64: each matmul with its own head dimension."""
    q, v = torch.zeros(1, 1, 64, 192), torch.zeros(1, 1, 64, 128)
    q.requires_grad_()
    v.requires_grad_()

    def call(q, v):
        return F.scaled_dot_product_attention(q, q * 1, v).sum()

    estimate = audit(call, q, v, mode="train")
    assert phase_flops(estimate, "forward") == 2_621_440
    assert phase_flops(estimate, "backward") == 6_815_744


@pytest.mark.parametrize(
    ("layer", "shape", "forward", "step"),
    [
        (nn.Conv2d(4, 4, 3, padding=1, groups=4, bias=False), (1, 4, 8, 8), 4_608, 13_824),
        (
            nn.ConvTranspose2d(4, 4, 3, 2, 1, 1, groups=4, bias=False),
            (2, 4, 8, 8),
            9_216,
            27_648,
        ),
    ],
    ids=["depthwise", "grouped transposed"],
)
def test_cnt_07_grouped_convolutions_train(layer, shape, forward, step):
    """The weight gradient of a grouped convolution costs as much as its forward, not groups²."""
    x = torch.zeros(shape, requires_grad=True)
    estimate = audit(layer, x, mode="train", loss=total)
    assert phase_flops(estimate, "forward") == forward
    assert estimate.totals.matrix_flops == step


@pytest.mark.parametrize(
    ("layer", "shape", "flops"),
    [
        (nn.ConvTranspose2d(32, 1, 3, bias=False), (1, 32, 1, 1), 576),
        (nn.ConvTranspose2d(6, 6, 2, stride=2, groups=3, bias=False), (2, 6, 8, 8), 12_288),
    ],
    ids=["one output channel", "three groups"],
)
def test_cnt_08_transposed_convolutions(layer, shape, flops):
    """Channels are read the right way round, and groups divide once."""
    assert audit(layer, torch.zeros(shape)).totals.matrix_flops == flops


@pytest.mark.parametrize(("length", "flops"), [(128, 8_388_608), (256, 25_165_824)])
@pytest.mark.parametrize("mode", ["infer", "train"])
def test_cnt_10_multihead_attention_in_both_modes(length, flops, mode):
    """8·S·d² + 4·S²·d: three times the work for twice the sequence, fast path or not."""
    layer = nn.MultiheadAttention(64, 1, bias=False, batch_first=True)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = layer

        def forward(self, x):
            return self.layer(x, x, x, need_weights=False)[0].sum()

    estimate = audit(Model(), torch.zeros(1, length, 64), mode=mode)
    assert phase_flops(estimate, "forward") == flops


@pytest.mark.parametrize("context", [torch.inference_mode, torch.no_grad, torch.enable_grad])
@pytest.mark.parametrize("outside", [False, True])
def test_cnt_11_inference_mode(context, outside):
    """Linear(16, 32) on (8, 16): 8,192 with and without, inside and around the audit."""
    linear = nn.Linear(16, 32)

    def call(x):
        with context():
            return linear(x)

    x = torch.zeros(8, 16)
    if outside:
        with context():
            estimate = audit(linear, x)
    else:
        estimate = audit(call, x)
    assert estimate.totals.matrix_flops == 8_192


def test_cnt_13_counting_again_gives_the_same():
    """Three counts in a row agree, and the model is as it was."""
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
    counts = [audit(model, torch.zeros(2, 4)).totals for _ in range(3)]
    assert counts[0] == counts[1] == counts[2]
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


def test_cnt_14_flop_are_not_multiply_adds():
    """784-512-512-10, batch 1: 668,672 MAC are 1,337,344 FLOP; bias and ReLU are vector work."""
    model = nn.Sequential(
        nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)
    )
    assert audit(model, torch.zeros(1, 784)).totals.matrix_flops == 1_337_344


def test_cnt_17_bytes_of_slices_in_place_and_expanded():
    """A slice reads its own size, an in-place op reads and writes, an expanded tensor is small."""
    sliced = audit(lambda x: x[:, :16].sum(), torch.zeros(1024, 1024))
    assert sum(op.cost.read_bytes for op in sliced.ops) == 65_536
    in_place = audit(lambda y: y.add_(1), torch.zeros(1024))
    assert in_place.totals.bytes == 2 * 4096
    expanded = audit(lambda x: x.expand(4096, 4096).sum(), torch.zeros(1, 4096))
    assert sum(op.cost.read_bytes for op in expanded.ops) == 16_384
    view = audit(lambda x: x.view(-1)[:7].t(), torch.zeros(64, 64))
    assert (view.totals.bytes, view.totals.ops) == (0, 0)


def test_int_05_a_compiled_model_is_counted_uncompiled():
    """The counter sees through torch.compile, and the model still runs afterwards."""
    model = nn.Linear(16, 32)
    compiled = torch.compile(model, backend="eager")
    assert audit(compiled, torch.zeros(8, 16)).totals.matrix_flops == 8_192
    assert compiled(torch.zeros(8, 16)).shape == (8, 32)


@pytest.mark.parametrize(
    ("function", "shapes", "dtype", "read", "write"),
    [
        (
            lambda e, i: F.embedding(i, e),
            [(50257, 768)],
            torch.float32,
            8 * 768 * 4 + 64,
            8 * 768 * 4,
        ),
        (lambda x, i: x[i], [(1024, 1024)], torch.float32, 8 * 4096 + 64, 8 * 4096),
        (lambda x, i: torch.empty_like(x), [(1024,)], torch.float32, 0, 0),
        (lambda x, i: x + x, [(1024, 1024)], torch.float32, 4 << 20, 4 << 20),
        (lambda x, i: x * x.t(), [(64, 64)], torch.float32, 64 * 64 * 4, 64 * 64 * 4),
        (lambda x, i: torch.cat([x, x]), [(64, 64)], torch.float32, 16384, 32768),
        (lambda x, i: x.to(torch.bfloat16), [(64, 64)], torch.float32, 16384, 8192),
        (lambda x, i: x.index_copy_(0, i, x[:8] * 1), [(1024, 16)], torch.float32, None, None),
    ],
    ids=["embedding", "index", "allocation", "x + x", "x · xᵀ", "cat", "cast", "index_copy"],
)
def test_bytes_of_single_ops(function, shapes, dtype, read, write):
    """Rows taken, not tables; storages once; allocation is not traffic."""
    x = torch.zeros(shapes[0], dtype=dtype)
    index = torch.zeros(8, dtype=torch.int64)
    estimate = audit(function, x, index)
    if read is None:  # the copy itself: 8 rows in, 8 rows out, the index; not the table
        (op,) = [op for op in estimate.ops if "index_copy" in op.aten]
        assert (op.cost.read_bytes, op.cost.write_bytes) == (8 * 64 + 64, 8 * 64)
    else:
        ops = estimate.ops
        assert sum(op.cost.read_bytes for op in ops) == read
        assert sum(op.cost.write_bytes for op in ops) == write


def test_attention_bytes_are_those_of_its_operands():
    """bfloat16 (1,12,1024,64): q, k, v and o, 6,291,456 bytes; no score matrix."""
    q, k, v = (torch.zeros(1, 12, 1024, 64, dtype=torch.bfloat16) for _ in range(3))
    estimate = audit(F.scaled_dot_product_attention, q, k, v)
    assert estimate.totals.bytes == 6_291_456


@pytest.mark.parametrize(("frozen", "backward"), [(False, 61_440), (True, 30_720)])
def test_a_frozen_recurrent_layer_has_no_weight_gradient(frozen, backward):
    """LSTM(8, 8) of 30 rows: two products backward, of which the weights' falls away."""
    layer = nn.LSTM(8, 8).requires_grad_(not frozen)
    x = torch.zeros(10, 3, 8, requires_grad=True)
    estimate = audit(layer, x, mode="train", loss=lambda out: out[0].sum())
    assert phase_flops(estimate, "forward") == 30_720
    assert phase_flops(estimate, "backward") == backward


def test_a_grid_s_points_are_what_is_read():
    """9 points of a 400 x 400 image: 360 bytes, and a nearest 16 to 4 is 128 of 2,048."""
    estimate = audit(F.grid_sample, torch.zeros(1, 2, 400, 400), torch.zeros(1, 3, 3, 2))
    assert sum(op.cost.read_bytes for op in estimate.ops) == 360
    nearest = audit(lambda x: F.interpolate(x, 4), torch.zeros(1, 2, 16, 16))
    assert sum(op.cost.read_bytes for op in nearest.ops) == 128


def test_an_empty_batch_takes_no_time():
    """No kernel runs on no rows, and the weights are not read."""
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.LayerNorm(32))
    estimate = audit(model, torch.zeros(0, 64))
    assert (estimate.totals.ops, estimate.totals.bytes, estimate.totals.least_s) == (0, 0, 0)
