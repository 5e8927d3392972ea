"""Targets as a user names them: the forms that work and the errors of those that do not."""

import json
import sys
import textwrap

import pytest
import torch
from torch import nn

from rooftile.capture.target import capture_target
from rooftile.errors import FileFormatError, InputError, TargetError

LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "vocab_size": 128,
    "max_position_embeddings": 64,
    "torch_dtype": "bfloat16",
}


@pytest.fixture
def script(tmp_path):
    """Write a target file and give its path."""

    def write(body):
        path = tmp_path / "target.py"
        path.write_text("import torch\nfrom torch import nn\n" + textwrap.dedent(body))
        return str(path)

    return write


@pytest.fixture
def config(tmp_path):
    """Write a config.json, changed as asked, and give its path."""

    def write(**changes):
        path = tmp_path / "config.json"
        settings = {k: v for k, v in {**LLAMA, **changes}.items() if v is not None}
        path.write_text(json.dumps(settings))
        return str(path)

    return write


def test_a_file_with_a_callable(script):
    """It gets batch and seq where it has such parameters; weights are never made."""
    path = script(
        """
        def make(batch=1):
            model = nn.Linear(200_000, 200_000)  # 160 GB, if it were real
            nn.init.trunc_normal_(model.weight)
            return model, torch.randn(batch, 200_000, device="cuda")
        """
    )
    graph = capture_target(f"{path}:make", batch=3)
    (op,) = [op for op in graph.ops if op.name == "addmm"]
    assert op.operand("mat1").shape == (3, 200_000)
    assert graph.target == f"{path}:make"


def test_a_module_with_a_callable(script, tmp_path, monkeypatch):
    """package.module:callable is found from the current folder."""
    script("def make():\n    return nn.ReLU(), torch.zeros(4)\n")
    (tmp_path / "target.py").rename(tmp_path / "importable_target.py")
    monkeypatch.chdir(tmp_path)
    graph = capture_target("importable_target:make")
    assert [op.name for op in graph.ops] == ["relu"]
    assert graph.ops[0].line == ""  # nothing of the user's runs: the module is torch's own


def test_keyword_inputs_and_a_loss(script):
    """A mapping is passed by keyword, the third value makes the loss."""
    path = script(
        """
        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.linear = nn.Linear(4, 4)
            def forward(self, *, x):
                return self.linear(x)
        def make():
            return Model(), {"x": torch.zeros(2, 4)}, lambda out: out.sum()
        """
    )
    graph = capture_target(f"{path}:make", mode="train")
    assert {op.phase for op in graph.ops} == {"forward", "backward"}


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("missing.py:make", "target file 'missing.py' does not exist in "),
        ("no_such_package.module:make", "no module 'no_such_package.module'"),
        ("nothing", "must be file.py:callable"),
        ("missing.pt2", "no such file"),
        ("missing.json", "no such file"),
    ],
)
def test_targets_that_do_not_exist(target, message):
    """Each says what was looked for."""
    with pytest.raises(InputError, match=message):
        capture_target(target)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("def make():\n    return 3", r"must return \(model, inputs\) .*, got int"),
        ("def make():\n    return 1, 2, 3, 4", "got a tuple of 4"),
        ("def make():\n    return 1, 2", "must return a torch.nn.Module first, got int"),
        ("def make():\n    return nn.ReLU(), 5", "example inputs must be a tensor, .* got int"),
        ("def make():\n    return nn.ReLU(), torch.ones(1), 5", "a callable as its loss, got int"),
        ("def make():\n    raise OSError('disk')", "fails: OSError: disk"),
        ("make = 3", "'make' must be callable, got 3"),
        ("other = 3", "has no 'make'"),
    ],
)
def test_callables_that_do_not_deliver(script, body, message):
    """A callable that returns the wrong thing is told what was wanted and what came."""
    with pytest.raises(InputError, match=message):
        capture_target(f"{script(body)}:make")


def test_a_file_that_does_not_import(script):
    """The user's own traceback is kept, ours is not."""
    path = script("import no_such_thing\n")
    with pytest.raises(TargetError, match="does not import: ModuleNotFoundError") as caught:
        capture_target(f"{path}:make")
    assert "import no_such_thing" in caught.value.traceback
    assert "rooftile/capture" not in caught.value.traceback


def test_sizes_that_the_callable_does_not_take(script):
    """A size that nobody would use is refused, not dropped."""
    path = script("def make():\n    return nn.ReLU(), torch.ones(1)")
    with pytest.raises(InputError, match=r"batch 2 cannot be set .* no parameter 'batch'"):
        capture_target(f"{path}:make", batch=2)


@pytest.mark.parametrize("size", ["batch", "seq"])
@pytest.mark.parametrize("value", [0, -1])
def test_sizes_below_one(size, value):
    """Batch 0 is refused before anything is loaded."""
    with pytest.raises(InputError, match=f"{size} must be at least 1, got {value}"):
        capture_target("missing.py:make", **{size: value})


def test_a_config(config):
    """Attention arrives causal, without a mask, with its own 2 key-value heads, as on a GPU."""
    graph = capture_target(config(), mode="train", seq=32)
    attention = [op for op in graph.ops if op.name == "attention"]
    assert len(attention) == 2
    for op in attention:
        assert op.attrs["is_causal"] is True
        assert op.operand("attn_bias") is None
        assert op.operand("query").shape == (1, 8, 32, 8)
        assert op.operand("key").shape == (1, 2, 32, 8)
        assert op.operand("query").dtype == "bfloat16"
        assert op.module.endswith("self_attn")
        assert op.line.startswith("transformers/models/llama/modeling_llama.py:")
    assert not any("arange" in op.name and op.phase == "backward" for op in graph.ops)
    assert "no key-value cache, no padding" in graph.assumptions


def test_a_config_beyond_its_positions_says_so(config):
    """More tokens than the config has positions for is an assumption, in words."""
    graph = capture_target(config(), seq=65)
    assert any("beyond the 64 positions" in note for note in graph.assumptions)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"architectures": ["LlamaForCausalML"]},
            "'LlamaForCausalML' is not one of .*LlamaForCausalLM",
        ),
        ({"architectures": None, "model_type": "lama"}, "'model_type' that transformers knows"),
        ({"num_attention_heads": 7}, "cannot be built"),
    ],
    ids=["unknown class", "unknown type", "impossible"],
)
def test_configs_that_describe_nothing(config, changes, message):
    """An unknown architecture lists near ones; an impossible one keeps the library's words."""
    with pytest.raises(InputError, match=message):
        capture_target(config(**changes))


def test_a_config_that_is_no_json(tmp_path):
    """Truncated JSON and JSON of another kind are told apart."""
    path = tmp_path / "config.json"
    path.write_text('{"architectures": [')
    with pytest.raises(FileFormatError, match="not valid JSON"):
        capture_target(str(path))
    path.write_text("[1]")
    with pytest.raises(FileFormatError, match="must hold a JSON object, got a list"):
        capture_target(str(path))


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        q = self.linear(x)[None]
        return nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True)


def test_an_exported_program(tmp_path):
    """A .pt2 runs on its own example inputs; attention in it is one op."""
    path = tmp_path / "small.pt2"
    torch.export.save(torch.export.export(Small(), (torch.zeros(1, 8, 4),)), path)
    graph = capture_target(str(path))
    names = [op.name for op in graph.ops]
    assert names.count("attention") == 1
    (addmm,) = [op for op in graph.ops if op.name == "addmm"]
    assert addmm.module == "linear"
    assert "test_target.py:" in addmm.line


def test_a_truncated_program(tmp_path):
    """Half a .pt2 is an error that names the file."""
    path = tmp_path / "small.pt2"
    torch.export.save(torch.export.export(Small(), (torch.zeros(1, 8, 4),)), path)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(FileFormatError, match=r"small\.pt2' cannot be read as an exported program"):
        capture_target(str(path))


def test_a_callable_that_takes_everything(script):
    """**kwargs takes batch and seq."""
    path = script("def make(**sizes):\n    return nn.ReLU(), torch.zeros(sizes['batch'], 3)")
    graph = capture_target(f"{path}:make", batch=5)
    assert graph.ops[0].reads[0].shape == (5, 3)


def test_the_process_finds_afterwards_what_it_found_before(script, tmp_path):
    """Neither the folder nor the file nor its neighbours stay; a second folder has its own."""
    found = []
    for width in (3, 4):
        folder = tmp_path / str(width)
        folder.mkdir()
        (folder / "neighbour.py").write_text(f"WIDTH = {width}\n")
        (folder / "one.py").write_text(
            "import torch, neighbour\n"
            "def make():\n    return torch.nn.ReLU(), torch.zeros(neighbour.WIDTH)\n"
        )
        path, modules = list(sys.path), set(sys.modules)
        graph = capture_target(f"{folder / 'one.py'}:make")
        found.append(graph.ops[0].reads[0].shape)
        assert sys.path == path
        assert not {"one", "neighbour"} & (set(sys.modules) - modules)
    assert found == [(3,), (4,)]


@pytest.mark.parametrize("name", ["json", "torch", "this_is_free", "wave"])
def test_a_file_may_have_the_name_of_a_module(name, tmp_path):
    """json.py imports the real json and stays beside it; so do torch.py and a module not loaded."""
    before = sys.modules.get(name)
    other = name if name != "this_is_free" else "math"
    (tmp_path / f"{name}.py").write_text(
        f"import torch, {other}\nassert not hasattr({other}, 'make')\n"
        "def make():\n    return torch.nn.ReLU(), torch.zeros(2)\n"
    )
    graph = capture_target(f"{tmp_path / name}.py:make")
    assert [op.name for op in graph.ops] == ["relu"]
    assert before is None or sys.modules[name] is before
