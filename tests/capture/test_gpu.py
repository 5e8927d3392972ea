"""A capture without a GPU records what a GPU would run."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from rooftile.capture.module import capture_module
from rooftile.capture.target import capture_target
from rooftile.cost.graph import price

PREAMBLE = "import torch\nfrom torch import nn\ndef make():\n"


def find(graph, name):
    return [op for op in graph.ops if op.name == name]


def training(layer, x, **options):
    x.requires_grad_()
    return capture_module(layer, x, mode="train", loss=lambda out: out.sum(), **options)


@pytest.mark.parametrize("name", ["layer_norm", "batch_norm"])
def test_statistics_are_float32_on_a_gpu(name):
    """Of a bfloat16 input: out 16 x 4 of 2 bytes; mean and 1/std of 4 bytes a row, or a column."""
    layer, count = (nn.LayerNorm(4), 16) if name == "layer_norm" else (nn.BatchNorm1d(4), 4)
    graph = training(layer, torch.zeros(16, 4), dtype="bfloat16")
    (forward,), (backward,) = find(graph, name), find(graph, f"{name}_backward")
    assert [t.dtype for t in forward.outputs] == ["bfloat16", "float32", "float32"]
    running = 0 if name == "layer_norm" else 2 * 4 * 2  # running mean and variance, here bfloat16
    assert price(forward).write_bytes == 16 * 4 * 2 + 2 * count * 4 + running
    saved = [o.tensor for o in backward.inputs if o.tensor.dtype == "float32"]
    assert [t.numel for t in saved] == [count, count]


@pytest.mark.parametrize("function", [F.softmax, F.log_softmax])
def test_a_softmax_into_float32_is_one_kernel(function):
    """From float16 it reads 2 bytes and writes 4; from bfloat16 torch converts first."""

    class Model(nn.Module):
        def forward(self, x):
            return function(x, -1, dtype=torch.float32)

    (op,) = capture_module(Model(), torch.zeros(2, 8, dtype=torch.float16)).ops
    assert (price(op).read_bytes, price(op).write_bytes) == (32, 64)
    two = capture_module(Model(), torch.zeros(2, 8, dtype=torch.bfloat16)).ops
    assert [op.name for op in two] == ["copy", op.name]
    (plain,) = capture_module(nn.Softmax(-1), torch.zeros(2, 8)).ops
    assert plain.name == "softmax"


def test_log_sigmoid_keeps_nothing():
    """8 floats in and 8 out; the backward reads the input and the gradient alone."""
    graph = training(nn.LogSigmoid(), torch.zeros(2, 4))
    (forward,), (backward,) = find(graph, "log_sigmoid"), find(graph, "log_sigmoid_backward")
    assert (price(forward).read_bytes, price(forward).write_bytes) == (32, 32)
    # the gradient is one expanded number, and what a buffer would hold is not there
    assert price(backward).read_bytes == 32 + 4


@pytest.mark.parametrize(
    ("cell", "gates", "name"), [(nn.LSTMCell, 4, "lstm_gates"), (nn.GRUCell, 3, "gru_gates")]
)
def test_a_cell_is_two_products_and_one_kernel(cell, gates, name):
    """2 rows from 4 to 8 wide: 2 * 2 * (4 + 8) * gates * 8 FLOP; backward twice that."""

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell = cell(4, 8)

        def forward(self, x):
            out = self.cell(x)
            return out[0] if isinstance(out, tuple) else out

    graph = training(Model(), torch.zeros(2, 4))
    assert len(find(graph, name)) == len(find(graph, f"{name}_backward")) == 1
    seen = {op.name for op in graph.ops}
    assert not {"sigmoid", "tanh", "tanh_backward", "chunk"} & seen
    flops = dict.fromkeys(("forward", "backward"), 0)
    for op in graph.ops:
        flops[op.phase] += price(op).matrix_flops
    forward = 2 * 2 * (4 + 8) * gates * 8
    # the old state is no parameter: no gradient of it is made
    assert flops == {"forward": forward, "backward": 2 * forward - 2 * 2 * 8 * gates * 8}


class Autocast(nn.Module):
    """One op under CUDA's autocast, on the bfloat16 result of a product."""

    def __init__(self, function):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.function = function

    def forward(self, x):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            return self.function(self.linear(x))


@pytest.mark.parametrize(
    "function",
    [
        lambda y: y.softmax(-1),
        lambda y: F.log_softmax(y, 1),
        lambda y: F.layer_norm(y, (4,)),
        lambda y: y.exp(),
        lambda y: y.pow(2),
        lambda y: y.sum(),
        lambda y: y.sum(0, keepdim=True),
        lambda y: y.cumsum(0),
        lambda y: y.prod(),
        lambda y: F.mse_loss(y, y),
        lambda y: F.softplus(y),
        lambda y: F.cross_entropy(y, torch.zeros(2, dtype=torch.int64)),
    ],
    ids=["softmax", "log_softmax", "layer_norm", "exp", "pow", "sum", "sum dim", "cumsum", "prod",
         "mse", "softplus", "cross_entropy"],
)  # fmt: skip
def test_cuda_autocast_keeps_these_in_float32(function):
    """The product runs in bfloat16, what is on CUDA's list in float32, and it is said."""
    graph = capture_module(Autocast(function), torch.zeros(2, 4))
    (product,) = find(graph, "addmm")
    assert product.outputs[0].dtype == "bfloat16"
    assert graph.ops[-1].outputs[0].dtype == "float32"
    assert any("CUDA's list" in line for line in graph.assumptions)


@pytest.mark.parametrize(
    "function", [F.gelu, F.relu, torch.sigmoid, lambda y: y @ y.t(), lambda y: y + y]
)
def test_cuda_autocast_leaves_the_rest(function):
    """Activations and products stay in bfloat16."""
    graph = capture_module(Autocast(function), torch.zeros(2, 4))
    assert graph.ops[-1].outputs[0].dtype == "bfloat16"


def test_autocast_of_the_cpu_is_as_it_was():
    """After a capture the CPU's own list is torch's again, and it keeps softmax in bfloat16."""
    capture_module(Autocast(torch.exp), torch.zeros(2, 4))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = torch.zeros(2, 2) @ torch.zeros(2, 2)
        assert y.exp().dtype == torch.bfloat16


@pytest.mark.parametrize(
    "line",
    [
        "torch.cuda.synchronize()",
        "assert torch.cuda.current_device() == 0",
        "assert torch.cuda.get_device_capability() >= (8, 0)",
        "assert torch.cuda.get_device_properties(0).multi_processor_count == 132",
        "torch.rand(2, generator=torch.Generator('cuda'))",
        "torch.cuda.Event(enable_timing=True).record()",
        "torch.cuda.current_stream().wait_stream(torch.cuda.Stream())",
        "torch.cuda.manual_seed(1); torch.cuda.empty_cache(); torch.cuda.reset_peak_memory_stats()",
        "torch.cuda.nvtx.range_push('a'); torch.cuda.nvtx.range_pop()",
    ],
)
def test_a_target_may_speak_to_a_gpu(tmp_path, line):
    """Each of these is answered or passed over, and torch is as before afterwards."""
    before = torch.cuda.synchronize, torch.Generator, torch.cuda.Stream
    path = tmp_path / "target.py"
    path.write_text(f"{PREAMBLE}    {line}\n    return nn.Linear(4, 4), torch.zeros(2, 4)\n")
    assert find(capture_target(f"{path}:make"), "addmm")
    assert (torch.cuda.synchronize, torch.Generator, torch.cuda.Stream) == before


@pytest.mark.parametrize(
    "context", ["torch.device('cuda')", "torch.cuda.stream(torch.cuda.Stream())",
                "torch.cuda.device(0)"]
)  # fmt: skip
def test_a_target_may_build_within_a_gpu(tmp_path, context):
    """A model is built under `with torch.device("cuda")` and its kind."""
    path = tmp_path / "target.py"
    path.write_text(
        f"{PREAMBLE}    with {context}:\n        model, x = nn.Linear(4, 4), torch.zeros(2, 4)\n"
        "    return model, x\n"
    )
    assert find(capture_target(f"{path}:make"), "addmm")


def test_an_encoder_with_padding():
    """The fused layer over all tokens, twice; what is not followed is said."""

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True)
            self.encoder = nn.TransformerEncoder(layer, 2)

        def forward(self, x, padding):
            return self.encoder(x, src_key_padding_mask=padding)

    padding = torch.zeros(2, 8, dtype=torch.bool)
    padding[0, 6:] = True
    graph = capture_module(Model(), (torch.zeros(2, 8, 16), padding))
    assert len(find(graph, "transformer_encoder_layer")) == 2
    assert any("padding" in line for line in graph.assumptions)


@pytest.mark.parametrize("optimizer", ["none", "sgd"])
def test_sparse_gradients_of_an_embedding(optimizer):
    """The gradient is its rows' values: a step with and without the update runs."""

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(1000, 4, sparse=True)

        def forward(self, index):
            return self.table(index).sum()

    index = torch.zeros(2, 3, dtype=torch.int64)
    graph = capture_module(Model(), index, mode="train", optimizer=optimizer)
    assert ("optimizer" in {op.phase for op in graph.ops}) is (optimizer == "sgd")


def test_regions_of_an_exported_program_keep_their_lines(tmp_path):
    """Ops under `no_grad` and `autocast` bear module and line as all others."""

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(8, 8)

        def forward(self, x):
            with torch.no_grad():
                y = self.linear(x)
            with torch.autocast("cpu", dtype=torch.bfloat16):
                z = self.linear(y)
            return z.sum()

    path = tmp_path / "program.pt2"
    torch.export.save(torch.export.export(Model(), (torch.zeros(2, 8),)), path)
    graph = capture_target(str(path))
    first, second = find(graph, "addmm")
    assert first.module == second.module == "linear"
    lines = [int(op.line.rpartition(":")[2]) for op in (first, second)]
    assert lines[1] == lines[0] + 2
