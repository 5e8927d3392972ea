"""Ops of a live model that are one kernel on a GPU: attention, recurrent layers, norms."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from rooftile.capture.module import capture_module


def names(graph):
    return [op.name for op in graph.ops]


def find(graph, name):
    return [op for op in graph.ops if op.name == name]


class Attend(nn.Module):
    """Grouped-query causal attention of 8 query and 2 key-value heads."""

    def forward(self, q, k, v):
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return out.sum()


def qkv(grad=False):
    q = torch.randn(1, 8, 16, 4, requires_grad=grad)
    k, v = (torch.randn(1, 2, 16, 4, requires_grad=grad) for _ in range(2))
    return q, k, v


def test_attention_is_one_op_with_its_own_heads():
    """Causal, no mask, K and V at their own 2 heads, forward and backward."""
    graph = capture_module(Attend(), qkv(grad=True), mode="train")
    (forward,), (backward,) = find(graph, "attention"), find(graph, "attention_backward")
    assert forward.attrs["is_causal"] is True
    assert forward.operand("attn_bias") is None
    assert forward.operand("key").shape == (1, 2, 16, 4)
    assert [t.shape for t in backward.outputs[:3]] == [t.shape for t in forward.reads]
    assert not {"bmm", "_softmax", "softmax"} & set(names(graph))


def test_inference_keeps_no_logsumexp():
    """Without a gradient nobody needs the row statistics, and nobody writes them."""
    (op,) = find(capture_module(Attend(), qkv()), "attention")
    assert [t.shape for t in op.outputs] == [(1, 8, 16, 4), (0,)]


@pytest.mark.parametrize("mode", ["infer", "train"])
def test_attention_inside_multihead_attention(mode):
    """A call from within torch's own module is caught too."""
    layer = nn.MultiheadAttention(64, 1, bias=False, batch_first=True)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = layer

        def forward(self, x):
            return self.layer(x, x, x, need_weights=False)[0].sum()

    graph = capture_module(Model(), torch.randn(1, 128, 64), mode=mode)
    seen = set(names(graph))
    assert "attention" in seen or "_native_multi_head_attention" in seen
    assert "softmax" not in seen
    assert "_softmax" not in seen


def test_encoder_layer_takes_its_fast_path_in_eval():
    """The fused op that torch runs in inference is the one recorded."""
    layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True)
    graph = capture_module(layer, torch.randn(2, 8, 16))
    assert [op.aten for op in graph.ops] == ["aten._transformer_encoder_layer_fwd.default"]


def test_math_backend_is_taken_apart():
    """A user who forbids the fused backends gets the ops that then run."""

    class Math(nn.Module):
        def forward(self, q):
            with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
                return F.scaled_dot_product_attention(q, q, q)

    graph = capture_module(Math(), torch.randn(1, 2, 8, 4))
    assert names(graph).count("bmm") == 2
    assert not find(graph, "attention")


@pytest.mark.parametrize(
    ("layer", "name", "count"),
    [
        (nn.Dropout(0.1), "native_dropout", 1),
        (nn.RMSNorm(16), "rms_norm", 1),
        (nn.LSTM(16, 32, 2, batch_first=True), "rnn", 1),
        (nn.GRU(16, 32, bidirectional=True), "rnn", 1),
        (nn.RNN(16, 32), "rnn", 1),
    ],
    ids=["dropout", "rms_norm", "lstm", "gru", "rnn"],
)
def test_layers_that_are_one_kernel_on_a_gpu(layer, name, count):
    """A CPU build takes these apart; the graph has them whole, forward and backward."""

    def loss(out):
        return (out[0] if isinstance(out, tuple) else out).sum()

    graph = capture_module(
        layer, torch.randn(4, 8, 16, requires_grad=True), mode="train", loss=loss
    )
    aten = [op.aten.split(".")[1] for op in graph.ops]
    assert aten.count(name) == count
    assert aten.count(f"{name}_backward") == count
    assert not {"bernoulli_", "rsqrt", "sigmoid", "tanh"} & set(aten)


@pytest.mark.parametrize(
    ("layer", "shape", "names"),
    [
        (nn.SiLU(), (2, 4), ["silu", "silu_backward"]),
        (nn.Mish(), (2, 4), ["mish", "mish_backward"]),
        (
            nn.Upsample(scale_factor=2),
            (1, 1, 4, 4),
            ["upsample_nearest2d", "upsample_nearest2d_backward"],
        ),
        (nn.BatchNorm2d(3), (2, 3, 4, 4), ["native_batch_norm", "native_batch_norm_backward"]),
    ],
    ids=["silu", "mish", "upsample", "batch_norm"],
)
def test_ops_with_a_kernel_of_their_own_stay_whole(layer, shape, names):
    """Torch could take these apart, and does not: each is one kernel."""
    x = torch.randn(shape, requires_grad=True)
    graph = capture_module(layer, x, mode="train", loss=lambda out: out.sum())
    aten = [op.aten.split(".")[1] for op in graph.ops]
    assert [aten.count(name) for name in names] == [1, 1]
    assert not {"sigmoid", "index", "rsqrt"} & set(aten)
