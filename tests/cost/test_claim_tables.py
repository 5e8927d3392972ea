"""Tables of claims in CSV, JSON and YAML, and the ways papers print sizes."""

from __future__ import annotations

from pathlib import Path

import pytest

import rooftile
from rooftile.errors import FileFormatError, InputError
from rooftile.records.claim import ClaimTable
from rooftile.records.io import from_json, to_json

EXAMPLE = Path(__file__).parents[2] / "examples" / "claims" / "fused_attention.csv"
SHAPE = {"batch": 16, "heads": 32, "seq": 4096, "dim": 128}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"op": "frobnicate"}, "op must be one of attention, matmul"),
        ({"shape": {}}, "must have batch, heads, seq, dim, got no shape"),
        ({"shape": "batch=16"}, "must have batch, heads, seq, dim, got batch"),
        ({"shape": "16x32"}, "shape must be whole sizes such as"),
        ({"shape": {**SHAPE, "depth": 3}}, "got 'depth'"),
        ({"shape": {**SHAPE, "dim": 128.5}}, "shape must be whole sizes"),
        ({"shape": {**SHAPE, "dim": True}}, "shape must be whole sizes"),
        ({"shape": {**SHAPE, "dim": "many"}}, "shape must be whole sizes"),
        ({"shape": {**SHAPE, "dim": 10**30}}, r"at most 2\*\*62, got 10{30}"),
        ({"shape": ["batch=16"]}, "shape must be whole sizes"),
        ({"op": 3}, "op must be a name, got 3"),
        ({"gpu": 7}, "gpu must be a name, a JSON file or a Device, got 7"),
        ({"time": [1]}, r"time must be a number, or text with a unit, got \[1\]"),
        ({"memory": True}, "memory must be a number, or text with a unit, got True"),
        ({"shape": {**SHAPE, "dim": 0}}, "dim must be at least 1 and at most .*, got 0"),
        ({"time": None}, "must have a time, a bandwidth or a memory"),
        ({"time": "soon"}, "time must be a number and s, ms, us or ns, got 'soon'"),
        ({"time": -1.0}, "time must be positive and finite, got -1.0"),
        ({"time": "0 ms"}, "time must be positive and finite"),
        ({"dtype": "bf17"}, "dtype must be"),
        ({"dtype": "int3"}, "dtype of attention must be one that products are made in, got int3"),
        ({"shape": "batch=1, batch=2, heads=1, seq=1, dim=1"}, "must name each size once"),
        ({"causal": "yes"}, "causal must be true or false, got 'yes'"),
        ({"gpu": "h100sxm9"}, "near names"),
        ({"op": "copy", "shape": {"elements": 8}, "unfused": True}, "unfused is for attention"),
    ],
)
def test_what_is_no_claim_is_refused(change, words):
    """The message names the argument, what was wanted and what came."""
    given = {"op": "attention", "shape": SHAPE, "gpu": "h100-sxm", "time": "1 ms", **change}
    with pytest.raises(InputError, match=words):
        rooftile.claim(**given)


def test_a_table_in_json_reads_as_the_csv(tmp_path):
    """The same claims, the same answers; and the record survives its file."""
    path = tmp_path / "c.json"
    path.write_text('[{"op": "copy", "shape": "elements=8", "gpu": "h100-sxm", "memory": "1 kB"}]')
    table = rooftile.claims_from_file(path)
    assert table.reports[0].answer == "possible"
    assert from_json(to_json(table), ClaimTable) == table


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.csv", "op,shape,gpu,speed\ncopy,elements=8,h100-sxm,1\n", "got speed"),
        ("a.csv", "op,shape,gpu,time\n", "holds no claim"),
        (
            "a.csv",
            "op,gpu,time\ncopy,h100-sxm,1 ms\n",
            "claim 1: shape of copy must have",
        ),
        ("a.csv", "op,shape,gpu,time,causal\ncopy,elements=8,h100-sxm,1 ms,maybe\n", "yes or no"),
        ("a.json", '[{"op": "copy"', "truncated or no JSON"),
        ("a.json", '{"op": "copy"}', "must hold a list"),
        ("a.yaml", "- op: [copy", "truncated or no YAML"),
        ("a.yaml", "op: copy", "must hold a list"),
        ("a.yml", "", "must hold a list"),
        ("a.txt", "op: copy", r"must end in \.csv, \.json, \.yaml, \.yml"),
    ],
)
def test_a_broken_table_is_refused(name, text, words, tmp_path):
    """With the file's name."""
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises((InputError, FileFormatError), match=words) as caught:
        rooftile.claims_from_file(path)
    assert str(path) in str(caught.value)


def test_a_table_in_yaml_reads_as_the_csv(tmp_path):
    """YAML's own numbers, words and mappings give what the CSV's text gives."""
    path = tmp_path / "c.yaml"
    path.write_text(
        "- label: 7\n  op: attention\n  gpu: h100-sxm\n  time: 4.82 ms\n  unfused: yes\n"
        "  shape: {batch: 16, heads: 32, seq: 4096, dim: '128'}\n"
        "- {op: attention, gpu: h100-sxm, time: 0.00114, memory: 64 MB,\n"
        "   shape: 'batch=16, heads=32, seq=4096, dim=128'}\n"
    )
    ours, theirs = rooftile.claims_from_file(path), rooftile.claims_from_file(EXAMPLE)
    for mine, known in zip(ours.reports, theirs.reports, strict=False):
        assert mine.readings == known.readings
    assert ours.reports[0].claim.label == "7"


def test_sizes_may_be_text_with_a_prefix():
    """1e9 elements are 1,000,000,000, and 1k are 1,000."""
    report = rooftile.claim("copy", "elements=1e9", gpu="h100-sxm", dtype="bf16", time=1.0)
    assert report.claim.shape == {"elements": 10**9}
    report = rooftile.claim("softmax", {"rows": "1k", "cols": 8.0}, gpu="h100-sxm", time=1.0)
    assert report.claim.shape == {"rows": 1000, "cols": 8}


def test_a_claim_is_read_as_papers_print_it():
    """Blanks around the signs, microseconds with either Greek letter."""
    shape = "rows = 1024 , cols=8;"
    seconds = [
        rooftile.claim("softmax", shape, gpu="h100-sxm", time=f"20 {unit}s").claim.time_s
        for unit in ("u", "\N{MICRO SIGN}", "\N{GREEK SMALL LETTER MU}")
    ]
    assert seconds == pytest.approx([20e-6] * 3, rel=1e-12)
