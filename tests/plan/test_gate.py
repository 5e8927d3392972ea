"""Conditions for CI: what they may say, what they may not, and where the fault is."""

from __future__ import annotations

import pytest
from tapes import Tape

import rooftile
from rooftile.errors import FileFormatError, InputError
from rooftile.plan.figures import figures
from rooftile.plan.gate import evaluate
from rooftile.records.io import write_record

FIGURES = {"bytes": 1000, "flops": 50, "unpriced_share": 0.25, "base.bytes": 1000}


@pytest.mark.parametrize(
    ("expression", "holds"),
    [
        ("bytes <= 1.05 * base.bytes", True),
        ("bytes < base.bytes", False),
        ("bytes == 1_000", True),
        ("bytes != 1e3", False),
        ("flops + 2 * 3 >= 56", True),
        ("(flops + 2) * 3 > 156", False),
        ("bytes / flops / 2 == 10", True),
        ("bytes - flops - 50 == 900", True),
        ("-flops < 0", True),
        ("- - flops == 50", True),
        ("bytes < 1 or flops < 1 or unpriced_share < .5", True),
        ("bytes > 1 and flops < 1", False),
        ("bytes < 1 and flops > 1 or flops > 1", True),
    ],
)
def test_a_condition_means_what_it_says(expression, holds):
    """Products before sums, comparisons before and, and before or, all from the left."""
    assert evaluate(expression, FIGURES).holds is holds


def test_the_figures_that_were_compared_are_told():
    """With thousands apart."""
    found = evaluate("bytes <= 2 * base.bytes and flops > 1", FIGURES)
    assert found.comparisons == ("1,000 <= 2,000", "50 > 1")


@pytest.mark.parametrize(
    ("expression", "words", "place"),
    [
        ("byts <= 3", "unknown name 'byts', near: bytes; names: bytes, flops", 0),
        ("bytes <= bse.bytes", "unknown name 'bse.bytes'", 9),
        ("bytes <= ", r"wanted a number, a name or '\(', got 'the end'", 8),
        ("bytes", "wanted one of <= >= == != < >, got 'the end'", 5),
        ("bytes <= (3 * 2", r"wanted '\)', got 'the end'", 15),
        ("bytes <= 3 flops", "wanted 'and', 'or' or the end, got 'flops'", 11),
        ("bytes <= 3 <= 4", "wanted 'and', 'or' or the end, got '<='", 11),
        ("bytes <= 1 / (flops - 50)", "division by 0", 13),
        ("bytes <= $5", r"wanted no '\$'", 9),
        ("bytes <= 3; exit", "wanted no ';'", 10),
        ("", r"wanted a number, a name or '\(', got 'the end'", 0),
        ("bytes = 3", "wanted no '='", 6),
        ("bytes < 1e999", "wanted a number below 1e308, got '1e999'", 8),
        ("1e200 * 1e200 > 1", "the numbers become too large to compare", 17),
        ("bytes < \N{ARABIC-INDIC DIGIT THREE}", "wanted no", 8),
    ],
)
def test_a_fault_is_pointed_at(expression, words, place):
    """A caret stands under it."""
    with pytest.raises(InputError, match=words) as caught:
        evaluate(expression, FIGURES)
    first, shown, caret = str(caught.value).split("\n")
    assert first
    assert shown == f"  {expression}"
    assert caret == f"  {' ' * place}^"


def test_a_condition_of_several_lines_is_pointed_at_in_one():
    """Out of a YAML file, say: line ends and tabs are shown as blanks, the caret stays right."""
    with pytest.raises(InputError) as caught:
        evaluate("bytes\n\t< byts", FIGURES)
    assert str(caught.value).split("\n")[1:] == ["  bytes  < byts", f"  {' ' * 9}^"]


@pytest.mark.parametrize(
    "expression",
    ['__import__("os").abort() == 0', "bytes.__class__ == 0", "(lambda: 0)() == 0", "[0] == 0"],
)
def test_no_code_runs(expression):
    """Python is not what is read."""
    with pytest.raises(InputError):
        evaluate(expression, FIGURES)


def test_brackets_do_not_exhaust_the_stack():
    """Ten thousand of them are a message."""
    with pytest.raises(InputError, match="more than 100 brackets"):
        evaluate("(" * 10_000 + "1" + ")" * 10_000 + " == 1", FIGURES)


@pytest.fixture
def report(tmp_path):
    """A chain of two ops as files: its estimate and its plan."""
    tape = Tape()
    y = tape.op("neg", tape.op("relu", tape.input(1024, 512)))
    plan = tape.plan(y)
    write_record(tmp_path / "plan.json", plan)
    write_record(tmp_path / "estimate.json", plan.estimate)
    return tmp_path, plan


def test_the_figures_of_a_plan(report):
    """Bytes by the counting rules, verdicts counted, savings summed."""
    found = figures(report[1])
    n = 1024 * 512 * 2
    assert (found["ops"], found["bytes"], found["saved_bytes"]) == (2, 4 * n, 2 * n)
    assert (found["auto_fuse"], found["hand_write"], found["unpriced_share"]) == (2, 0, 0)


def test_a_gate_takes_an_estimate_or_a_plan(report):
    """Either says the same; a baseline's names begin with base."""
    folder, _ = report
    for name in ("estimate.json", "plan.json"):
        result = rooftile.gate(
            folder / name, ["bytes <= base.bytes", "bytes < 5"], base=folder / "plan.json"
        )
        assert [condition.holds for condition in result.conditions] == [True, False]
        assert not result.holds


def test_a_baseline_that_was_not_given_is_asked_for(report):
    """The message says how."""
    with pytest.raises(InputError, match="a baseline is given by --base"):
        rooftile.gate(report[1], ["bytes <= base.bytes"])


def test_a_broken_report_is_refused(report):
    """Truncated, of another edition, or of another kind: the message says which."""
    folder, plan = report
    whole = (folder / "plan.json").read_bytes()
    (folder / "half.json").write_bytes(whole[: len(whole) // 2])
    (folder / "next.json").write_bytes(whole.replace(b'"schema_version":1', b'"schema_version":9'))
    write_record(folder / "gpu.json", plan.estimate.device)
    for name, words in (
        ("half.json", "truncated or no JSON"),
        ("next.json", "schema_version .* must be 1, got 9"),
        ("gpu.json", "must hold an estimate or a plan, got a rooftile.device"),
    ):
        with pytest.raises(FileFormatError, match=words):
            rooftile.gate(folder / name, ["bytes > 0"])


def test_a_difference_is_told_by_op_and_by_line(report):
    """One op more: its bytes by its name; what did not change is left out."""
    tape = Tape()
    y = tape.op("exp", tape.op("neg", tape.op("relu", tape.input(1024, 512))))
    found = rooftile.diff(report[1], tape.plan(y))
    n = 1024 * 512 * 2
    assert (found.total.before_bytes, found.total.bytes) == (4 * n, 2 * n)
    assert [(change.name, change.bytes) for change in found.by_op] == [("exp", 2 * n)]
    assert [change.name for change in found.by_line] == ["(unknown)"]


def test_equal_reports_do_not_differ(report):
    """Nothing is listed."""
    found = rooftile.diff(report[0] / "plan.json", report[0] / "estimate.json")
    assert (found.total.bytes, found.by_op, found.by_line) == (0, (), ())
