"""``rooftile.load`` and ``rooftile.write_report``."""

from __future__ import annotations

import json

import estimates
import plans
import pytest

import rooftile
from rooftile.errors import FileFormatError, InputError
from rooftile.records.io import to_json, write_record


@pytest.mark.parametrize("record", [estimates.estimate(), plans.plan()])
def test_a_saved_record_loads(record, tmp_path):
    """An estimate and a plan, as they were."""
    write_record(tmp_path / "a.json", record)
    assert rooftile.load(tmp_path / "a.json") == record


def test_every_file_is_written(tmp_path):
    """The page, the trace, the log."""
    html, trace, sarif = (tmp_path / name for name in ("a.html", "a.trace.json", "a.sarif"))
    rooftile.write_report(plans.plan(), html=html, trace=trace, sarif=sarif)
    assert html.read_text().startswith("<!doctype html>")
    assert json.loads(trace.read_text())["traceEvents"]
    assert json.loads(sarif.read_text())["version"] == "2.1.0"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.html", "a.sarif", "a.trace.json"]


def test_one_bad_destination_and_nothing_is_written(tmp_path):
    """The folder is missed before the first file is made."""
    with pytest.raises(InputError, match=r"folder .*nowhere does not exist"):
        rooftile.write_report(
            plans.plan(), html=tmp_path / "a.html", sarif=tmp_path / "nowhere" / "a.sarif"
        )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda text: text[: len(text) // 2], "truncated"),
        (lambda text: text.replace('"schema_version":1', '"schema_version":7'), "must be 1, got 7"),
        (lambda text: to_json(estimates.GPU).decode(), "got a rooftile.device"),
        (lambda text: "[]", "no record"),
    ],
)
def test_what_is_no_saved_audit_is_refused(change, words, tmp_path):
    """The message names the file and says what is wrong with it."""
    path = tmp_path / "a.json"
    path.write_text(change(to_json(estimates.estimate()).decode()))
    with pytest.raises(FileFormatError, match=words) as caught:
        rooftile.load(path)
    assert str(path) in str(caught.value)
