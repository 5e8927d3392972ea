"""Ops that torch refuses for operands of two dtypes are refused, where they stand, not priced."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from rooftile.capture.mixed import ONE_DTYPE, WITH_FLOAT32
from rooftile.capture.module import capture_module
from rooftile.errors import TargetError

PLACES = torch.tensor([0, 1])


def ones(dtype, *shape):
    return torch.ones(*shape, dtype=dtype)


# Each on operands of a first and a second dtype.
CALLS = {
    "mm": lambda a, b: ones(a, 4, 4) @ ones(b, 4, 4),
    "bmm": lambda a, b: ones(a, 2, 4, 4) @ ones(b, 2, 4, 4),
    "mv": lambda a, b: ones(a, 4, 4) @ ones(b, 4),
    "dot": lambda a, b: ones(a, 4) @ ones(b, 4),
    "vdot": lambda a, b: torch.vdot(ones(a, 4), ones(b, 4)),
    "addmm": lambda a, b: torch.addmm(ones(a, 4), ones(a, 4, 4), ones(b, 4, 4)),
    "addmm's bias": lambda a, b: torch.addmm(ones(b, 4), ones(a, 4, 4), ones(a, 4, 4)),
    "addmv": lambda a, b: torch.addmv(ones(a, 4), ones(a, 4, 4), ones(b, 4)),
    "addbmm": lambda a, b: torch.addbmm(ones(a, 4, 4), ones(a, 2, 4, 4), ones(b, 2, 4, 4)),
    "baddbmm": lambda a, b: torch.baddbmm(ones(a, 2, 4, 4), ones(a, 2, 4, 4), ones(b, 2, 4, 4)),
    "linear": lambda a, b: F.linear(ones(a, 2, 4, 4), ones(b, 4, 4), ones(b, 4)),
    "grouped_mm": lambda a, b: F.grouped_mm(ones(a, 2, 16, 16), ones(b, 2, 16, 16)),
    "conv1d": lambda a, b: F.conv1d(ones(a, 1, 4, 8), ones(b, 4, 4, 3)),
    "conv2d": lambda a, b: F.conv2d(ones(a, 1, 4, 8, 8), ones(b, 4, 4, 3, 3)),
    "conv_transpose2d": lambda a, b: F.conv_transpose2d(ones(a, 1, 4, 8, 8), ones(b, 4, 4, 3, 3)),
    "attention": lambda a, b: F.scaled_dot_product_attention(
        ones(a, 1, 2, 4, 8), ones(b, 1, 2, 4, 8), ones(b, 1, 2, 4, 8)
    ),
    "nll_loss": lambda a, b: F.nll_loss(ones(a, 2, 8), PLACES, weight=ones(b, 8)),
    "nll_loss2d": lambda a, b: F.nll_loss(
        ones(a, 1, 3, 1, 2), PLACES.view(1, 1, 2), weight=ones(b, 3)
    ),
    "grid_sample": lambda a, b: F.grid_sample(ones(a, 1, 1, 4, 4), ones(b, 1, 2, 2, 2)),
    "grid_sample3d": lambda a, b: F.grid_sample(ones(a, 1, 1, 4, 4, 4), ones(b, 1, 2, 2, 2, 3)),
    "index_put": lambda a, b: ones(a, 4).index_put((PLACES,), ones(b, 2)),
    "assignment": lambda a, b: ones(a, 4).__setitem__(PLACES, ones(b, 2)),
    "index_add": lambda a, b: ones(a, 4).index_add(0, PLACES, ones(b, 2)),
    "index_copy": lambda a, b: ones(a, 4).index_copy(0, PLACES, ones(b, 2)),
    "index_reduce": lambda a, b: ones(a, 4).index_reduce(0, PLACES, ones(b, 2), "prod"),
    "put": lambda a, b: ones(a, 4).put_(PLACES, ones(b, 2)),
    "cross": lambda a, b: torch.linalg.cross(ones(a, 4, 3), ones(b, 4, 3)),
    "cdist": lambda a, b: torch.cdist(ones(a, 4, 4), ones(b, 4, 4)),
    "binary_cross_entropy": lambda a, b: F.binary_cross_entropy(ones(a, 4), ones(b, 4)),
    "embedding_bag": lambda a, b: F.embedding_bag(
        PLACES.view(1, 2), ones(a, 4, 4), per_sample_weights=ones(b, 1, 2), mode="sum"
    ),
}
NORMS = {
    "layer_norm": lambda a, b: F.layer_norm(ones(a, 4, 8), (8,), ones(b, 8), ones(b, 8)),
    "layer_norm's bias": lambda a, b: F.layer_norm(ones(a, 4, 8), (8,), ones(a, 8), ones(b, 8)),
    "group_norm": lambda a, b: F.group_norm(ones(a, 4, 8), 2, ones(b, 8), ones(b, 8)),
    "batch_norm": lambda a, b: F.batch_norm(ones(a, 4, 8), *(ones(b, 8) for _ in range(4))),
    "batch_norm in training": lambda a, b: F.batch_norm(
        ones(a, 4, 8), *(ones(b, 8) for _ in range(4)), training=True
    ),
}


class Calls(nn.Module):
    """One call, or anything else to do, in a forward."""

    def __init__(self, call):
        super().__init__()
        self.call = call

    def forward(self, x):
        self.call()
        return x


def capture(call):
    return capture_module(Calls(call), torch.zeros(1))


def answer(call, first, second):
    """What a call says to two dtypes: the words of its error, or nothing."""
    try:
        call(first, second)
    except (RuntimeError, NotImplementedError) as error:
        return str(error)
    return ""


F32, BF16, F16 = torch.float32, torch.bfloat16, torch.float16
PAIRS = ((F32, BF16), (F32, F16), (BF16, F32), (F32, F32), (BF16, BF16))


@pytest.fixture(scope="module")
def answers():
    """What each call says to each pair of dtypes within a capture: one capture of them all."""
    found = {}

    def everything():
        for name, call in {**CALLS, **NORMS}.items():
            found.update({(name, *pair): answer(call, *pair) for pair in PAIRS})

    capture(everything)
    return found


@pytest.mark.parametrize("name", [*CALLS, *NORMS])
@pytest.mark.parametrize("other", [BF16, F16])
def test_what_torch_refuses_is_refused(name, other, answers):
    """float32 beside a 16-bit float: torch itself raises on this machine, so must the capture."""
    assert answer({**CALLS, **NORMS}[name], F32, other)
    assert "dtype" in answers[name, F32, other]
    assert answers[name, F32, F32] == ""


@pytest.mark.parametrize("name", CALLS)
def test_either_way_round(name, answers):
    """The 16-bit operand may be the first."""
    assert answer(CALLS[name], BF16, F32)
    assert "dtype" in answers[name, BF16, F32]
    assert answers[name, BF16, BF16] == ""


def test_a_norms_parameters_are_of_one_dtype(answers):
    """Neither the input's dtype nor float32 may be that of one parameter alone."""
    name = "layer_norm's bias"
    assert answer(NORMS[name], BF16, F32)
    assert "dtype" in answers[name, BF16, F32]


@pytest.mark.parametrize("name", [name for name in NORMS if "bias" not in name])
def test_a_norm_may_keep_its_parameters_in_float32(name, answers):
    """Torch takes a 16-bit input beside float32 parameters."""
    assert answer(NORMS[name], BF16, F32) == ""
    assert answers[name, BF16, F32] == ""


@pytest.mark.parametrize(
    "call",
    [
        lambda: ones(torch.float32, 4) + ones(torch.bfloat16, 4),
        lambda: torch.outer(ones(torch.float32, 4), ones(torch.bfloat16, 4)),
        lambda: F.mse_loss(ones(torch.float32, 4), ones(torch.bfloat16, 4)),
        lambda: torch.cat([ones(torch.float32, 4), ones(torch.bfloat16, 4)]),
        lambda: F.rms_norm(ones(torch.bfloat16, 4, 8), (8,), ones(torch.float32, 8)),
        lambda: ones(torch.float32, 4).copy_(ones(torch.bfloat16, 4)),
    ],
    ids=["add", "outer", "mse_loss", "cat", "rms_norm", "copy_"],
)
def test_what_torch_promotes_is_priced(call):
    """Type promotion is no mistake."""
    call()
    assert capture(call).ops


def test_the_message_says_where_and_what():
    """The op, the line, the module, each operand's dtype, and what to do; the user's traceback."""

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(4, 4, dtype=torch.bfloat16)

        def forward(self, x):
            return self.fc(x)  # here

    line = Model.forward.__code__.co_firstlineno + 1
    with pytest.raises(TargetError) as caught:
        capture_module(Model(), torch.zeros(2, 4))
    message = str(caught.value)
    assert f"test_mixed.py:{line} (module fc)" in message
    assert "addmm " in message
    assert "self bfloat16, mat1 float32, mat2 bfloat16" in message
    assert "convert" in message
    assert "autocast" in message
    assert "return self.fc(x)  # here" in caught.value.traceback
    assert "rooftile/capture" not in caught.value.traceback


def test_a_backward_of_ones_own_is_read_too():
    """A product of two dtypes in a backward is refused at its own line."""

    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, weight):
            ctx.save_for_backward(weight)
            return x @ weight

        @staticmethod
        def backward(ctx, grad):
            (weight,) = ctx.saved_tensors
            return grad.bfloat16() @ weight.t(), None

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(4, 4))
            self.scale = nn.Parameter(torch.ones(4))

        def forward(self, x):
            return Twice.apply(x * self.scale, self.weight).sum()

    line = Twice.backward.__code__.co_firstlineno + 3
    with pytest.raises(TargetError, match=rf"test_mixed\.py:{line}.*self bfloat16, mat2 float32"):
        capture_module(Model(), torch.zeros(2, 4), mode="train")


def test_the_users_own_answer_to_it_counts():
    """It is torch's kind of error: code that catches it and converts goes on, as it would there."""

    def careful():
        x, weight = ones(torch.float32, 4, 4), ones(torch.bfloat16, 4, 4)
        try:
            return x @ weight
        except RuntimeError:
            return x @ weight.float()

    names = [op.name for op in capture(careful).ops]
    assert names.count("mm") == 1
    assert "copy" in names


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_autocast_makes_them_one(device):
    """A float32 input and a bfloat16 weight are a product in bfloat16 under autocast."""

    def call():
        with torch.autocast(device, dtype=torch.bfloat16):
            return F.linear(ones(torch.float32, 4, 4), ones(torch.bfloat16, 4, 4))

    (product,) = [op for op in capture(call).ops if op.name == "mm"]
    assert [o.tensor.dtype for o in product.inputs] == ["bfloat16"] * 2


@pytest.mark.parametrize(
    "function",
    [
        lambda a, b: torch.dot(ones(a, 4), ones(b, 4)),
        lambda a, b: torch.cross(ones(a, 4, 3), ones(b, 4, 3), dim=1),
        lambda a, b: ones(a, 4).scatter_add(0, PLACES, ones(b, 2)),
        CALLS["vdot"],
        CALLS["grid_sample"],
        CALLS["index_put"],
    ],
    ids=["dot", "cross", "scatter_add", "vdot", "grid_sample", "index_put"],
)
def test_cuda_autocast_promotes_these(function):
    """Torch's list of ops that CUDA's autocast runs in the widest dtype among their operands."""
    dtypes = []

    def call():
        with torch.autocast("cuda", dtype=BF16):
            dtypes.extend(function(*pair).dtype for pair in ((F32, BF16), (BF16, F32)))
            dtypes.append(function(BF16, BF16).dtype)

    copies = [op for op in capture(call).ops if op.name == "copy"]
    assert dtypes == [F32, F32, BF16]
    assert [op.outputs[0].dtype for op in copies if op.outputs] == ["float32"] * 2


def test_cuda_autocast_leaves_an_assignment_alone():
    """``x[i] = y`` is on none of its lists: two dtypes are refused there as elsewhere."""

    def call():
        with torch.autocast("cuda", dtype=torch.bfloat16):
            CALLS["assignment"](torch.float32, torch.bfloat16)

    with pytest.raises(TargetError, match=r"self float32, values bfloat16"):
        capture(call)


@pytest.mark.parametrize("base", [*ONE_DTYPE, *WITH_FLOAT32])
def test_the_tables_name_torchs_arguments(base):
    """A misspelt op or argument would never be looked at."""
    packet = getattr(torch.ops.aten, base)
    names = {a.name for o in packet.overloads() for a in getattr(packet, o)._schema.arguments}
    assert set({**ONE_DTYPE, **WITH_FLOAT32}[base]) <= names
