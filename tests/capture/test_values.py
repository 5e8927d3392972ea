"""What stands in small tensors is known to a capture: masks, positions, rates."""

import pytest
import torch
from torch import nn

from rooftile.capture.module import capture_module
from rooftile.capture.target import capture_target
from rooftile.errors import InputError, TargetError

transformers = pytest.importorskip("transformers")

BATCH, SEQ, HEADS, KV_HEADS, WIDTH = 2, 16, 8, 2, 8


def llama(**settings):
    config = transformers.LlamaConfig(
        hidden_size=HEADS * WIDTH, intermediate_size=128, num_hidden_layers=2,
        num_attention_heads=HEADS, num_key_value_heads=KV_HEADS, vocab_size=100, **settings,
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config)


def ids():
    return torch.zeros(BATCH, SEQ, dtype=torch.int64)


def attentions(graph):
    """Each call's causal flag, whether it has a mask, and its key-value heads."""
    return [
        (op.attrs["is_causal"], op.operand("attn_bias") is not None, op.operand("key").shape[1])
        for op in graph.ops
        if op.name == "attention"
    ]


PLAIN = [(True, False, KV_HEADS)] * 2
MASKED = [(False, True, HEADS)] * 2


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"use_cache": False},
        {"attention_mask": torch.ones(BATCH, SEQ, dtype=torch.int64)},
        {"attention_mask": torch.ones(BATCH, SEQ)},
        {"attention_mask": torch.ones(BATCH, SEQ, dtype=torch.bool), "use_cache": False},
        {"position_ids": torch.arange(SEQ)[None], "use_cache": False},
    ],
    ids=["cache", "no cache", "ones", "float ones", "flags", "positions"],
)
def test_a_live_transformers_model_keeps_causality_and_its_key_value_heads(given):
    """Nothing is hidden: attention is causal by its flag, without a mask, with 2 KV heads."""
    graph = capture_module(llama(), {"input_ids": ids(), **given})
    assert attentions(graph) == PLAIN


def test_a_checkpointed_transformers_model_keeps_them_too():
    """The forward and its second run in the backward."""
    model = llama()
    model.gradient_checkpointing_enable()
    given = {"input_ids": ids(), "labels": ids(), "use_cache": False}
    assert attentions(capture_module(model, given, mode="train")) == PLAIN * 2


@pytest.mark.parametrize("mask", ["torch.ones(2, 16)", "torch.ones(2, 16, dtype=torch.int64)"])
def test_a_target_whose_mask_is_made_without_memory(tmp_path, mask):
    """The target's own `torch.ones` is known, although it is a fake tensor."""
    path = tmp_path / "target.py"
    path.write_text(
        "import torch\nfrom transformers import LlamaConfig, LlamaForCausalLM\n"
        "def make():\n"
        "    config = LlamaConfig(hidden_size=64, intermediate_size=128, num_hidden_layers=2,\n"
        "                         num_attention_heads=8, num_key_value_heads=2, vocab_size=100)\n"
        "    ids = torch.zeros(2, 16, dtype=torch.int64)\n"
        f"    given = dict(input_ids=ids, attention_mask={mask}, use_cache=False)\n"
        "    return LlamaForCausalLM(config), given\n"
    )
    assert attentions(capture_target(f"{path}:make")) == PLAIN


def test_padding_stays_a_mask_and_is_said():
    """Attention under padding runs with a mask over all pairs, on repeated heads, as on a GPU."""
    mask = torch.ones(BATCH, SEQ, dtype=torch.int64)
    mask[0, :3] = 0
    graph = capture_module(llama(), {"input_ids": ids(), "attention_mask": mask})
    assert attentions(graph) == MASKED
    assert any("mask tensor" in line for line in graph.assumptions)


def test_packed_sequences_stay_a_mask():
    """Positions that start again in the middle of a row keep the two sequences apart."""
    positions = torch.tensor([[*range(8), *range(8)]] * BATCH)
    graph = capture_module(
        llama(), {"input_ids": ids(), "position_ids": positions, "use_cache": False}
    )
    assert attentions(graph) == MASKED


def test_a_constructor_may_read_what_it_made(tmp_path):
    """Rates of stochastic depth are read off a `linspace`."""
    path = tmp_path / "target.py"
    path.write_text(
        "import torch\nfrom torch import nn\n"
        "def make():\n"
        "    rates = [r.item() for r in torch.linspace(0, 0.5, 3)]\n"
        "    assert rates == [0.0, 0.25, 0.5], rates\n"
        "    width = int(torch.tensor([2, 3]).prod())\n"
        "    sizes = torch.ones(3, dtype=torch.int64).cumsum(0).tolist()\n"
        "    return nn.Linear(width, sizes[-1]), torch.zeros(2, width)\n"
    )
    (op,) = [o for o in capture_target(f"{path}:make").ops if o.name == "addmm"]
    assert op.operand("mat2").shape == (6, 3)


class Select(nn.Module):
    """Rows of x by flags."""

    def forward(self, x, flags):
        return x[flags]


def test_rows_by_known_flags():
    """Three of four rows of 5 floats are taken: the mask says how many."""
    flags = torch.tensor([True, False, True, True])
    graph = capture_module(Select(), (torch.zeros(4, 5), flags))
    (op,) = [op for op in graph.ops if op.name == "index"]
    assert op.outputs[0].shape == (3, 5)
    assert "nonzero" in {op.name for op in graph.ops}


def test_a_tensor_written_with_something_unknown_is_unknown():
    """What was ones is not after data went into it: reading it is refused."""

    class Model(nn.Module):
        def forward(self, x):
            counts = torch.ones(4)
            counts.add_(x)
            return x * counts.sum().item()

    with pytest.raises(TargetError, match="looks at a tensor's values"):
        capture_module(Model(), torch.zeros(4))


def test_a_write_in_place_is_followed_and_the_users_tensor_kept():
    """A counter of 1 is 2 and, through a view, 4 within; the user's own is 1 afterwards."""

    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("steps", torch.tensor([1]))

        def forward(self, x):
            self.steps += 1
            self.steps[:1].add_(self.steps)
            return x.new_empty(int(self.steps))

    model = Counting()
    graph = capture_module(model, torch.zeros(1))
    (op,) = [op for op in graph.ops if op.name == "empty"]
    assert op.outputs[0].shape == (4,)
    assert model.steps.item() == 1


class Add(nn.Module):
    """x + y."""

    def forward(self, x, y):
        return torch.add(x, y)


@pytest.mark.parametrize("dtype", [None, "bfloat16"])
def test_inputs_that_share_memory_share_it_in_the_graph(dtype):
    """z and z.t() are one storage; so are a tensor and a slice of it."""
    z = torch.zeros(8, 8)
    for other in (z.t(), z[:1], z.view(8, 8)):
        (op,) = capture_module(Add(), (z, other), dtype=dtype).ops
        assert op.inputs[0].tensor.storage == op.inputs[1].tensor.storage
    (op,) = capture_module(Add(), (z, torch.zeros(8, 8)), dtype=dtype).ops
    assert op.inputs[0].tensor.storage != op.inputs[1].tensor.storage


def test_a_slice_keeps_its_place():
    """The second half of 64 floats starts at element 32."""
    z = torch.zeros(64)
    (op,) = capture_module(Add(), (z[:32], z[32:])).ops
    assert [o.tensor.offset for o in op.inputs] == [0, 32]


def test_a_view_of_a_weight_shares_its_storage(tmp_path):
    """Every `t` of a weight names the weight, in a model built without memory as in a real one."""
    path = tmp_path / "target.py"
    path.write_text(
        "import torch\nfrom torch import nn\n"
        "def make():\n    return nn.Linear(4, 4), torch.zeros(2, 4)\n"
    )
    for graph in (
        capture_target(f"{path}:make"),
        capture_module(nn.Linear(4, 4), torch.zeros(2, 4)),
        capture_module(nn.Linear(4, 4, device="meta"), torch.zeros(2, 4)),
    ):
        (transposed,) = [op for op in graph.ops if op.aten == "aten.t.default"]
        assert transposed.outputs[0].storage == transposed.inputs[0].tensor.storage
        assert graph.parameters[transposed.outputs[0].storage] == "weight"


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        (torch.eye(4).to_sparse(), "sparse_coo"),
        (torch.eye(4).to_sparse_csr(), "sparse_csr"),
        (torch.nested.nested_tensor([torch.zeros(2, 4), torch.zeros(3, 4)]), "nested"),
        (
            torch.nested.nested_tensor([torch.zeros(2, 4), torch.zeros(3, 4)], layout=torch.jagged),
            "nested",
        ),
    ],
    ids=["coo", "csr", "nested", "jagged"],
)
@pytest.mark.filterwarnings("ignore")
def test_inputs_of_another_layout_are_refused(given, kind):
    """The error says that tensors must be dense, and of what kind this one is."""
    with pytest.raises(InputError, match=rf"must be dense \(torch.strided\), got a {kind} one"):
        capture_module(nn.ReLU(), given)
