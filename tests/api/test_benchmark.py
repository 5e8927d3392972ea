"""rooftile.benchmark: what it refuses, what it hands back, what it calls an error."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import rooftile
from rooftile.api.benchmark import parse_names, parse_shapes
from rooftile.bench.case import Case
from rooftile.cost.formulas.softmax import softmax_forward
from rooftile.errors import GateError, InputError, MissingDependencyError, TargetError
from rooftile.records.io import read_lines
from rooftile.records.measurement import Measurement


class Clock:
    """One millisecond, whatever the call."""

    timer = "script"
    cache = "cold"

    def writes(self, call, n_bytes):
        pass

    def seconds(self, call):
        call()
        return 1e-3

    def host_seconds(self, call, calls):
        return 1e-6

    def peak_bytes(self, call):
        return 0


def mine(function=lambda x: torch.softmax(x, -1)) -> Case:
    return Case(
        op="mine",
        dims=("M", "N"),
        inputs=lambda d, dtype, device: (torch.randn(d["M"], d["N"], dtype=dtype, device=device),),
        function=function,
        reference=lambda x: torch.softmax(x, -1),
        costs={"forward": lambda d, size: softmax_forward(d["M"], d["N"], size)},
        shapes={"forward": ((4, 8), (2, 16))},
        small=((2, 3),),
        provider="mine",
    )


def bench(*targets, **options):
    options = {"against": ("eager",), "device": "cpu", "clock": Clock(), "rounds": 2, **options}
    return rooftile.benchmark(*targets, **options)


def test_a_kernel_of_ones_own_beside_a_peer(tmp_path):
    """Three rows a shape; to the sink and to the results as they come."""
    seen = []
    rows = bench(mine(), sink=seen.append, results=str(tmp_path))
    assert [row.provider for row in rows] == ["mine", "eager", "copy"] * 2
    assert [row.shape["N"] for row in rows] == [8] * 3 + [16] * 3
    assert seen == [rows[:3], rows[3:]]
    (written,) = tmp_path.rglob("*.jsonl")
    assert read_lines(written, Measurement) == rows


def test_shapes_and_directions_of_ones_own():
    """Instead of the case's."""
    rows = bench(mine(), shapes=[(3, 7)], directions=("forward",), dtype="fp16")
    assert {tuple(row.shape.values()) for row in rows} == {(3, 7)}
    assert {row.dtype for row in rows} == {"float16"}


def test_a_gate_that_holds_and_one_that_does_not():
    """Copy and kernel take the same time here: the ratio is 1."""
    bench(mine(), gate="ratio_to_copy >= 0.95")
    seen = []
    with pytest.raises(GateError, match=r"ratio_to_copy >= 1.1 does not hold for 2 of 2"):
        bench(mine(), gate="ratio_to_copy >= 1.1", sink=seen.extend)
    assert len(seen) == 6


def test_a_wrong_kernel_is_an_error_and_its_peers_are_not():
    """The rows come first, the error after."""
    seen = []
    with pytest.raises(GateError, match=r"1 of 1 results do not stand:\n  mine forward 4x8: wrong"):
        bench(mine(lambda x: x), shapes=[(4, 8)], sink=seen.extend)
    assert [bool(row.seconds) for row in seen] == [False, True, True]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"dtype": "int8"}, "dtype must be one of bfloat16, float16, float32"),
        ({"directions": ("sideways",)}, "direction must be of forward, backward"),
        ({"directions": ("backward",)}, r"one that the cases have, forward, got \['backward'\]"),
        ({"directions": ()}, r"direction must be one that the cases have, forward, got \[\]"),
        ({"dtype": ""}, "dtype must be a torch dtype, got ''"),
        ({"gate": ""}, "gate must be such as"),
        ({"gate": "ratio_to_copy >= 1e999"}, "gate must end in a finite number"),
        ({"against": ("cudnn",)}, "against must be of eager"),
        ({"gate": "fast"}, "gate must be such as"),
        ({"shapes": [(1, 2, 3)]}, "shape of mine must be M x N"),
    ],
)
def test_bad_input_is_refused_before_anything_runs(options, words):
    """Each message names the argument."""
    with pytest.raises(InputError, match=words):
        bench(mine(lambda x: pytest.fail("it ran")), **options)


def test_what_is_named_twice_runs_once():
    """A case and a direction alike."""
    case = mine()
    rows = bench(case, case, directions=("forward", "forward"), shapes=[(2, 3)])
    assert [row.provider for row in rows] == ["mine", "eager", "copy"]


@pytest.mark.parametrize(
    ("cost", "words"),
    [(lambda dims, size: 1 / 0, "costs of mine at {'M': 4, 'N': 8}: ZeroDivisionError"),
     (lambda dims, size: 7, "costs of mine must give rooftile.Cost, got int")],
)  # fmt: skip
def test_a_formula_of_ones_own_that_fails_is_told_before_anything_runs(cost, words):
    """As the user's fault."""
    case = replace(mine(lambda x: pytest.fail("it ran")), costs={"forward": cost})
    with pytest.raises(TargetError, match=words):
        bench(case)


@pytest.mark.parametrize("part", ["inputs", "reference"])
def test_what_cannot_be_checked_has_a_row_and_the_rest_goes_on(part):
    """Memory that does not suffice for the second shape, say: the first is measured."""
    case = mine()
    right = getattr(case, part)

    def failing(*args):
        if (args[0]["N"] if part == "inputs" else args[0].shape[1]) == 16:
            raise MemoryError("16 columns")
        return right(*args)

    seen = []
    with pytest.raises(GateError, match=r"1 of 2 .*\n  mine forward 2x16: nothing to hold it"):
        bench(replace(case, **{part: failing}), sink=seen.extend)
    assert [(row.provider, bool(row.seconds)) for row in seen] == [
        ("mine", True), ("eager", True), ("copy", True), ("mine", False),
    ]  # fmt: skip


def test_inputs_may_be_one_tensor():
    """A case of one input need not make a tuple of it."""
    case = mine()
    one = replace(case, inputs=lambda *args: case.inputs(*args)[0])
    assert [row.error for row in bench(one, shapes=[(3, 7)])] == [""] * 3


def test_a_kernel_that_gives_no_tensor_has_a_row_that_says_so():
    """Not what Python says of iterating over nothing."""
    with pytest.raises(GateError, match="must give a tensor or a tuple of them, got NoneType"):
        bench(mine(lambda x: None), shapes=[(3, 7)])
    with pytest.raises(GateError, match="got tuple of Tensor, int"):
        bench(mine(lambda x: (x, 1)), shapes=[(3, 7)])


def test_without_a_gpu_the_message_says_what_can_be_done():
    """Not a traceback out of torch."""
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(InputError, match="needs a GPU and torch sees none; --interpret"):
        rooftile.benchmark(mine(), against=())


def test_interpret_checks_and_times_nothing(monkeypatch):
    """At the small shapes, own kernel alone, with Triton's switch set."""
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    rows = rooftile.benchmark(mine(), interpret=True)
    assert [(row.provider, row.seconds, row.error) for row in rows] == [("mine", (), "")]
    assert rows[0].dtype == "float32"
    assert rows[0].check is not None
    with pytest.raises(InputError, match="gate needs times, and interpret takes none"):
        rooftile.benchmark(mine(), interpret=True, gate="ratio_to_copy >= 1")


def test_interpret_comes_too_late_once_triton_is_there(monkeypatch):
    """A kernel is bound to the compiler when it is defined."""
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.setitem(sys.modules, "triton", object())
    with pytest.raises(InputError, match="before Triton is imported: set TRITON_INTERPRET=1"):
        rooftile.benchmark(mine(), interpret=True)
    assert "TRITON_INTERPRET" not in os.environ


def test_torch_is_named_where_it_is_missing(monkeypatch):
    """With the command that installs it."""

    def missing(name):
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr("rooftile.api.dependencies.import_module", missing)
    with pytest.raises(MissingDependencyError, match=r"torch and Triton.*pip install 'rooftile\["):
        bench(mine())


def test_shapes_and_names_in_words():
    """As the command line gives them."""
    assert parse_shapes("65536x4096, 8192X8192") == [(65536, 4096), (8192, 8192)]
    assert parse_shapes(None) is None
    assert parse_names(" eager,,compile ") == ("eager", "compile")
    for text in ("", "4096x", "0x4", "4,x", "-1x2", "1.5x2"):
        with pytest.raises(InputError, match="shapes must be such as 65536x4096"):
            parse_shapes(text)


def test_the_example_is_a_case_that_runs_in_the_interpreter(monkeypatch):
    """In a process of its own: the switch must be set before Triton is there."""
    import subprocess

    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-m", "rooftile", "bench", "examples/bench_case.py:CASE", "--interpret"],
        cwd=root, env={**os.environ, "PYTHONPATH": str(root / "src")}, capture_output=True,
        text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("by mine: right, error") == 2
