"""Pools, sorting, optimizers and transforms: FLOP and bytes by hand."""

from __future__ import annotations

from ops_by_hand import cost_of, tensor

from rooftile.cost.formulas.fft import fft_flops
from rooftile.cost.formulas.sort import sort_flops, topk_flops


def test_max_pool():
    """3 x 3 windows over 112 x 112 to 56 x 56: 9 comparisons a result; both results written."""
    outputs = (tensor(1, 64, 56, 56), tensor(1, 64, 56, 56, dtype="int64"))
    cost = cost_of(
        "max_pool2d",
        {"self": tensor(1, 64, 112, 112)},
        outputs,
        kernel_size=(3, 3),
        stride=(2, 2),
        padding=(1, 1),
    )
    assert cost.vector_flops == 9 * 64 * 56 * 56
    assert cost.write_bytes == 64 * 56 * 56 * 12
    assert cost.read_bytes == 64 * 112 * 112 * 4


def test_a_pool_s_gradient_does_not_read_the_input():
    """It reads the gradient and the indices."""
    inputs = {
        "grad_output": tensor(1, 1, 4, 4),
        "self": tensor(1, 1, 8, 8),
        "indices": tensor(1, 1, 4, 4, dtype="int64"),
    }
    cost = cost_of(
        "max_pool2d_backward", inputs, tensor(1, 1, 8, 8), kernel_size=(2, 2), stride=(2, 2)
    )
    assert (cost.vector_flops, cost.read_bytes, cost.write_bytes) == (16, 64 + 128, 256)


def test_an_average_divides():
    """2 x 2 windows: 4 additions and a division a result."""
    cost = cost_of("avg_pool2d", {"self": tensor(1, 1, 8, 8)}, tensor(1, 1, 4, 4), kernel_size=(2,))
    assert cost.vector_flops == 16 * 5


def test_adaptive_windows_are_counted_one_by_one():
    """7 to 3: windows of 3, 3 and 3 a dimension, so 81 taps and 9 divisions."""
    cost = cost_of("adaptive_avg_pool2d", {"self": tensor(1, 1, 7, 7)}, tensor(1, 1, 3, 3))
    assert cost.vector_flops == 81 + 9


def test_interpolation():
    """Nearest copies; bilinear is four multiply-adds a result, forward and backward."""
    x, y = tensor(1, 1, 4, 4), tensor(1, 1, 8, 8)
    assert cost_of("upsample_nearest2d", {"self": x}, y).flops == 0
    assert cost_of("upsample_bilinear2d", {"self": x}, y).flops == 8 * 64
    assert cost_of("upsample_bilinear2d_backward", {"grad_output": y}, x).flops == 8 * 64


def test_sorting_is_n_log_n_comparisons():
    """1024 is 10 rounds, 1000 too, 1 none; top-8 of 1000 is one pass and a sort of 8."""
    assert sort_flops(1, 1024) == 10_240
    assert sort_flops(2, 1000) == 20_000
    assert sort_flops(5, 1) == 0
    assert topk_flops(1, 1000, 8) == 1000 + 24
    assert topk_flops(1, 1000, 8, ordered=False) == 1000
    outputs = (tensor(4, 8), tensor(4, 8, dtype="int64"))
    cost = cost_of("topk", {"self": tensor(4, 1000)}, outputs, k=8, dim=-1)
    assert (cost.vector_flops, cost.bytes) == (4 * 1024, 16_000 + 32 * 12)


def test_a_binary_search_touches_its_path():
    """2 searches in 1,000,000 sorted numbers: 21 steps each."""
    inputs = {"sorted_sequence": tensor(1_000_000), "self": tensor(2)}
    cost = cost_of("search", inputs, tensor(2, dtype="int64"))
    assert (cost.vector_flops, cost.read_bytes) == (42, 42 * 4 + 8)


def test_adamw():
    """14 FLOP an element with decay; four lists read, three written, steps read."""
    lists = ("self", "grads", "exp_avgs", "exp_avg_sqs")
    inputs = {f"{name}.{i}": tensor(n) for name in lists for i, n in enumerate((3, 5))}
    steps = {"state_steps.0": tensor(), "state_steps.1": tensor()}
    changed = tuple(inputs)
    attrs = {"weight_decay": 0.01, "amsgrad": False, "maximize": False}
    cost = cost_of("adamw_step", {**inputs, **steps}, changed=changed, **attrs)
    assert cost.vector_flops == 14 * 8
    assert (cost.read_bytes, cost.write_bytes) == (4 * 8 * 4 + 8, 3 * 8 * 4)


def test_sgd():
    """Plain: 2 FLOP, parameters and gradients; with momentum 2 more and the buffers, damped 3."""
    inputs = {"self.0": tensor(8), "grads.0": tensor(8)}
    plain = cost_of("sgd_step", inputs, changed=tuple(inputs), momentum=0.0, weight_decay=0.0)
    assert (plain.vector_flops, plain.read_bytes, plain.write_bytes) == (16, 64, 32)
    inputs["momentum_buffer_list.0"] = tensor(8)
    heavy = cost_of("sgd_step", inputs, changed=tuple(inputs), momentum=0.9, weight_decay=0.0)
    assert (heavy.vector_flops, heavy.read_bytes, heavy.write_bytes) == (32, 96, 64)
    damped = cost_of("sgd_step", inputs, changed=tuple(inputs), momentum=0.9, dampening=0.1)
    assert damped.vector_flops == 40
    first = cost_of("sgd_step", inputs, changed=tuple(inputs), momentum=0.9, is_first_step=True)
    assert (first.vector_flops, first.read_bytes, first.write_bytes) == (16, 64, 64)


def test_a_fourier_transform():
    """1024 complex points: 5 n log2 n; from reals half of it."""
    assert fft_flops(1024) == 51_200
    assert fft_flops(1024, real=True) == 25_600
    assert fft_flops(1) == 0
    x = tensor(8, 1024, dtype="complex64")
    assert cost_of("fft_c2c", {"self": x}, x, dim=(1,)).vector_flops == 8 * 51_200
    half = tensor(8, 513, dtype="complex64")
    cost = cost_of("fft_r2c", {"self": tensor(8, 1024)}, half, dim=(1,))
    assert cost.vector_flops == 8 * 25_600
