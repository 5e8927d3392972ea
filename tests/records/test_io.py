"""Records to JSON and back."""

from __future__ import annotations

import json
import os
from dataclasses import replace

import estimates
import jsonschema
import pytest

from rooftile.errors import FileFormatError, InputError
from rooftile.records import io
from rooftile.records.device import Device
from rooftile.records.estimate import Estimate
from rooftile.records.graph import Graph


@pytest.mark.parametrize("record", [estimates.estimate(), estimates.graph(), estimates.GPU])
def test_a_record_comes_back_equal(record, tmp_path):
    """Through a file whose kind alone says what it holds, infinite attributes included."""
    path = tmp_path / "record.json"
    io.write_record(path, record)
    assert io.read_record(path) == record


def test_the_same_record_gives_the_same_bytes():
    """The order in which a dict was filled does not show."""
    graph = replace(estimates.graph(), parameters={0: "a", 11: "b", 2: "c"})
    other = replace(graph, parameters={2: "c", 11: "b", 0: "a"})
    assert io.to_json(graph) == io.to_json(other)


def test_json_is_readable_by_others():
    """Plain JSON with kind and schema_version; infinity is text, as JSON has none."""
    plain = json.loads(io.to_json(estimates.graph()), parse_constant=pytest.fail)
    assert (plain["kind"], plain["schema_version"]) == ("rooftile.graph", 1)
    assert plain["ops"][2]["attrs"] == {"value": "float:-inf"}
    assert plain["ops"][3]["attrs"] == {"pad": [1, "float:inf"]}


def test_large_counts_stay_exact():
    """A step of more than 2**63 FLOP loses no digit."""
    estimate = estimates.estimate()
    huge = replace(estimate, totals=replace(estimate.totals, matrix_flops=3 * 2**63 + 1))
    assert io.from_json(io.to_json(huge), Estimate).totals.matrix_flops == 3 * 2**63 + 1


@pytest.mark.parametrize("record", [estimates.estimate(), estimates.graph(), estimates.GPU])
def test_the_schema_describes_the_file(record):
    """A written record satisfies the schema of its type, and a spoilt one does not."""
    schema = io.json_schema(type(record))
    plain = json.loads(io.to_json(record))
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(plain, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**plain, "kind": "rooftile.other"}, schema)


@pytest.mark.parametrize("keep", [0, 1, 40, 400, -2])
def test_truncated_json_is_refused(keep, tmp_path):
    """Whereever the file was cut, the message names it."""
    path = tmp_path / "cut.json"
    path.write_bytes(io.to_json(estimates.estimate())[:keep])
    with pytest.raises(FileFormatError, match=r"cut\.json"):
        io.read_record(path)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"kind": "rooftile.recipe"}, "kind must be .*got 'rooftile.recipe'"),
        ({"kind": 3}, "kind"),
        ({"schema_version": 99}, "schema_version of a rooftile.graph must be 1, got 99"),
        ({"schema_version": None}, "schema_version of a rooftile.graph must be 1, got None"),
        ({"ops": "none"}, r"\$\.ops"),
    ],
)
def test_a_file_of_another_kind_or_version_is_refused(change, words, tmp_path):
    """The message says which of them it is and what was wanted."""
    path = tmp_path / "other.json"
    path.write_text(json.dumps({**json.loads(io.to_json(estimates.graph())), **change}))
    with pytest.raises(FileFormatError, match=words):
        io.read_record(path)


def test_the_wrong_record_is_refused():
    """A graph where a device is wanted."""
    with pytest.raises(FileFormatError, match=r"must be 'rooftile.device', got 'rooftile.graph'"):
        io.from_json(io.to_json(estimates.graph()), Device)


def test_a_record_within_has_a_version_too():
    """An estimate around a graph of another edition is refused, and the graph is named."""
    plain = json.loads(io.to_json(estimates.estimate()))
    plain["graph"]["schema_version"] = 7
    with pytest.raises(FileFormatError, match=r"graph: schema_version .* must be 1, got 7"):
        io.from_json(json.dumps(plain).encode(), Estimate)


@pytest.mark.parametrize("data", [b"[]", b"3", b"\xff\xfe{}", b"{}"])
def test_json_that_is_no_record_is_refused(data):
    """Lists, numbers, other encodings, empty objects."""
    with pytest.raises(FileFormatError):
        io.from_json(data, Graph)


def test_a_missing_file_is_named(tmp_path):
    """The message names the file that is not there."""
    with pytest.raises(InputError, match=r"nothing\.json"):
        io.read_record(tmp_path / "nothing.json")


def test_a_missing_folder_is_named(tmp_path):
    """Nothing is created on the way."""
    with pytest.raises(InputError, match=r"folder .*nowhere does not exist"):
        io.write_record(tmp_path / "nowhere" / "x.json", estimates.GPU)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_failed_write_leaves_the_old_file(error, tmp_path, monkeypatch):
    """Full disk or Ctrl-C: what stood there stands, and no part file is left."""
    path = tmp_path / "x.json"
    path.write_text("old")

    def fail(*_args):
        raise error

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises((InputError, KeyboardInterrupt)):
        io.write_record(path, estimates.GPU)
    assert [file.name for file in tmp_path.iterdir()] == ["x.json"]
    assert path.read_text() == "old"


def test_a_written_file_has_the_usual_permissions(tmp_path):
    """As those of any new file, not those of a temporary one; a replaced file keeps its own."""
    plain, ours = tmp_path / "plain", tmp_path / "ours.json"
    plain.touch()
    io.write_record(ours, estimates.GPU)
    assert ours.stat().st_mode == plain.stat().st_mode
    ours.chmod(0o640)
    io.write_record(ours, estimates.GPU)
    assert ours.stat().st_mode & 0o777 == 0o640


def test_no_record_is_refused():
    """Part of a record has no file of its own."""
    with pytest.raises(InputError, match="Totals"):
        io.to_json(estimates.estimate().totals)
