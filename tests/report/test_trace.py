"""The predicted timeline as a Chrome trace."""

from __future__ import annotations

import json
from dataclasses import replace

import estimates
import plans
import pytest

from rooftile.report.trace import chrome_trace


def events(record, phase: str, tid: int | None = None) -> list[dict]:
    """The events of one kind, of one track."""
    found = [e for e in json.loads(chrome_trace(record))["traceEvents"] if e["ph"] == phase]
    return [e for e in found if tid is None or e["tid"] == tid]


def test_ops_follow_each_other_at_their_least_times():
    """In us, without gaps; the view is no slice."""
    slices = events(estimates.estimate(), "X", 2)
    assert [(e["name"], e["ts"], e["dur"]) for e in slices] == [
        ("matmul", 0, 600),
        ("attention", 600, 200),
        ("masked_fill", 800, 100),
        ("aten.frobnicate", 900, 100),
    ]


def test_a_slice_carries_the_ops_figures():
    """FLOP, bytes, bound, line; of an op without a formula the FLOP are unknown."""
    slices = events(plans.plan(), "X", 2)
    args = slices[0]["args"]
    assert (args["FLOP"], args["bytes"], args["bound"]) == (6 * 10**8, 4 * 10**8, "compute")
    assert (args["line"], args["verdict"], args["why"]) == (
        "m.py:3",
        "USE LIBRARY",
        "reason of op 0",
    )
    assert slices[3]["args"]["FLOP"] is None
    assert "verdict" not in events(estimates.estimate(), "X", 2)[0]["args"]


def test_modules_nest_around_their_ops():
    """The phase, then each part of the path; a slice lasts while its path lasts."""
    slices = events(estimates.estimate(), "X", 1)
    assert [(e["name"], e["ts"], e["dur"]) for e in slices] == [
        ("forward", 0, 900),
        ("model", 0, 800),
        ("q", 0, 600),
        ("backward", 900, 100),
    ]


def test_slices_of_a_track_nest_or_part():
    """What Perfetto asks of complete events: no two of a track overlap by halves."""
    for tid in (1, 2):
        open_ends: list[float] = []
        for event in events(plans.many(500), "X", tid):
            start, end = event["ts"], event["ts"] + event["dur"]
            while open_ends and open_ends[-1] <= start + 1e-6:
                open_ends.pop()
            assert not open_ends or end <= open_ends[-1] + 1e-6
            open_ends.append(end)


def test_counters_are_rates():
    """400 MB in 600 us is 666.667 GB/s; 0 after the end."""
    counters = [e for e in events(estimates.estimate(), "C") if e["name"] == "predicted GB/s"]
    assert counters[0]["args"] == {"GB/s": pytest.approx(666.667)}
    assert [e["ts"] for e in counters] == [0, 600, 800, 900, 1000]
    assert counters[-1]["args"] == {"GB/s": 0}


def test_it_is_the_format_that_perfetto_loads():
    """An object with traceEvents; each event has what its kind needs, numbers are finite."""
    trace = json.loads(
        chrome_trace(plans.plan()), parse_constant=lambda name: pytest.fail(f"{name} in JSON")
    )
    assert trace["displayTimeUnit"] == "ms"
    needed = {"X": {"name", "cat", "ts", "dur", "pid", "tid", "args"}, "C": {"name", "ts", "args"},
              "M": {"name", "pid", "args"}}  # fmt: skip
    for event in trace["traceEvents"]:
        assert needed[event["ph"]] <= set(event)
        assert event.get("dur", 0) >= 0
    names = {e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "thread_name"}
    assert names == {"modules", "ops at their least times"}


def test_a_step_without_kernels_is_a_trace():
    """Nothing to show is no error."""
    estimate = estimates.estimate()
    assert events(replace(estimate, ops=estimate.ops[4:]), "X") == []
