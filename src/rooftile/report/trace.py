"""The predicted timeline as a Chrome trace, for Perfetto or chrome://tracing.

Ops follow each other at their least times, as on one stream without gaps: the fastest step that the
device allows, to lay beside a measured trace.

Source: the Trace Event Format, complete events ``X``, counters ``C`` and metadata ``M``.
"""

from __future__ import annotations

import json
from typing import Any

from rooftile.records.estimate import Estimate, OpEstimate
from rooftile.records.plan import Plan, Verdict
from rooftile.report.insights import estimate_of

_PID = 1
_MODULES, _OPS = 1, 2  # tracks

Event = dict[str, Any]


def chrome_trace(record: Estimate | Plan) -> bytes:
    """The trace as JSON: a track of ops, one of the modules around them, and counters.

    Times are in µs from the start of the step, with three decimals. An op's arguments are its FLOP,
    bytes, bound, line and, from a plan, its verdict.
    """
    estimate = estimate_of(record)
    verdicts = {v.index: v for v in record.verdicts} if isinstance(record, Plan) else {}
    ops = [op for op in estimate.ops if op.bound != "free"]
    ends_ns = _ends_ns(ops)
    starts_ns = [0, *ends_ns[:-1]] if ends_ns else []
    events = _metadata(estimate)
    events += _module_events(ops, starts_ns, ends_ns)
    for op, start, end in zip(ops, starts_ns, ends_ns, strict=True):
        events.append(_op_event(op, verdicts.get(op.index), start, end))
        events += _counters(op, start)
    events += _counters(None, ends_ns[-1] if ends_ns else 0)
    trace = {
        "displayTimeUnit": "ms",
        "otherData": {
            "target": estimate.graph.target,
            "gpu": estimate.device.name,
            "times": "predicted, least possible",
        },
        "traceEvents": events,
    }
    return json.dumps(trace, separators=(",", ":"), allow_nan=False).encode() + b"\n"


def _ends_ns(ops: list[OpEstimate]) -> list[int]:
    """When each op ends [ns]. Whole numbers, so that slices nest and touch exactly."""
    ends, now = [], 0.0
    for op in ops:
        now += op.least_s * 1e9
        ends.append(round(now))
    return ends


def _metadata(estimate: Estimate) -> list[Event]:
    """Names of the process and its tracks."""
    names = {
        "process_name": (0, f"predicted: {estimate.graph.target} on {estimate.device.name}"),
        "modules": (_MODULES, "modules"),
        "ops": (_OPS, "ops at their least times"),
    }
    events: list[Event] = []
    for key, (tid, name) in names.items():
        kind = key if key == "process_name" else "thread_name"
        events.append({"ph": "M", "pid": _PID, "tid": tid, "name": kind, "args": {"name": name}})
        if tid:
            order = {"sort_index": tid}
            events.append(
                {"ph": "M", "pid": _PID, "tid": tid, "name": "thread_sort_index", "args": order}
            )
    return events


def _module_events(ops: list[OpEstimate], starts_ns: list[int], ends_ns: list[int]) -> list[Event]:
    """Slices of phases and modules, a module's within its parent's; parents come first."""
    events: list[Event] = []
    open_slices: list[tuple[str, int]] = []  # part of the path, place in events
    for op, start, end in zip(ops, starts_ns, ends_ns, strict=True):
        path = [op.phase, *filter(None, op.module.split("."))]
        kept = 0
        while kept < min(len(path), len(open_slices)) and open_slices[kept][0] == path[kept]:
            kept += 1
        del open_slices[kept:]
        for depth in range(kept, len(path)):
            open_slices.append((path[depth], len(events)))
            args = {"module": ".".join(path[1 : depth + 1])}
            events.append(_slice(path[depth], "module", _MODULES, start, end, args))
        for _, place in open_slices:
            events[place]["dur"] = _us(end) - events[place]["ts"]
    for event in events:
        event["dur"] = round(event["dur"], 3)
    return events


def _op_event(op: OpEstimate, verdict: Verdict | None, start_ns: int, end_ns: int) -> Event:
    """One op's slice."""
    unpriced = op.bound == "unpriced"
    args: dict[str, Any] = {
        "FLOP": None if unpriced else op.cost.flops,
        "matrix FLOP": None if unpriced else op.cost.matrix_flops,
        "bytes": op.cost.bytes,
        "FLOP/byte": None if unpriced else round(op.cost.intensity, 4),
        "bound": op.bound,
        "share of the step": round(op.share, 6),
        "line": op.line,
        "module": op.module,
        "phase": op.phase,
        "shapes": op.shapes,
        "aten": op.aten,
        "index": op.index,
    }
    if verdict is not None:
        args["verdict"] = verdict.action
        args["why"] = verdict.reason
    return _slice(op.name, op.bound, _OPS, start_ns, end_ns, args)


def _counters(op: OpEstimate | None, start_ns: int) -> list[Event]:
    """Predicted rates from here on; 0 after the last op."""
    taken = op.least_s if op is not None else 0.0
    moved = op.cost.bytes / taken if op is not None and taken else 0.0
    done = op.cost.flops / taken if op is not None and taken else 0.0
    rates = (("predicted GB/s", "GB/s", moved / 1e9), ("predicted TFLOP/s", "TFLOP/s", done / 1e12))
    return [
        {
            "ph": "C",
            "pid": _PID,
            "name": name,
            "ts": _us(start_ns),
            "args": {unit: round(rate, 3)},
        }
        for name, unit, rate in rates
    ]


def _slice(
    name: str, category: str, tid: int, start_ns: int, end_ns: int, args: dict[str, Any]
) -> Event:
    """A complete event."""
    return {
        "ph": "X",
        "pid": _PID,
        "tid": tid,
        "name": name,
        "cat": category,
        "ts": _us(start_ns),
        "dur": _us(end_ns - start_ns),
        "args": args,
    }


def _us(nanoseconds: int) -> float:
    """The unit of the format, to the nanosecond."""
    return nanoseconds / 1000
