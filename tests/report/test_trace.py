"""The predicted timeline as a Chrome trace."""

from __future__ import annotations

import json
import math
import time
from collections import defaultdict
from dataclasses import replace
from typing import Any

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


METADATA = {
    "process_name": {"name": str},
    "thread_name": {"name": str},
    "thread_sort_index": {"sort_index": int},
}
ODD = [
    'quote " and back\\slash',
    "line\nbreak\ttab\x00nul\x1b",
    "<script>alert(1)</script>",
    "\N{SNOWMAN}\N{GRINNING FACE}\u202eright to left",
    "half of a pair \ud83d",
    "",
    "n" * 500,
]


def faults(trace: Any) -> list[str]:
    """What the Trace Event Format forbids, by an event's number; its object form, X, C and M.

    Times are microseconds from 0 on; slices come in the order of their starts, a parent before its
    children, and within a track they nest.
    """
    if not isinstance(trace, dict) or not isinstance(trace.get("traceEvents"), list):
        return ["no object with traceEvents"]
    found = []
    last: dict[Any, float] = defaultdict(float)
    open_ends: dict[int, list[float]] = defaultdict(list)
    named: set[tuple[str, int]] = set()
    for number, event in enumerate(trace["traceEvents"]):
        found += [f"{number}: {fault}" for fault in _fields(event)]
        if event.get("ph") == "M":
            if (key := (event.get("name"), event.get("tid"))) in named:
                found.append(f"{number}: named twice")
            named.add(key)
        elif not found:
            track = (event["ph"], event.get("tid", event["name"]))
            if event["ts"] < last[track]:
                found.append(f"{number}: before the one before it")
            last[track] = event["ts"]
            if event["ph"] == "X":
                found += [f"{number}: {fault}" for fault in _nests(event, open_ends)]
    tracks = {event["tid"] for event in trace["traceEvents"] if event.get("ph") == "X"}
    found += [f"track {tid} without a name" for tid in tracks if ("thread_name", tid) not in named]
    return found


def _fields(event: dict[str, Any]) -> list[str]:
    """Whether each field is there and of its type."""
    kind = event.get("ph")
    if kind not in ("X", "C", "M"):
        return [f"ph is {kind!r}"]
    wrong = [key for key in ("pid", "tid") if key in event and type(event[key]) is not int]
    wrong += ["pid"] * ("pid" not in event) + ["tid"] * ("tid" not in event and kind != "C")
    wrong += ["name"] * (not isinstance(event.get("name"), str))
    wrong += ["args"] * (not isinstance(event.get("args"), dict))
    if kind == "M":
        shape = METADATA.get(event.get("name", ""), {})
        given = {key: type(value) for key, value in event.get("args", {}).items()}
        return wrong + ["metadata"] * (given != shape)
    times = ("ts", "dur") if kind == "X" else ("ts",)
    wrong += [key for key in times if not _is_time(event.get(key))]
    if kind == "C":
        values = event.get("args", {}).values()
        wrong += ["counter"] * (not values or not all(map(_is_time, values)))
    return wrong


def _is_time(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value) and value >= 0


def _nests(event: dict[str, Any], open_ends: dict[int, list[float]]) -> list[str]:
    """A slice lies within the one that is open on its track, or behind it."""
    ends = open_ends[event["tid"]]
    while ends and ends[-1] <= event["ts"] + 1e-6:
        ends.pop()
    end = event["ts"] + event["dur"]
    outside = bool(ends) and end > ends[-1] + 1e-6
    ends.append(end)
    return ["half within another slice"] * outside


@pytest.mark.parametrize("record", [estimates.estimate(), plans.plan(), plans.many(300)])
def test_it_keeps_the_trace_event_format(record):
    """Every event, field by field."""
    assert faults(json.loads(chrome_trace(record))) == []


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"ph": "Q"}, "ph is 'Q'"),
        ({"ts": "0"}, "ts"),
        ({"ts": -1}, "ts"),
        ({"dur": None}, "dur"),
        ({"dur": 1e9}, "half within another slice"),
        ({"pid": "1"}, "pid"),
        ({"tid": 2.0}, "tid"),
        ({"name": 3}, "name"),
        ({"args": []}, "args"),
        ({"tid": 9}, "track 9 without a name"),
    ],
)
def test_a_trace_that_breaks_the_format_is_found(change, fault):
    """Meta-test: one field of one slice is wrong."""
    trace = json.loads(chrome_trace(plans.many(20)))
    slices = [e for e in trace["traceEvents"] if e["ph"] == "X" and e["tid"] == 2]
    slices[5].update(change)
    slices[6]["dur"] *= 1 + 2e9 * ("dur" in change)  # ends behind the long one
    assert any(fault in words for words in faults(trace))


def test_odd_names_stay_what_they_are():
    """Quotes, control characters, HTML, half of a surrogate pair, nothing, 500 characters."""
    for name in ODD:
        estimate = plans.many(30, name=name, module=f"model.{name}").estimate
        trace = json.loads(chrome_trace(estimate).decode("ascii"))
        assert faults(trace) == []
        assert {e["name"] for e in trace["traceEvents"] if e["ph"] == "X" and e["tid"] == 2} == {
            name
        }


def test_20_000_ops_are_written_in_seconds():
    """And read back, every op a slice."""
    plan = plans.many(20_000)
    start = time.process_time()
    text = chrome_trace(plan)
    assert time.process_time() - start < 4
    trace = json.loads(text)
    assert faults(trace) == []
    assert sum(e["ph"] == "X" and e["tid"] == 2 for e in trace["traceEvents"]) == 20_000


def test_a_step_without_kernels_is_a_trace():
    """Nothing to show is no error."""
    estimate = estimates.estimate()
    empty = replace(estimate, ops=estimate.ops[4:])
    assert events(empty, "X") == []
    assert faults(json.loads(chrome_trace(empty))) == []
