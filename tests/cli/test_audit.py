"""``rooftile audit``: its options, its outputs and what it refuses."""

from __future__ import annotations

import csv
import io

import estimates
import pytest

from rooftile.records.estimate import Estimate
from rooftile.records.io import from_json, read_record


def test_the_table_is_the_output(cli, priced):
    """stdout has the table and the totals, stderr nothing."""
    result = cli("audit", "m.py:make")
    assert (result.code, result.err) == (0, "")
    assert result.out.startswith("op ")
    assert "matmul FLOP                600,000,000" in result.out


def test_options_reach_the_audit(cli, priced):
    """Each under its own name."""
    cli(
        "audit", "config.json", "--gpu", "h200-sxm", "--mode", "train", "--dtype", "bf16",
        "--batch", 2, "--seq", 128, "--optimizer", "adamw", "--peak-tflops", 900,
        "--bandwidth-gbs", 4000,
    )  # fmt: skip
    (asked,) = priced
    asked.pop("progress")
    assert asked == {
        "target": "config.json",
        "gpu": "h200-sxm",
        "mode": "train",
        "dtype": "bf16",
        "batch": 2,
        "seq": 128,
        "optimizer": "adamw",
        "peak_tflops": 900.0,
        "bandwidth_gbs": 4000.0,
    }


def test_json_on_stdout_is_the_record_alone(cli, priced):
    """It reads back equal."""
    result = cli("audit", "m.py:make", "--json", "-")
    assert from_json(result.out.encode(), Estimate) == estimates.estimate()


def test_csv_follows_by_and_top(cli, priced):
    """The rows of the table, as CSV."""
    result = cli("audit", "m.py:make", "--csv", "-", "--by", "line", "--top", 1)
    assert [row["group"] for row in csv.DictReader(io.StringIO(result.out))] == ["m.py:3"]


def test_files_are_written_beside_the_table(cli, priced, tmp_path):
    """And stderr says which."""
    json_to, csv_to = tmp_path / "a.json", tmp_path / "a.csv"
    result = cli("audit", "m.py:make", "--json", json_to, "--csv", csv_to)
    assert read_record(json_to) == estimates.estimate()
    assert csv_to.read_text().count("\n") == 6
    assert result.out.startswith("op ")
    assert result.err == f"wrote {json_to}\nwrote {csv_to}\n"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--json", "nowhere/a.json"], "folder nowhere does not exist"),
        (["--csv", "nowhere/a.csv"], "folder nowhere does not exist"),
        (["--json", "-", "--csv", "-"], "only one of --json and --csv"),
        (["--top", "0"], "top must be at least 1, got 0"),
        (["--by", "layer"], "by must be one of op, module, line, got 'layer'"),
    ],
)
def test_outputs_are_refused_before_the_audit(options, words, cli, priced, tmp_path, monkeypatch):
    """Exit code 2, one line on stderr, nothing captured and nothing written."""
    monkeypatch.chdir(tmp_path)
    result = cli("audit", "m.py:make", *options)
    assert (result.code, result.out, priced) == (2, "", [])
    assert result.err.startswith("error: ")
    assert words in result.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--gpu", "h100sxm9"], "near names: h100-sxm"),
        (["--gpu", "nothing.json"], "nothing.json"),
        (["--dtype", "bf17"], "dtype must be"),
        (["--gpu", "v100-sxm2-16gb", "--dtype", "bf16"], "no bf16"),
        (["--batch", "0"], "batch must be at least 1, got 0"),
        (["--seq", "-1"], "seq must be at least 1, got -1"),
        (["--mode", "eval"], "mode must be one of infer, train, got 'eval'"),
        (["--optimizer", "lion", "--mode", "train"], "optimizer must be one of none, sgd, adamw"),
        (["--optimizer", "sgd"], "needs mode 'train'"),
        (["--peak-tflops", "0", "--bandwidth-gbs", "1"], "peak_tflops must be a positive number"),
        (["--peak-tflops", "900"], "dtype must say which peak of h100-sxm"),
    ],
)
def test_bad_options_are_refused_before_any_capture(options, words, cli, monkeypatch):
    """Exit code 2 and one line on stderr; torch is not even asked for."""

    def fail():
        raise AssertionError("the capture was reached")

    monkeypatch.setattr("rooftile.api.audit.require_torch", fail)
    result = cli("audit", "m.py:make", *options)
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("error: ")
    assert result.err.count("\n") == 1
    assert words in result.err


def test_a_missing_target_is_a_usage_error(cli):
    """As any missing argument: typer's own message on stderr."""
    result = cli("audit")
    assert (result.code, result.out) == (2, "")
    assert "TARGET" in result.err


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (None, "model.py"),
        ("import no_such_package", "no_such_package"),
        ("def make(:", "SyntaxError"),
        ("make = 3", "callable"),
        ("def build():\n    return 1", "make"),
        ("def make():\n    return 1", "must return"),
        ("def make():\n    raise ValueError('my own mistake')", "my own mistake"),
        (
            "from torch import nn\nimport torch\nclass M(nn.Module):\n    def forward(self, x):\n"
            "        raise RuntimeError('fails here')\n"
            "def make():\n    return M(), torch.zeros(2)",
            "fails here",
        ),
    ],
)
def test_a_bad_target_is_said_without_our_traceback(source, words, cli, tmp_path, monkeypatch):
    """Exit code 2; where the user's code raised, its own traceback and none of ours."""
    monkeypatch.chdir(tmp_path)
    if source is not None:
        (tmp_path / "model.py").write_text(source)
    result = cli("audit", "model.py:make", "--json", "out.json")
    assert (result.code, result.out) == (2, "")
    assert words in result.err
    assert result.err.splitlines()[-1].startswith("error: ")
    assert "rooftile/" not in result.err
    assert not (tmp_path / "out.json").exists()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("config.json", b'{"model_type": "no-such-architecture"}'),
        ("config.json", b'{"model_type": "llama"'),
        ("model.pt2", b"PK\x03\x04 cut short"),
        ("absent.pt2", None),
    ],
)
def test_a_bad_file_is_said(name, content, cli, tmp_path):
    """An unknown architecture, a truncated file, none at all: the message names the file."""
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    result = cli("audit", path)
    assert (result.code, result.out) == (2, "")
    assert result.err.splitlines()[-1].startswith("error: ")
    assert name in result.err
