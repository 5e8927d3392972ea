"""Convolutions: FLOP and bytes against counts made by hand."""

from __future__ import annotations

import pytest
from ops_by_hand import cost_of, op, tensor

from rooftile.cost.formulas.convolution import positions_read
from rooftile.cost.graph import price
from rooftile.errors import InputError


def test_forward():
    """3 x 3, 64 to 64 channels, 56 x 56, padding 1: 231,211,008 FLOP; bias apart."""
    x, w, b = tensor(1, 64, 56, 56), tensor(64, 64, 3, 3), tensor(64)
    inputs = {"input": x, "weight": w, "bias": b}
    cost = cost_of(
        "convolution", inputs, tensor(1, 64, 56, 56), stride=(1, 1), padding=(1, 1), dilation=(1, 1)
    )
    assert cost.matrix_flops == 231_211_008
    assert cost.vector_flops == 64 * 56 * 56
    assert cost.bytes == (2 * 64 * 56 * 56 + 64 * 64 * 9 + 64) * 4


def test_backward_is_twice_the_forward():
    """Each of the two gradients costs the forward; the bias's is a sum."""
    dy, x, w = tensor(1, 64, 56, 56), tensor(1, 64, 56, 56), tensor(64, 64, 3, 3)
    inputs = {"grad_output": dy, "input": x, "weight": w}
    attrs = {"stride": (1, 1), "padding": (1, 1), "dilation": (1, 1), "transposed": False}
    full = cost_of("convolution_backward", inputs, (), output_mask=(True, True, True), **attrs)
    assert full.matrix_flops == 2 * 231_211_008
    assert full.vector_flops == dy.numel


def test_backward_reads_what_the_wanted_gradient_needs():
    """dinput needs the weight, dweight the input; dy is needed by both."""
    dy, x, w = tensor(1, 4, 6, 6), tensor(1, 2, 8, 8), tensor(4, 2, 3, 3)
    inputs = {"grad_output": dy, "input": x, "weight": w}
    attrs = {"stride": (1, 1), "padding": (0, 0), "dilation": (1, 1)}
    only_input = cost_of(
        "convolution_backward", inputs, (), output_mask=(True, False, False), **attrs
    )
    assert only_input.matrix_flops == 2 * 36 * 72
    assert only_input.read_bytes == (144 + 72) * 4
    only_weight = cost_of(
        "convolution_backward", inputs, (), output_mask=(False, True, False), **attrs
    )
    assert only_weight.matrix_flops == 2 * 36 * 72
    assert only_weight.read_bytes == (144 + 128) * 4


def test_transposed_backward_is_twice_the_forward():
    """ConvTranspose2d(192, 384, 2, stride 2) on (6, 192, 30, 96)."""
    x, w, dy = tensor(6, 192, 30, 96), tensor(192, 384, 2, 2), tensor(6, 384, 60, 192)
    forward = cost_of("convolution", {"input": x, "weight": w}, dy, transposed=True)
    backward = cost_of(
        "convolution_backward",
        {"grad_output": dy, "input": x, "weight": w},
        (),
        transposed=True,
        output_mask=(True, True, False),
    )
    assert forward.matrix_flops == 2 * 6 * 30 * 96 * 192 * 384 * 4
    assert backward.matrix_flops == 2 * forward.matrix_flops


def test_transposed_forward():
    """ConvTranspose2d(64, 32, 4, stride 2, padding 1) on (1, 64, 32, 32): 67,108,864 FLOP."""
    inputs = {"input": tensor(1, 64, 32, 32), "weight": tensor(64, 32, 4, 4)}
    cost = cost_of("conv_transpose2d", inputs, tensor(1, 32, 64, 64), stride=(2, 2), padding=(1, 1))
    assert cost.matrix_flops == 67_108_864


def test_depthwise_forward():
    """64 channels, 3 x 3, 32 x 32, one group a channel: 1,179,648 FLOP."""
    inputs = {"input": tensor(1, 64, 32, 32), "weight": tensor(64, 1, 3, 3)}
    cost = cost_of("convolution", inputs, tensor(1, 64, 32, 32), padding=(1, 1), stride=(1, 1))
    assert cost.matrix_flops == 1_179_648


def test_without_a_batch():
    """An input of channels and places alone is a batch of one."""
    inputs = {"input": tensor(2, 8, 8), "weight": tensor(4, 2, 3, 3)}
    assert cost_of("conv2d", inputs, tensor(4, 6, 6)).matrix_flops == 2 * 36 * 72


def test_a_stride_beyond_the_kernel_skips_input():
    """1 x 1 with stride 2 on 8 x 8 reads every second row and column."""
    inputs = {"input": tensor(1, 4, 8, 8), "weight": tensor(6, 4, 1, 1)}
    cost = cost_of(
        "convolution",
        inputs,
        tensor(1, 6, 4, 4),
        stride=(2, 2),
        padding=(0, 0),
        dilation=(1, 1),
    )
    assert cost.read_bytes == (4 * 16 + 24) * 4


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((8, 8, 3, 1, 1, 1), 8),  # same padding
        ((8, 4, 1, 2, 0, 1), 4),  # every second
        ((8, 2, 2, 4, 0, 1), 4),  # two of every four
        ((10, 2, 3, 5, 0, 2), 6),  # 0 2 4 and 5 7 9
        ((7, 3, 2, 2, 0, 1), 6),  # the last place is cut off
        ((4, 2, 3, 4, 1, 1), 3),  # -1 0 1 and 3 4 5: one place before, two behind
    ],
)
def test_positions_read(arguments: tuple[int, ...], expected: int):
    """Places that windows touch, by size, out, kernel, stride, padding and dilation."""
    assert positions_read(*arguments) == expected


def test_a_kernel_that_does_not_fit_the_input_is_an_error():
    """A weight of two spatial dimensions over an input of one raises."""
    with pytest.raises(InputError, match="convolution"):
        price(
            op("convolution", {"input": tensor(8), "weight": tensor(4, 2, 3, 3)}, tensor(4, 6, 6))
        )
