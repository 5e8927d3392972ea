"""Findings on the user's lines as SARIF 2.1.0, which code hosts and editors show beside the code.

Source: OASIS, Static Analysis Results Interchange Format 2.1.0.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import rooftile
from rooftile.records.estimate import Estimate
from rooftile.records.plan import Plan
from rooftile.report.insights import Insight, estimate_of, insights, module_pattern

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_HOT = 0.01  # share of the step from which a finding is a warning, where no plan says otherwise

# rule -> what it is, in short and in full
RULES = {
    "auto-fuse": (
        "Ops that the compiler can fuse",
        "Each op reads and writes device memory; torch.compile puts them into one kernel.",
    ),
    "use-library": (
        "Work that a library does faster",
        "A library's kernel covers this op or group and moves fewer bytes.",
    ),
    "hand-write": (
        "Ops worth a kernel of their own",
        "Neither a library nor the compiler covers this hot op or group.",
    ),
    "memory-bound": (
        "Ops that wait for memory",
        "Their least time is the bytes they move over the bandwidth of device memory.",
    ),
    "launch-bound": (
        "Ops shorter than a kernel's launch",
        "Launching the kernel takes longer than its work.",
    ),
    "unpriced": (
        "An op without a formula",
        "Its FLOP are not counted; its bytes are.",
    ),
}


def sarif(record: Estimate | Plan) -> bytes:
    """The findings as one SARIF run, one result for each finding on each line.

    Paths are relative to the working directory where they lie below it. A result is a warning where
    its finding is a hot share of the step, else a note.
    """
    hot = record.hot_share if isinstance(record, Plan) else _HOT
    found = insights(record)
    used = [rule for rule in RULES if any(finding.rule == rule for finding in found)]
    results = [
        result
        for finding in found
        for result in _results(finding, record, used.index(finding.rule), hot)
    ]
    run = {
        "tool": {
            "driver": {
                "name": "Rooftile",
                "semanticVersion": rooftile.__version__,
                "rules": [_rule(rule) for rule in used],
            }
        },
        "columnKind": "unicodeCodePoints",
        "originalUriBaseIds": {
            "SRCROOT": {"description": {"text": "The folder the audit was run from."}}
        },
        "results": results,
    }
    log = {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}
    return json.dumps(log, indent=1).encode() + b"\n"


def location(line: str) -> dict[str, Any] | None:
    """The SARIF location of ``"file.py:12"``; None where the line is not known."""
    file, _, number = line.rpartition(":")
    if not file or not number.isdecimal() or int(number) < 1:
        return None
    path = Path(file)
    if path.is_absolute() and path.is_relative_to(Path.cwd()):
        path = path.relative_to(Path.cwd())
    if path.is_absolute():
        artifact = {"uri": path.as_uri()}
    else:
        artifact = {"uri": quote(path.as_posix()), "uriBaseId": "SRCROOT"}
    region = {"startLine": int(number)}
    return {"physicalLocation": {"artifactLocation": artifact, "region": region}}


def _results(
    finding: Insight, record: Estimate | Plan, rule_index: int, hot: float
) -> Iterator[dict[str, Any]]:
    """One result a line; one without a place where no line is known."""
    ops = {op.index: op for op in estimate_of(record).ops}
    lines = dict.fromkeys(ops[index].line for index in finding.ops)
    placed = [line for line in lines if location(line) is not None]
    for line in placed or [""]:
        place = location(line)
        on_line = [ops[index] for index in finding.ops if ops[index].line == line]
        said = (("Insight", finding.text), ("Action", finding.action), ("Saves", finding.saves))
        text = " ".join(f"{word}: {sentence.rstrip('.')}." for word, sentence in said)
        yield {
            "ruleId": f"rooftile/{finding.rule}",
            "ruleIndex": rule_index,
            "level": "warning" if finding.share >= hot and finding.saved_s > 0 else "note",
            "message": {"text": text},
            "locations": [] if place is None else [place],
            "partialFingerprints": {"rooftile/v1": _fingerprint(finding, line)},
            "properties": {
                "saved_s": finding.saved_s,
                "share": finding.share,
                "modules": sorted({module_pattern(op.module) for op in on_line} - {""}),
            },
        }


def _rule(rule: str) -> dict[str, Any]:
    """A rule as the tool describes it."""
    short, full = RULES[rule]
    return {
        "id": f"rooftile/{rule}",
        "shortDescription": {"text": short},
        "fullDescription": {"text": full},
        "defaultConfiguration": {"level": "note"},
    }


def _fingerprint(finding: Insight, line: str) -> str:
    """The same for the same finding in the same file, wherever its lines have moved to."""
    what = finding.text.partition(":")[0]
    file = line.rpartition(":")[0]
    return hashlib.sha256("\0".join((finding.rule, file, what)).encode()).hexdigest()[:32]
