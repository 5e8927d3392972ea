"""Softmax and the losses behind it: FLOP and bytes by hand."""

from __future__ import annotations

from ops_by_hand import cost_of, strided, tensor

from rooftile.cost.formulas import loss, softmax


def test_softmax():
    """5 FLOP an element forward, 4 backward: one read and one write, or two reads."""
    cost = cost_of("softmax", {"self": tensor(4, 8)}, tensor(4, 8), dim=-1)
    want = softmax.softmax_forward(4, 8, 4)
    assert (cost.vector_flops, cost.bytes) == (want.vector_flops, want.bytes) == (160, 256)
    saved = {"grad_output": tensor(4, 8), "output": tensor(4, 8)}
    back = cost_of("softmax_backward", saved, tensor(4, 8))
    want = softmax.softmax_backward(4, 8, 4)
    assert (back.vector_flops, back.bytes) == (want.vector_flops, want.bytes) == (128, 384)


def test_softmax_that_widens():
    """bfloat16 in, float32 out."""
    cost = cost_of("softmax", {"self": tensor(4, 8, dtype="bfloat16")}, tensor(4, 8))
    assert cost.bytes == 64 + 128 == softmax.softmax_forward(4, 8, 2, out_itemsize=4).bytes


def test_negative_log_likelihood_reads_one_class_a_row():
    """16 rows of 1000 classes: 16 elements and 16 targets in, two numbers out."""
    inputs = {"self": tensor(16, 1000), "target": tensor(16, dtype="int64")}
    cost = cost_of("nll_loss", inputs, (tensor(), tensor()))
    assert (cost.vector_flops, cost.read_bytes, cost.write_bytes) == (32, 16 * 12, 8)


def test_negative_log_likelihood_s_gradient_is_dense_and_does_not_read_its_input():
    """16 x 1000 zeros and 16 values written from 16 targets and two numbers."""
    inputs = {
        "grad_output": tensor(),
        "self": tensor(16, 1000),
        "target": tensor(16, dtype="int64"),
        "total_weight": tensor(),
    }
    cost = cost_of("nll_loss_backward", inputs, tensor(16, 1000))
    assert (cost.vector_flops, cost.read_bytes, cost.write_bytes) == (16, 136, 64_000)


def test_a_loss_that_reduces_adds_up():
    """Mean squared error of 8: difference and square, and a sum where it reduces."""
    inputs = {"self": tensor(8), "target": tensor(8)}
    assert cost_of("mse_loss", inputs, tensor(), reduction=1).vector_flops == 24
    assert cost_of("mse_loss", inputs, tensor(8), reduction=0).vector_flops == 16
    back = cost_of("mse_loss_backward", {"grad_output": tensor(), **inputs}, tensor(8))
    assert back.vector_flops == 24


def test_fused_cross_entropy_reads_the_logits_once():
    """2048 rows of 128,256 in bfloat16: the logits in, two numbers a row out."""
    cost = loss.cross_entropy_forward(2048, 128_256, 2)
    assert cost.read_bytes == 2048 * 128_256 * 2 + 2048 * 8
    assert cost.write_bytes == 2048 * 8
    back = loss.cross_entropy_backward(2048, 128_256, 2)
    assert back.write_bytes == 2048 * 128_256 * 2


def test_an_expanded_gradient_is_read_as_its_storage():
    """The gradient of a sum is one number, however large it looks."""
    dy = strided(tensor(1), (64, 64), (0, 0))
    cost = cost_of("mul", {"self": dy, "other": tensor(64, 64)}, tensor(64, 64))
    assert cost.read_bytes == 4 + 64 * 64 * 4
