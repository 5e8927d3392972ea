"""A trace read: what counts as work, what runs at the same time, what is not there."""

from __future__ import annotations

import gzip
import json

import pytest
from commands import cli

import rooftile
from rooftile.errors import FileFormatError, InputError
from rooftile.records.io import from_json, to_json
from rooftile.records.timeline import KernelTime, Timeline

__all__ = ["cli"]  # a fixture
US = 1e-6
ALLREDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def event(name, start, end, category="kernel", device=0, stream=7):
    """One complete event, in microseconds."""
    return {
        "ph": "X", "cat": category, "name": name, "pid": device, "tid": stream, "ts": start,
        "dur": end - start, "args": {"device": device, "stream": stream},
    }  # fmt: skip


@pytest.fixture
def read(tmp_path):
    """The one GPU's timeline of these events, in a file of its own."""

    def reads(*events, **more):
        path = tmp_path / "trace.json"
        path.write_text(json.dumps({"traceEvents": [*events], **more}))
        (found,) = rooftile.timeline(path)
        return found

    return reads


def test_a_wait_is_no_work(read):
    """Compute 0-10, communication 10-20, a sync over both: overlap 0, busy 20, idle 0 (ben-05)."""
    for category in ("cuda_sync", "kernel", "gpu_memcpy"):
        found = read(
            event("gemm", 0, 10), event(ALLREDUCE, 10, 20, stream=9),
            event("Stream Sync", 0, 20, category),
        )  # fmt: skip
        assert found.overlap == 0.0
        assert found.busy_s == pytest.approx(20 * US)
        assert found.idle_s == pytest.approx(0, abs=1e-12)
        assert (found.compute_s, found.communication_s) == pytest.approx((10 * US, 10 * US))


def test_what_is_not_there_counts_as_zero(read):
    """No fills, no copies, no communication, no group: one process alone (ben-05)."""
    found = read(event("gemm", 5, 7))
    assert (found.kernels, found.copies, found.fills, found.rank) == (1, 0, 0, None)
    assert (found.communication_s, found.overlapped_s, found.memory_s) == (0, 0, 0)
    assert found.overlap == 0.0
    assert found.span_s == pytest.approx(2 * US)


def test_a_trace_of_a_group_has_its_rank(read):
    """As torch writes it; anything else there is no rank."""
    assert read(event("gemm", 0, 1), distributedInfo={"rank": 3, "world_size": 8}).rank == 3
    assert read(event("gemm", 0, 1), distributedInfo={}).rank is None
    assert read(event("gemm", 0, 1), distributedInfo=None).rank is None


@pytest.mark.parametrize(
    ("start", "end", "overlap"), [(0, 10, 1.0), (5, 15, 0.5), (8, 18, 0.2), (10, 20, 0.0)]
)
def test_communication_behind_compute(read, start, end, overlap):
    """Compute runs from 0 to 10; the part of the communication that falls into it."""
    found = read(event("gemm", 0, 10), event(ALLREDUCE, start, end, stream=9))
    assert found.overlap == pytest.approx(overlap)
    assert found.busy_s == pytest.approx(max(end, 10) * US)


def test_streams_side_by_side_count_once(read):
    """Two kernels at once, one within the other, one that touches the next: 0-30 of 0-40."""
    found = read(
        event("c", 20, 30), event("a", 0, 20), event("b", 5, 8, stream=8), event("d", 40, 40),
        event(ALLREDUCE, 2, 22, stream=9), event(ALLREDUCE, 4, 6, stream=10),
    )  # fmt: skip
    assert found.compute_s == pytest.approx(30 * US)
    assert found.communication_s == pytest.approx(20 * US)
    assert found.overlapped_s == pytest.approx(20 * US)
    assert (found.span_s, found.idle_s) == pytest.approx((40 * US, 10 * US))


def test_copies_and_fills_are_work_but_no_compute(read):
    """They keep the GPU busy and hide no communication."""
    found = read(
        event("gemm", 0, 10), event("Memcpy HtoD", 10, 14, "gpu_memcpy"),
        event("Memset", 14, 15, "gpu_memset"), event(ALLREDUCE, 12, 18, stream=9),
    )  # fmt: skip
    assert (found.copies, found.fills) == (1, 1)
    assert found.memory_s == pytest.approx(5 * US)
    assert (found.busy_s, found.overlapped_s) == pytest.approx((18 * US, 0))


def test_the_hosts_events_are_none_of_the_gpus(read):
    """Ops, runtime calls, annotations, instants, counters and flows."""
    others = [
        event("aten::mm", 0, 90, "cpu_op"), event("cudaLaunchKernel", 0, 80, "cuda_runtime"),
        event("step", 0, 70, "gpu_user_annotation"), {"ph": "i", "name": "x", "ts": 1},
        {"ph": "M", "name": "process_name"}, {"ph": "s", "cat": "ac2g", "ts": 2}, "no event",
    ]  # fmt: skip
    assert read(event("gemm", 10, 20), *others).span_s == pytest.approx(10 * US)


def test_times_keep_their_nanoseconds(tmp_path):
    """Microseconds since 1970 with three decimals: a double would be off by a quarter of one."""
    path = tmp_path / "t.json"
    at = '{"ph": "X", "cat": "kernel", "name": "a", "ts": 1764500000000000.%s, "dur": 0.017}'
    path.write_text(f"[{at % '001'}, {at % '101'}]")
    (found,) = rooftile.timeline(path)
    assert (found.span_s, found.busy_s) == pytest.approx((117e-9, 34e-9), rel=1e-9)


def test_the_slowest_kernels_come_first(read):
    """Calls of one name are added up."""
    found = read(event("a", 0, 4), event("b", 4, 9), event("a", 9, 12))
    assert found.slowest == (KernelTime("a", 2, 7e-6), KernelTime("b", 1, 5e-6))


def test_each_gpu_has_a_timeline(tmp_path):
    """Of one process with two; the trace gzipped, and a list without a frame around it."""
    path = tmp_path / "trace.json.gz"
    events = [event("a", 0, 4, device=1), event("b", 2, 3, device=0)]
    path.write_bytes(gzip.compress(json.dumps(events).encode()))
    found = rooftile.timeline(path)
    assert [(one.device, one.span_s) for one in found] == [
        (0, pytest.approx(US)), (1, pytest.approx(4 * US)),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("data", "error", "message"),
    [
        (b'{"traceEvents": [{"ph"', FileFormatError, "is truncated or no JSON"),
        (gzip.compress(b"[]" * 50, mtime=0)[:-9], FileFormatError, "is truncated or no JSON"),
        (b'{"schemaVersion": 1}', FileFormatError, "must have a list of traceEvents"),
        (b"7", FileFormatError, "must have a list of traceEvents"),
        (b'{"traceEvents": []}', InputError, "got none among 0"),
        (json.dumps([event("mm", 0, 1, "cpu_op")]).encode(), InputError, "got none among 1: was"),
        (b'[{"ph": "X", "cat": "kernel", "name": "a"}]', FileFormatError, "no time or device in"),
        (json.dumps([event("a", 2, 1)]).encode(), FileFormatError, "'a' ends before it starts"),
    ],
)  # fmt: skip
def test_what_is_no_trace_is_refused(data, error, message, tmp_path):
    """With what was wanted."""
    path = tmp_path / "trace.json"
    path.write_bytes(data)
    with pytest.raises(error, match=message):
        rooftile.timeline(path)


def test_a_missing_file_is_refused(tmp_path):
    """By its name."""
    with pytest.raises(InputError, match=r"cannot read .*gone\.json"):
        rooftile.timeline(tmp_path / "gone.json")


def test_the_record_comes_back_equal(read):
    """Through its JSON."""
    found = read(event("a", 0, 4), event(ALLREDUCE, 2, 6))
    assert from_json(to_json(found), Timeline) == found


def test_the_command_prints_it(cli, tmp_path):
    """A block a GPU; with --json a record a line."""
    path = tmp_path / "t.json"
    path.write_text(json.dumps({"traceEvents": [event("gemm", 0, 10), event(ALLREDUCE, 5, 15)]}))
    text = " ".join(cli("timeline", path).out.split())
    assert "busy 15 us, 100.0 % idle 0 s, 0.00 %" in text
    assert "communication 10 us, 66.7 %; 50.0 % behind compute" in text
    lines = cli("timeline", path, path, "--json").out.splitlines()
    assert [from_json(line.encode(), Timeline).overlap for line in lines] == [0.5, 0.5]
    assert cli("timeline", tmp_path / "gone.json").code == 2
