"""What comes in and goes out: a user's case, gates, lines of results, the environment, peers."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from rooftile.bench import environment as surroundings_of
from rooftile.bench.demand import hold, parse
from rooftile.bench.job import Job
from rooftile.bench.load import cases
from rooftile.bench.ours import find, our_op
from rooftile.bench.peers import check_against, known_peers, providers, versions
from rooftile.bench.results import append, file_of, to_line
from rooftile.bench.run import run
from rooftile.errors import FileFormatError, GateError, InputError, TargetError
from rooftile.records.io import read_lines, to_json
from rooftile.records.measurement import Measurement

OWN = """
import torch
from rooftile.bench.case import Case
from rooftile.cost.formulas.softmax import softmax_forward
CASE = Case(
    op="mine", dims=("M", "N"), small=((2, 3),), shapes={"forward": ((2, 3),)},
    inputs=lambda d, dtype, device: (torch.randn(d["M"], d["N"], dtype=dtype),),
    function=lambda x: torch.softmax(x, -1), reference=lambda x: torch.softmax(x, -1),
    costs={"forward": lambda d, size: softmax_forward(d["M"], d["N"], size)},
)
BOTH = (CASE, CASE)
LIST = [CASE]
MIXED = [CASE, 1]
number = 7
"""


@pytest.fixture
def row(case, clock, surroundings, quick) -> Measurement:
    job = Job(case(), "forward", (3, 5), torch.float32, "cpu", matmul_n=16)
    return run(job, clock(1e-3), surroundings, quick)[0]


@pytest.fixture
def own_file(tmp_path):
    path = tmp_path / "own_case_of_a_test.py"
    path.write_text(OWN)
    return path


def test_a_users_case_is_found_in_a_file(own_file):
    """One case or several of them."""
    assert len(cases([f"{own_file}:LIST"])) == 1
    assert [case.op for case in cases([f"{own_file}:CASE"])] == ["mine"]
    assert len(cases([f"{own_file}:BOTH", "swiglu"])) == 3


def test_without_a_name_all_ops_run():
    """Thirteen ops, one of them in two forms and attention in four."""
    assert len(cases([])) == 17


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("{}:nothing", "must be a rooftile.bench.case.Case or a tuple, got nothing"),
        ("{}:number", "got int"),
        ("{}", "a case file must come with a case's name, .*own_case_of_a_test.py:CASE, got none"),
        ("{}:MIXED", "or a tuple, got list of Case, int"),
        ("missing.py:CASE", "case file 'missing.py' does not exist"),
        ("relu", "op must be one of softmax"),
    ],
)
def test_a_wrong_target_is_refused(own_file, target, words):
    """The message says what was wanted."""
    with pytest.raises(InputError, match=words):
        cases([target.format(own_file)])


def test_a_file_that_does_not_import_is_the_users_fault(tmp_path):
    """With the error it raised."""
    path = tmp_path / "broken_case_of_a_test.py"
    path.write_text("1 / 0")
    with pytest.raises(TargetError, match="does not import: ZeroDivisionError: division by zero"):
        cases([f"{path}:CASE"])


def test_lines_come_back_equal(row, tmp_path):
    """Written with the standard library, read with the records' own reader."""
    path = tmp_path / "h200" / "a.jsonl"
    wrong = replace(row, seconds=(), check=None, error="x\ny", copy_s=None)
    append(path, [row])
    append(path, [wrong])
    assert read_lines(path, Measurement) == [row, wrong]
    assert json.loads(to_line(row)) == json.loads(to_json(row))


def test_dimensions_come_back_in_their_order(row, tmp_path):
    """A shape's text and its columns are read off that order, not off the alphabet."""
    path = tmp_path / "a.jsonl"
    append(path, [replace(row, shape={"B": 16, "H": 32, "S": 4096, "D": 128})])
    assert list(read_lines(path, Measurement)[0].shape) == ["B", "H", "S", "D"]


def test_a_torn_line_is_refused_with_its_number(row, tmp_path):
    """The end of a killed process is no result."""
    path = tmp_path / "a.jsonl"
    path.write_text(to_line(row) + to_line(row)[:100])
    with pytest.raises(FileFormatError, match=r"a\.jsonl:2 is truncated"):
        read_lines(path, Measurement)


def test_results_stand_by_gpu_and_date(row):
    """The GPU's id where it is known, else its name."""
    known = replace(row.environment, gpu_id="h200-sxm", started="2026-12-01T10:00:00+00:00")
    assert str(file_of("r", replace(row, environment=known))) == "r/h200-sxm/2026-12-01.jsonl"
    odd = replace(known, gpu_id="", gpu="Some GPU")
    assert str(file_of("r", replace(row, environment=odd))) == "r/some-gpu/2026-12-01.jsonl"


def test_a_gate_holds_or_names_the_rows(row):
    """1 ms beside a copy of 1 ms."""
    hold(parse("ratio_to_copy >= 0.95"), [row])
    hold(parse(" median_s<=1e-3 "), [row])
    with pytest.raises(GateError, match=r"median_s < 0.001 does not hold for 1 of 1:\n.*: 0.001"):
        hold(parse("median_s < 0.001"), [row])


def test_a_row_without_the_number_breaks_the_gate(row):
    """No peer ran, or the row failed: nothing is taken for granted."""
    with pytest.raises(GateError, match="not measured"):
        hold(parse("ratio_to_best_peer >= 1"), [row])
    with pytest.raises(GateError, match="out of memory"):
        hold(parse("ratio_to_copy >= 0"), [replace(row, error="out of memory")])


@pytest.mark.parametrize("text", ["ratio_to_copy", "speed >= 1", "ratio_to_copy >= x", "", "a > -"])
def test_a_wrong_gate_is_refused(text):
    """The message shows the form and the numbers there are."""
    with pytest.raises(
        InputError, match=r"gate must be such as 'ratio_to_copy >= 0\.95', of ratio_"
    ):
        parse(text)


def test_a_gate_must_end_in_a_number():
    """1e is none."""
    with pytest.raises(InputError, match="gate must end in a number"):
        parse("ratio_to_copy >= 1e")


def test_peers_are_those_that_have_the_op(case):
    """Asked for and there, own first; unknown names are refused with the list."""
    assert list(providers(case(), ("liger", "eager"))) == ["rooftile", "eager"]
    assert list(providers(case(provider="mine"), ())) == ["mine"]
    check_against(("eager", "compile", "liger", "quack"), [case()])
    with pytest.raises(InputError, match=r"against must be of eager, compile, .*, got 'cudnn'"):
        check_against(("cudnn",), [case()])
    assert "eager" in known_peers([case()])


def test_a_missing_peer_has_no_version(monkeypatch):
    """Only what is installed is listed."""
    assert versions() == {}
    monkeypatch.setattr("importlib.metadata.version", lambda name: "1.2")
    assert versions()["quack"] == "1.2"


def test_the_compiler_runs_the_definition(case, monkeypatch):
    """With this shape alone in view, and a backward that may run again over one forward."""
    import torch._functorch.config as functorch

    asked = {}

    def compile_(function, **options):
        asked.update(options)
        return function

    monkeypatch.setattr(torch, "compile", compile_)
    monkeypatch.setattr(functorch, "donated_buffer", True)
    function = providers(case(), ("compile",))["compile"].load()
    assert torch.equal(function(torch.zeros(1, 2)), torch.full((1, 2), 0.5))
    assert asked == {"dynamic": False}
    assert functorch.donated_buffer is False


def test_our_op_is_found_by_its_name(monkeypatch):
    """In the package where it is a function there, else in the module of its name."""
    import types

    module = types.ModuleType("rooftile.ops.softmax")
    module.softmax = lambda x, dim: ("softmax", x, dim)
    package = SimpleNamespace(softmax=module, swiglu=lambda a, b: ("swiglu", a, b))
    modules = {"rooftile.ops": package, "rooftile.ops.softmax": module}
    monkeypatch.setattr("rooftile.bench.ours.import_module", modules.__getitem__)
    assert our_op("softmax")(1, -1) == ("softmax", 1, -1)
    assert find("swiglu")(1, 2) == ("swiglu", 1, 2)


def test_the_environment_is_read_from_the_device(monkeypatch):
    """Name, caches and clocks of the GPU, its id in the table, the clocks under load."""
    found = SimpleNamespace(
        name="NVIDIA H200", multi_processor_count=132, L2_cache_size=1 << 20, total_memory=1 << 30
    )
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: found)
    monkeypatch.setattr(
        surroundings_of, "_under_load", lambda device, smi: tuple(smi().split(", "))
    )
    read = surroundings_of.environment("cuda", lambda: "580.1, 1980, 3201, [N/A]")
    assert (read.gpu, read.gpu_id, read.units, read.driver) == (
        "NVIDIA H200", "h200-sxm", 132, "580.1",
    )  # fmt: skip
    assert (read.sm_clock_mhz, read.memory_clock_mhz, read.power_limit_w) == (1980, 3201, None)
    assert surroundings_of.datasheet(read).bandwidth.value == 4.8e12


def test_an_unknown_gpu_has_no_datasheet(monkeypatch):
    """Its fractions of the datasheet are left out; nothing is guessed."""
    found = SimpleNamespace(
        name="Some GPU", multi_processor_count=1, L2_cache_size=1, total_memory=1
    )
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: found)
    monkeypatch.setattr(surroundings_of, "_under_load", lambda device, smi: ("",) * 4)
    read = surroundings_of.environment("cuda")
    assert (read.gpu_id, surroundings_of.datasheet(read)) == ("", None)


def test_clocks_are_those_of_the_gpu_that_runs(monkeypatch):
    """By its UUID: the second of a machine is the first of a process that sees it alone."""
    asked = []

    def run(command, **options):
        asked.append(command)
        return SimpleNamespace(stdout="580.1, 1980, 3201, 700\n")

    found = SimpleNamespace(uuid="12ab-cd", name="NVIDIA H200")
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: found)
    monkeypatch.setattr(surroundings_of.subprocess, "run", run)
    assert surroundings_of._nvidia_smi("cuda:0").startswith("580.1")
    assert asked[0][-2:] == ["-i", "GPU-12ab-cd"]
    del found.uuid  # a torch that does not tell
    surroundings_of._nvidia_smi("cuda:0")
    assert "-i" not in asked[1]
