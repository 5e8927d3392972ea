"""A live model as a graph: what a GPU would run, whose line it is, and nothing left behind."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from rooftile.capture.module import capture_module
from rooftile.errors import InputError, TargetError


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


def test_checkpointed_ops_are_recomputed_under_their_own_line():
    """The second run of a checkpointed block stands in the backward, with module and line."""

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(4, 4)

        def forward(self, x):
            return checkpoint(lambda t: F.gelu(self.inner(t)), x, use_reentrant=False).sum()

    graph = capture_module(Block(), torch.randn(2, 4), mode="train")
    first, second = find(graph, "addmm")
    assert (first.phase, second.phase) == ("forward", "backward")
    assert first.module == second.module == "inner"
    assert first.line == second.line
    assert "test_module.py" in first.line


def test_backward_ops_bear_their_forward_line():
    """Each backward op points at the line that made it, not at a line without a gradient."""

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Linear(4, 4, bias=False)

        def forward(self, x):
            y = self.first(x)
            keep = torch.arange(4) > 1  # no gradient: draws no number
            z = F.gelu(y)
            return (z * keep).sum()

    graph = capture_module(Model(), torch.randn(2, 4), mode="train")
    (gelu,) = find(graph, "gelu")
    (gelu_backward,) = find(graph, "gelu_backward")
    assert gelu_backward.line == gelu.line
    forward, backward = find(graph, "mm")
    assert backward.line == forward.line
    assert backward.module == "first"


def test_a_custom_function_keeps_its_own_lines():
    """Ops written out in a user's backward bear the lines of that backward."""

    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            return grad * 2 * x

    class Model(nn.Module):
        def forward(self, x):
            return Square.apply(x).sum()

    graph = capture_module(Model(), torch.randn(4, requires_grad=True), mode="train")
    lines = {op.phase: op.line for op in find(graph, "mul")}
    assert lines["forward"] != lines["backward"]
    assert all("test_module.py" in line for line in lines.values())


def test_code_that_asks_for_a_gpu():
    """`.cuda()`, `.to("cuda")` and `device="cuda"` work on a machine without one."""

    class Model(nn.Module):
        def forward(self, x):
            noise = torch.zeros(4, device="cuda:0")
            return x.cuda().to("cuda", torch.float16) + noise.to(torch.device("cuda"))

    zeros, to = torch.zeros, torch.Tensor.to
    graph = capture_module(Model(), torch.randn(4))
    assert "add" in names(graph)
    assert torch.zeros is zeros
    assert torch.Tensor.to is to


def test_compiled_model_is_captured_uncompiled():
    """What is counted is what the compiler was given, and that is said."""
    model = nn.Linear(4, 4)
    graph = capture_module(torch.compile(model), torch.randn(2, 4))
    assert "addmm" in names(graph)
    assert any("compiled" in note for note in graph.assumptions)


def test_nothing_stays_on_the_model():
    """cnt-13: weights, gradients, flags and hooks are as before, and a second count is the same."""
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.5))
    model.eval()
    weight, mean = model[0].weight, model[1].running_mean.clone()
    before = weight.detach().clone()

    def loss(out):
        return out.sum()

    graphs = [
        capture_module(model, torch.randn(2, 4), mode="train", loss=loss, optimizer="adamw")
        for _ in range(3)
    ]
    assert len({str(graph.ops) for graph in graphs}) == 1
    assert model[0].weight is weight
    assert weight.grad is None
    assert torch.equal(weight, before)
    assert torch.equal(model[1].running_mean, mean)
    assert not model.training
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
    expected = F.scaled_dot_product_attention(*(torch.ones(1, 1, 2, 2),) * 3)
    assert torch.equal(expected, torch.ones(1, 1, 2, 2))


def test_tied_weights_share_a_storage():
    """A tied head is one parameter: its storage is one, its gradient accumulates."""

    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(10, 4)
            self.head = nn.Linear(4, 10, bias=False)
            self.head.weight = self.embed.weight

        def forward(self, ids):
            return self.head(self.embed(ids)).sum()

    graph = capture_module(Tied(), torch.tensor([1, 2]), mode="train")
    (embedding,) = find(graph, "embedding")
    forward = find(graph, "mm")[0]
    assert embedding.operand("weight").storage == forward.operand("mat2").storage
    assert len(graph.parameters) == 1


@pytest.mark.parametrize("context", [torch.inference_mode, torch.no_grad, torch.enable_grad])
def test_inference_contexts_hide_nothing(context):
    """cnt-11: a forward under inference_mode or no_grad is recorded like any other."""

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(16, 32)

        def forward(self, x):
            with context():
                return F.scaled_dot_product_attention(*(self.linear(x)[None, None],) * 3)

    outside = capture_module(Model(), torch.randn(8, 16))
    assert [n for n in names(outside) if n in ("addmm", "attention")] == ["addmm", "attention"]


def test_in_place_and_out_say_what_is_read():
    """add_ reads and writes its target; copy_ and out= only write it."""

    class Model(nn.Module):
        def forward(self, x, y):
            x.add_(1)
            y.copy_(x)
            torch.add(x, x, out=y)
            return y

    graph = capture_module(Model(), (torch.zeros(4), torch.zeros(4)))
    add_, copy_, add_out = graph.ops
    assert [(o.reads, o.writes) for o in add_.inputs] == [(True, True)]
    assert [(o.role, o.reads, o.writes) for o in copy_.inputs] == [
        ("self", False, True),
        ("src", True, False),
    ]
    assert [(o.role, o.reads, o.writes) for o in add_out.inputs][-1] == ("out", False, True)
    assert add_.outputs == copy_.outputs == add_out.outputs == ()


def test_edges_join_readers_to_the_last_writer():
    """A view's readers are joined to the op that filled the storage under it."""

    class Model(nn.Module):
        def forward(self, x):
            y = x + 1
            z = y.t()
            y.mul_(2)
            return z.exp()

    graph = capture_module(Model(), torch.zeros(2, 2))
    by_name = {op.name: op.index for op in graph.ops}
    edges = {(e.producer, e.consumer) for e in graph.edges()}
    assert (by_name["add"], by_name["mul"]) in edges
    assert (by_name["mul"], by_name["exp"]) in edges
    assert (by_name["add"], by_name["exp"]) not in edges


def test_dtype_applies_to_weights_and_inputs():
    """Floating-point tensors are taken in the wanted dtype, integers stay."""
    graph = capture_module(nn.Linear(4, 4), torch.zeros(2, 4), dtype="bfloat16")
    (op,) = find(graph, "addmm")
    assert {t.dtype for t in (*op.reads, *op.outputs)} == {"bfloat16"}


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_optimizer_updates_every_parameter(optimizer):
    """One fused update over all parameters, in its own phase; gradients are only read."""

    def loss(out):
        return out.sum()

    graph = capture_module(
        nn.Linear(4, 4), torch.zeros(2, 4), mode="train", loss=loss, optimizer=optimizer
    )
    (op,) = [op for op in graph.ops if op.aten.startswith(f"aten._fused_{optimizer}_")]
    assert op.phase == "optimizer"
    assert [o.writes for o in op.inputs if o.role.startswith("self")] == [True, True]
    assert not any(o.writes for o in op.inputs if o.role.startswith("grads"))
    assert any("update" in note for note in graph.assumptions)


class Loss(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.kind = kind
        self.linear = nn.Linear(4, 1)

    def forward(self, x):
        out = self.linear(x)
        if self.kind == "scalar":
            return out.sum()
        if self.kind == "tuple":
            return out, out.sum()
        if self.kind == "object":
            return type("Output", (dict,), {"loss": out.sum()})(logits=out)
        return out


@pytest.mark.parametrize("kind", ["scalar", "tuple", "object"])
def test_loss_is_found_in_the_output(kind):
    """A scalar output, one scalar in a tuple, or an attribute .loss."""
    graph = capture_module(Loss(kind), torch.zeros(2, 4), mode="train")
    assert any(op.phase == "backward" for op in graph.ops)


def test_no_loss_says_what_is_accepted():
    """Without a loss the error names all three ways to give one."""
    with pytest.raises(TargetError, match=r"scalar tensor or have a \.loss, or .* callable"):
        capture_module(Loss("none"), torch.zeros(2, 4), mode="train")


def test_looking_at_values_is_explained():
    """`.item()` cannot work on shapes: the error says so and shows the user's line, not ours."""

    class Model(nn.Module):
        def forward(self, x):
            return x * x.sum().item()

    with pytest.raises(TargetError, match="looks at a tensor's values") as caught:
        capture_module(Model(), torch.zeros(2))
    assert "x.sum().item()" in caught.value.traceback
    assert "rooftile/capture" not in caught.value.traceback
    assert "fake_tensor.py" not in caught.value.traceback


def test_a_failing_forward_keeps_the_users_traceback():
    """The model's own error, with its line."""

    class Model(nn.Module):
        def forward(self, x):
            raise KeyError("missing")

    with pytest.raises(TargetError, match="KeyError: 'missing'") as caught:
        capture_module(Model(), torch.zeros(2))
    assert 'raise KeyError("missing")' in caught.value.traceback


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"mode": "evaluate"}, "mode must be one of infer, train, got 'evaluate'"),
        ({"optimizer": "lion"}, "optimizer must be one of none, sgd, adamw, got 'lion'"),
        ({"optimizer": "sgd"}, "optimizer 'sgd' needs mode 'train', got 'infer'"),
        ({"dtype": "int8"}, "dtype must be a floating-point dtype of torch, got 'int8'"),
    ],
)
def test_bad_arguments(arguments, message):
    """Each is named, with what was wanted and what came."""
    with pytest.raises(InputError, match=message):
        capture_module(nn.Linear(4, 4), torch.zeros(2, 4), **arguments)


def test_attention_refuses_shapes_that_torch_refuses():
    """The op that stands in for torch's checks shapes as torch does."""

    class Model(nn.Module):
        def forward(self, q, k):
            return F.scaled_dot_product_attention(q, k, k)

    with pytest.raises(TargetError, match="must match the size"):
        capture_module(Model(), (torch.zeros(1, 8, 4, 4), torch.zeros(1, 3, 4, 4)))
