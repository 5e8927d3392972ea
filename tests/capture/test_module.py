"""A live model as a graph: what a GPU would run, whose line it is, and nothing left behind."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from rooftile.capture.module import capture_module


def names(graph):
    return [op.name for op in graph.ops]


def find(graph, name):
    return [op for op in graph.ops if op.name == name]


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
