"""``rooftile report``, and the report's options of ``rooftile audit``."""

from __future__ import annotations

import json
import subprocess
import sys

import estimates
import plans
import pytest

from rooftile.records.io import to_json, write_record

OPTIONS = ("--html", "--trace", "--sarif")


@pytest.fixture
def saved(tmp_path):
    """A plan in a file."""
    path = tmp_path / "saved.json"
    write_record(path, plans.plan())
    return path


@pytest.mark.parametrize("option", OPTIONS)
def test_audit_writes_each_file_beside_the_table(option, cli, priced, tmp_path):
    """stdout keeps the table, stderr says what was written."""
    path = tmp_path / "out"
    result = cli("audit", "m.py:make", option, path)
    assert (result.code, result.err) == (0, f"wrote {path}\n")
    assert result.out.startswith("op ")
    assert path.stat().st_size > 100


@pytest.mark.parametrize("option", OPTIONS)
def test_audit_refuses_a_bad_destination_before_capture(option, cli, priced, tmp_path, monkeypatch):
    """Exit code 2, nothing captured."""
    monkeypatch.chdir(tmp_path)
    result = cli("audit", "m.py:make", option, "nowhere/out")
    assert result.code == 2
    assert "folder nowhere does not exist" in result.err
    assert priced == []


def test_a_trace_to_stdout_takes_the_tables_place(cli, priced):
    """stdout is the JSON alone."""
    result = cli("audit", "m.py:make", "--trace", "-")
    assert json.loads(result.out)["traceEvents"]


def test_report_makes_the_files_of_a_saved_record(cli, saved, tmp_path):
    """No table where files are asked for."""
    paths = [tmp_path / name for name in ("a.html", "a.trace", "a.sarif")]
    arguments = [item for pair in zip(OPTIONS, paths, strict=True) for item in pair]
    result = cli("report", saved, *arguments)
    assert (result.code, result.out) == (0, "")
    assert result.err == "".join(f"wrote {path}\n" for path in paths)
    assert "Verdict on every op" in paths[0].read_text()


def test_report_alone_prints_the_table(cli, saved):
    """As the audit did."""
    result = cli("report", saved, "--top", 1)
    assert result.code == 0
    assert "matmul" in result.out
    assert "masked_fill" not in result.out.split("target")[0]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b'{"kind":"rooftile.estimate","schema_ver', "truncated or no JSON"),
        (b'{"kind":"rooftile.estimate","schema_version":99}', "must be 1, got 99"),
        (to_json(estimates.GPU), "got a rooftile.device"),
    ],
)
def test_a_bad_file_is_one_line_on_stderr(content, words, cli, tmp_path):
    """Exit code 2, nothing written."""
    path = tmp_path / "bad.json"
    path.write_bytes(content)
    result = cli("report", path, "--html", tmp_path / "a.html")
    assert result.code == 2
    assert words in result.err
    assert result.err.count("\n") == 1
    assert not (tmp_path / "a.html").exists()


def test_a_report_needs_no_torch(saved, tmp_path):
    """From a saved record, in a process where torch cannot be imported."""
    code = (
        "import sys; sys.modules['torch'] = None; sys.modules['numpy'] = None\n"
        "from rooftile.cli import run\n"
        f"sys.exit(run(['report', {str(saved)!r}, '--html', {str(tmp_path / 'a.html')!r}]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:0] = {sys.path!r}\n{code}"],
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "a.html").stat().st_size > 1_000_000
