"""Findings as SARIF 2.1.0."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import estimates
import jsonschema
import plans
import pytest

from rooftile.report.sarif import location, sarif

TEXT = {"type": "object", "required": ["text"], "properties": {"text": {"type": "string"}}}
# What the standard asks of the parts that are used here; nothing beside them is allowed.
STRUCTURE = {
    "type": "object",
    "required": ["version", "runs"],
    "additionalProperties": False,
    "properties": {
        "$schema": {"type": "string", "format": "uri"},
        "version": {"const": "2.1.0"},
        "runs": {"type": "array", "items": {"$ref": "#/$defs/run"}},
    },
    "$defs": {
        "run": {
            "type": "object",
            "required": ["tool"],
            "additionalProperties": False,
            "properties": {
                "tool": {"$ref": "#/$defs/tool"},
                "columnKind": {"enum": ["utf16CodeUnits", "unicodeCodePoints"]},
                "originalUriBaseIds": {"type": "object"},
                "results": {"type": "array", "items": {"$ref": "#/$defs/result"}},
            },
        },
        "tool": {
            "type": "object",
            "required": ["driver"],
            "additionalProperties": False,
            "properties": {
                "driver": {
                    "type": "object",
                    "required": ["name"],
                    "additionalProperties": False,
                    "properties": {
                        "name": {"type": "string"},
                        "semanticVersion": {"type": "string"},
                        "rules": {"type": "array", "items": {"$ref": "#/$defs/rule"}},
                    },
                }
            },
        },
        "rule": {
            "type": "object",
            "required": ["id"],
            "additionalProperties": False,
            "properties": {
                "id": {"type": "string"},
                "shortDescription": TEXT,
                "fullDescription": TEXT,
                "defaultConfiguration": {
                    "type": "object",
                    "properties": {"level": {"enum": ["none", "note", "warning", "error"]}},
                },
            },
        },
        "result": {
            "type": "object",
            "required": ["message"],
            "additionalProperties": False,
            "properties": {
                "ruleId": {"type": "string"},
                "ruleIndex": {"type": "integer", "minimum": -1},
                "level": {"enum": ["none", "note", "warning", "error"]},
                "message": TEXT,
                "locations": {"type": "array", "items": {"$ref": "#/$defs/location"}},
                "partialFingerprints": {
                    "type": "object",
                    "additionalProperties": {"type": "string"},
                },
                "properties": {"type": "object"},
            },
        },
        "location": {
            "type": "object",
            "additionalProperties": False,
            "properties": {
                "physicalLocation": {
                    "type": "object",
                    "required": ["artifactLocation"],
                    "additionalProperties": False,
                    "properties": {
                        "artifactLocation": {
                            "type": "object",
                            "additionalProperties": False,
                            "properties": {
                                "uri": {"type": "string", "format": "uri-reference"},
                                "uriBaseId": {"type": "string"},
                            },
                        },
                        "region": {
                            "type": "object",
                            "additionalProperties": False,
                            "properties": {"startLine": {"type": "integer", "minimum": 1}},
                        },
                    },
                }
            },
        },
    },
}


def run_of(record) -> dict:
    """The only run of a valid log."""
    log = json.loads(sarif(record))
    jsonschema.validate(log, STRUCTURE, cls=jsonschema.Draft202012Validator)
    (run,) = log["runs"]
    return run


@pytest.mark.parametrize("record", [plans.plan(), estimates.estimate(), plans.many(300)])
def test_it_has_the_structure_of_the_standard(record):
    """And every result points at the rule it names."""
    run = run_of(record)
    rules = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    assert run["results"]
    for result in run["results"]:
        assert rules[result["ruleIndex"]] == result["ruleId"]


def test_a_finding_stands_on_its_line():
    """The file relative, the line, the three sentences."""
    results = run_of(plans.plan())["results"]
    (library,) = [r for r in results if r["ruleId"] == "rooftile/use-library"]
    place = library["locations"][0]["physicalLocation"]
    assert place["artifactLocation"] == {"uri": "m.py", "uriBaseId": "SRCROOT"}
    assert place["region"] == {"startLine": 3}
    assert library["message"]["text"] == (
        "Insight: matmul in model.q: compute-bound, 600 us and 400 MB. "
        "Action: USE LIBRARY (cuBLAS): reason of op 0. Saves: 40 us, 4.0 % of the step."
    )


def test_the_level_follows_the_share():
    """Hot is a warning, below it a note; a gap in what is known is a note."""
    levels = {r["ruleId"]: r["level"] for r in run_of(plans.plan())["results"]}
    assert levels == {
        "rooftile/auto-fuse": "warning",
        "rooftile/use-library": "warning",
        "rooftile/unpriced": "note",
    }
    cold = run_of(replace(plans.plan(), hot_share=0.1))["results"]
    assert [r["level"] for r in cold if r["ruleId"] == "rooftile/use-library"] == ["note"]


def test_one_result_a_line():
    """200 ops on 50 lines are one finding on 50 lines, each with its modules."""
    results = run_of(plans.many(200))["results"]
    assert len(results) == 50
    assert {r["properties"]["modules"][0] for r in results} == {"model.layers.*.mlp"}


def test_where_no_line_is_known_there_is_no_place():
    """The finding is told all the same."""
    estimate = estimates.estimate()
    ops = tuple(replace(op, line="") for op in estimate.ops)
    results = run_of(replace(estimate, ops=ops))["results"]
    assert [r["locations"] for r in results] == [[], [], []]


def test_a_fingerprint_outlives_a_moved_line():
    """Lines added above do not make it another finding."""
    plan = plans.plan()
    moved = tuple(replace(op, line=op.line.replace(":3", ":30")) for op in plan.estimate.ops)
    later = replace(plan, estimate=replace(plan.estimate, ops=moved))
    prints = [[r["partialFingerprints"] for r in run_of(p)["results"]] for p in (plan, later)]
    assert prints[0] == prints[1]


def test_paths_are_relative_and_quoted(monkeypatch, tmp_path):
    """Below the working directory relative, elsewhere whole, always a valid URI."""
    monkeypatch.chdir(tmp_path)
    inner = location(f"{tmp_path}/a b/mödel.py:7")
    assert inner["physicalLocation"]["artifactLocation"]["uri"] == "a%20b/m%C3%B6del.py"
    outer = location("/elsewhere/x.py:7")["physicalLocation"]["artifactLocation"]
    assert outer == {"uri": Path("/elsewhere/x.py").as_uri()}


@pytest.mark.parametrize("line", ["", "m.py", "m.py:", "m.py:0", ":3", "m.py:x"])
def test_what_is_no_line_has_no_place(line):
    """Nothing is guessed."""
    assert location(line) is None
