"""``audit``'s verdicts, ``fusion``, ``gate``, ``diff`` and ``claim`` on the command line."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import estimates
import pytest
from tapes import Tape

from rooftile.records.agreement import Agreement, Disagreement
from rooftile.records.chain import Chain
from rooftile.records.claim import ClaimTable
from rooftile.records.difference import Difference
from rooftile.records.gate import GateResult
from rooftile.records.io import from_json, read_record, write_record
from rooftile.records.plan import Plan
from rooftile.records.whatif import WhatIf

EXAMPLES = Path(__file__).parents[2] / "examples"


def plan(*names: str) -> Plan:
    """A chain of pointwise ops."""
    tape = Tape()
    x = tape.input(1024, 512)
    for name in names:
        x = tape.op(name, x)
    return tape.plan(x)


@pytest.fixture
def reports(tmp_path):
    """A chain of two ops and one of three, as files."""
    write_record(tmp_path / "a.json", plan("relu", "neg").estimate)
    write_record(tmp_path / "b.json", plan("relu", "neg", "exp"))
    return tmp_path / "a.json", tmp_path / "b.json"


def test_an_audit_has_verdicts_and_findings(cli, priced):
    """A column at the end of each row, and a summary below the totals."""
    result = cli("audit", "m.py:make")
    header, first = result.out.splitlines()[:2]
    assert header.endswith("verdict")
    assert first.endswith("USE LIBRARY")
    assert "verdicts  " in result.out


def test_a_plan_is_written_beside_the_table(cli, priced, tmp_path):
    """With the threshold that was asked for."""
    result = cli("audit", "m.py:make", "--plan", tmp_path / "p.json", "--hot", "0.05")
    found = read_record(tmp_path / "p.json")
    assert isinstance(found, Plan)
    assert (found.hot_share, found.estimate) == (0.05, estimates.estimate())
    assert result.err == f"wrote {tmp_path / 'p.json'}\n"


def test_several_gpus_are_beside_each_other(cli, monkeypatch):
    """One row a GPU, then where the verdict flips; the step is captured once."""
    asked = []

    def audit(target: str, **options: object):
        asked.append(options["gpu"])
        return plan("relu", "neg").estimate

    monkeypatch.setattr("rooftile.api.audit.audit", audit)
    result = cli("audit", "m.py:make", "--gpu", "h100-sxm,l4,mi300x")
    assert asked == ["h100-sxm"]
    assert [line.split()[0] for line in result.out.splitlines()[:4]] == [
        "GPU", "h100-sxm", "l4", "mi300x",
    ]  # fmt: skip
    assert "flips" in result.out
    result = cli("audit", "m.py:make", "--gpu", "h100-sxm,l4", "--json", "-")
    assert len(from_json(result.out.encode(), WhatIf).gpus) == 2


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--hot", "2"], "hot_share must be from 0 to 1, got 2"),
        (["--gpu", "h100-sxm,h100sxm9"], "near names"),
        (["--gpu", "h100-sxm,"], "gpu must be names parted by commas"),
        (["--gpu", "l4,h100-sxm,l4"], "gpu must name each once, got l4 twice"),
        (["--gpu", "l4,h100-sxm", "--csv", "-"], "--csv must be for one GPU, got 2"),
        (["--plan", "-", "--json", "-"], "only one of --json and --plan"),
    ],
)
def test_bad_options_are_refused_before_the_audit(options, words, cli, priced):
    """Exit code 2, one line, nothing captured."""
    result = cli("audit", "m.py:make", *options)
    assert (result.code, result.out, priced) == (2, "", [])
    assert words in result.err


def test_the_compiler_is_asked_on_request_alone(cli, priced, monkeypatch):
    """And what it says stands below the findings."""
    said = Agreement(
        "m", ("forward",), 3, 2,
        (Disagreement(0, (1, 2), ("cat", "sum"), "m.py:3", 2, 12, "2 kernels, not one"),),
        {"torch": "2.13.0"},
    )  # fmt: skip
    monkeypatch.setattr("rooftile.api.compiler.check_compiler", lambda plan, progress: said)
    assert "Inductor" not in cli("audit", "m.py:make").out
    out = cli("audit", "m.py:make", "--check-inductor").out
    assert "torch 2.13.0 for cpu makes one kernel of 2 of 3 groups" in out
    assert "differs  12 x cat, sum at m.py:3: 2 kernels, not one" in out


def test_a_chain_is_told_in_bytes_and_times_less(cli):
    """8192 squared, five ops, two bytes."""
    result = cli("fusion", "--elements", "8192x8192", "--ops", 5, "--dtype", "bf16")
    assert "1,342,177,280 bytes (1.25 GiB)" in result.out
    assert "268,435,456 bytes (0.25 GiB)" in result.out
    assert "80.0 %, 5 times less" in result.out
    result = cli("fusion", "--elements", "8", "--ops", 5, "--json")
    assert from_json(result.out.encode(), Chain).saved_bytes == 4 * 2 * 8 * 2


def test_a_gate_that_holds_ends_with_0(cli, reports):
    """One line a condition."""
    result = cli("gate", reports[0], "bytes <= base.bytes", "ops == 2", "--base", reports[1])
    assert (result.code, result.err) == (0, "")
    assert result.out.count("ok ") == 2


def test_a_gate_that_does_not_hold_ends_with_1(cli, reports):
    """The table on stdout, the count on stderr, the record in JSON."""
    result = cli("gate", reports[1], "bytes <= 1.05 * base.bytes", "--base", reports[0])
    assert result.code == 1
    assert "FAILED" in result.out
    assert result.err == "error: 1 of 1 conditions do not hold\n"
    result = cli("gate", reports[1], "bytes <= 1", "--json", "-")
    assert result.code == 1
    assert not from_json(result.out.encode(), GateResult).holds


def test_a_gate_that_does_not_hold_is_sarif_on_the_lines_that_grew(cli, tmp_path):
    """One result a condition; none where all hold."""
    before, after = plan("relu").estimate, plan("relu", "neg").estimate
    grown = replace(after, ops=tuple(replace(row, line="m.py:7") for row in after.ops))
    write_record(tmp_path / "a.json", before)
    write_record(tmp_path / "b.json", grown)
    log = tmp_path / "g.sarif"
    args = (tmp_path / "b.json", "bytes <= base.bytes", "ops > 0", "--base", tmp_path / "a.json")
    assert cli("gate", *args, "--sarif", log).code == 1
    (result,) = json.loads(log.read_bytes())["runs"][0]["results"]
    assert "bytes <= base.bytes does not hold: 4,194,304 <= 2,097,152" in result["message"]["text"]
    (place,) = result["locations"]
    assert place["physicalLocation"]["region"] == {"startLine": 7}
    assert cli("gate", tmp_path / "b.json", "ops > 0", "--sarif", log).code == 0
    assert json.loads(log.read_bytes())["runs"][0]["results"] == []


def test_a_condition_that_is_none_ends_with_2(cli, reports):
    """And is pointed at."""
    result = cli("gate", reports[0], "bytes <= (3 *")
    assert (result.code, result.out) == (2, "")
    assert result.err.splitlines()[1:] == ["  bytes <= (3 *", "               ^"]


def test_a_truncated_report_ends_with_2(cli, reports):
    """With its name."""
    reports[0].write_bytes(reports[0].read_bytes()[:500])
    result = cli("gate", reports[0], "bytes > 0")
    assert (result.code, result.out) == (2, "")
    assert "a.json is truncated or no JSON" in result.err


def test_a_difference_is_told_by_op(cli, reports):
    """One op more, by its name and its bytes."""
    result = cli("diff", *reports)
    assert result.code == 0
    (row,) = [line for line in result.out.splitlines() if line.startswith("exp ")]
    assert row.split()[1:3] == ["0", "1"]
    assert "+2.097 MB" in row
    assert from_json(cli("diff", *reports, "--json", "-").out.encode(), Difference).total.bytes > 0


def test_the_claims_of_the_table_are_impossible(cli):
    """Exit code 1, each with its readings."""
    result = cli("claim", EXAMPLES / "claims" / "fused_attention.csv")
    assert result.code == 1
    assert result.out.count("answer  ") >= 3
    assert "3,858 TFLOP/s" not in result.err
    assert result.err == "error: 3 of 3 claims impossible\n"


def test_a_claim_by_flags(cli):
    """Possible: exit code 0; as JSON the record alone."""
    flags = ["--op", "copy", "--shape", "elements=1000000000",
             "--gpu", "h100-sxm", "--time", "1.5 ms", "--dtype", "bf16"]  # fmt: skip
    assert cli("claim", *flags).code == 0
    found = from_json(cli("claim", *flags, "--json", "-").out.encode(), ClaimTable)
    assert found.reports[0].answer == "possible"


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--op", "attention", "--gpu", "h100-sxm", "--time", "1 ms"], "got no shape"),
        ([], "op must be given"),
        (["x.csv"], "cannot read x.csv"),
        (["x.csv", "--op", "copy"], "not both"),
    ],
)
def test_a_claim_without_what_it_needs_ends_with_2(args, words, cli):
    """One line."""
    result = cli("claim", *args)
    assert (result.code, result.out, result.err.count("\n")) == (2, "", 1)
    assert words in result.err
