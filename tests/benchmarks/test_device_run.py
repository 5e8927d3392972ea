"""The sweep for a machine with a GPU, run here on a CPU: order, restart, blame."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rooftile.records.io import read_lines
from rooftile.records.measurement import Measurement

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "benchmarks" / "device_run.py"


@pytest.fixture
def module(monkeypatch):
    """A module of the benchmarks folder, which is no package."""
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    return importlib.import_module


def test_every_op_is_run_once_before_any_is_run_twice(module):
    """The first jobs are one of each op at 8192 columns, softmax first."""
    device_run = module("device_run")
    keys = [planned.key.split("|") for planned in device_run.plan(device_run.parse([]))]
    first = keys[:8]
    assert [key[0] for key in first[:4]] == ["softmax", "rms_norm", "layer_norm", "add_rms_norm"]
    assert first[0][2] == "32768x8192"
    places = {op: next(i for i, key in enumerate(keys) if key[0].startswith(op))
              for op in device_run.OPS}  # fmt: skip
    assert max(places.values()) < len(device_run.IMPORTANCE)
    assert len(keys) == len({"|".join(key) for key in keys})
    assert [key for key in keys if key[2] == "64x1024"]


def test_the_plan_covers_every_case_and_direction(module):
    """Nothing of the cases is left out by the table of importance."""
    device_run = module("device_run")
    planned = {(p.job.case.label, p.job.direction) for p in device_run.plan(device_run.parse([]))}
    wanted = {
        (case.label, direction)
        for op in device_run.OPS
        for case in device_run.cases_of(op)
        for direction in case.costs
        if case.shapes.get(direction)
    }
    assert planned >= wanted


def test_the_plan_can_be_narrowed(module):
    """By op, direction and columns."""
    device_run = module("device_run")
    words = "--ops softmax --directions backward --columns 8192,512 --no-host-shape"
    keys = [p.key for p in device_run.plan(device_run.parse(words.split()))]
    assert keys == [
        "softmax|backward|32768x8192|torch.bfloat16",
        "softmax|backward|524288x512|torch.bfloat16",
    ]


def test_a_form_of_an_op_can_be_asked_for(module):
    """By its label and its shape: the causal attention of the article, in one pass."""
    device_run = module("device_run")
    words = "--ops attention[causal] --directions backward --shapes 16x32x4096x128"
    keys = [p.key for p in device_run.plan(device_run.parse(words.split()))]
    assert keys == ["attention[causal]|backward|16x32x4096x128|torch.bfloat16"]


def test_one_pass_of_an_op_can_be_asked_for(module):
    """Beside all passes of another."""
    device_run = module("device_run")
    words = "--ops log_softmax:forward,geglu --no-host-shape"
    planned = device_run.plan(device_run.parse(words.split()))
    assert {(p.job.case.op, p.job.direction) for p in planned} == {
        ("log_softmax", "forward"), ("geglu", "forward"), ("geglu", "backward"),
    }  # fmt: skip


def test_slow_peers_run_at_the_first_shape_alone(module):
    """The unfused attention, whose scores fill the memory, at the article's shape."""
    device_run = module("device_run")
    words = "--ops attention[causal] --against cudnn --first-against eager --directions forward"
    against = [p.job.against for p in device_run.plan(device_run.parse(words.split()))]
    assert against[0] == ("cudnn", "eager")
    assert set(against[1:]) == {("cudnn",)}


def test_the_articles_shape_comes_before_the_sweep_over_lengths(module):
    """Of attention's jobs, both passes and both masks at it are the first four."""
    device_run = module("device_run")
    planned = device_run.plan(device_run.parse(["--ops", "attention"]))
    assert {p.key.split("|")[2] for p in planned[:4]} == {"16x32x4096x128"}
    assert {p.job.shape[2] for p in planned} == {512, 1024, 4096, 16_384}
    assert {p.job.shape[3] for p in planned} == {64, 128, 256}


def test_a_crash_is_laid_at_the_door_of_who_had_begun(module, tmp_path):
    """Left out at that shape alone; a crash that is nobody's gives the shape up."""
    journal = module("journal").Journal(str(tmp_path / "a.jsonl"))
    journal.write("step", "softmax", provider="rooftile", what="first call")
    journal.write("step", "softmax", provider="liger", what="first call")
    assert journal.blame("exit code -9") == "liger at softmax"
    assert journal.left_out("softmax") == {"liger": "exit code -9 at first call"}
    assert (journal.left_out("swiglu"), journal.done()) == ({}, set())
    journal.write("step", "swiglu", provider="all", what="rounds")
    assert journal.blame("exit code 1") == "swiglu (rounds)"
    assert journal.done() == {"swiglu"}
    assert journal.blame("exit code 1") == ""
    assert journal.last_is_done()


def test_a_torn_line_of_the_journal_is_no_event(module, tmp_path):
    """A killed process may leave half a line."""
    journal = module("journal").Journal(str(tmp_path / "a"))
    journal.write("done", "softmax")
    with open(journal.path, "a") as file:
        file.write('{"event": "do')
    assert journal.done() == {"softmax"}


def test_a_silent_worker_is_ended_and_one_out_of_time_too(module, tmp_path):
    """Both without waiting for it."""
    supervise, journal = module("supervise"), module("journal").Journal(str(tmp_path / "a"))
    sleeper = [sys.executable, "-c", "import time; time.sleep(60)"]
    begun = time.time()
    silent = supervise.watch(sleeper, begun + 1000, journal, silence_s=0.2)
    over = supervise.watch(sleeper, begun - 1000, journal, silence_s=0.2)
    assert (silent, over) == ((1, "silent for 0.2 s"), (0, "out of time"))
    assert time.time() - begun < 30


def test_a_worker_that_never_begins_is_given_up(module, tmp_path):
    """Three times, then exit code 1."""
    supervise, journal = module("supervise"), module("journal").Journal(str(tmp_path / "a"))
    broken = [sys.executable, "-c", "raise SystemExit(5)"]
    assert supervise.supervise(broken, time.time() + 100, journal) == 1


def start(
    out: Path, *words: str, path: Path | None = None, **more: str
) -> subprocess.CompletedProcess[str]:
    """Run the script on this machine, at small shapes."""
    command = [sys.executable, str(SCRIPT), "--dry-run", "--out", str(out), "--rounds", "2", *words]
    paths = [str(path)] if path else []
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1", **more}
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=300)


def test_a_peer_that_kills_the_process_does_not_end_the_sweep(tmp_path):
    """It is named in the rows, the others are timed, and what is done is not run again."""
    peer = tmp_path / "path" / "liger_kernel" / "ops"
    peer.mkdir(parents=True)
    for folder in (peer, peer.parent):
        (folder / "__init__.py").write_text("")
    (peer / "swiglu.py").write_text("import os; os._exit(3)")
    out = tmp_path / "a.jsonl"
    words = ("--ops", "swiglu", "--directions", "forward", "--against", "eager,liger")
    first = start(out, *words, "--columns", "256", path=peer.parents[1])
    assert first.returncode == 0, first.stderr
    assert "exit code 3; left out: liger at swiglu|forward|4x256" in first.stdout
    rows = {row.provider: row for row in read_lines(out, Measurement)}
    assert rows["liger"].error == "exit code 3 at first call"
    assert rows["eager"].timed
    before = out.read_text()
    again = start(out, *words, "--columns", "256", path=peer.parents[1])
    assert (again.returncode, out.read_text()) == (0, before)
    assert "swiglu" in again.stdout.splitlines()[-1]
    assert {json.loads(line)["op"] for line in before.splitlines()} == {"swiglu"}


def test_caches_can_be_filled_before_the_sweep(tmp_path):
    """Every provider is called once by the processes; a choice the compiler timed is forgotten."""
    peer = tmp_path / "path" / "liger_kernel" / "ops"
    peer.mkdir(parents=True)
    for folder in (peer, peer.parent):
        (folder / "__init__.py").write_text("")
    (peer / "softmax.py").write_text(
        "import os, pathlib\n"
        f"pathlib.Path({str(tmp_path)!r}, f'called-{{os.getpid()}}').touch()\n"
        "class LigerSoftmaxFunction:\n"
        "    def apply(x):\n"
        "        raise ValueError('no such width')\n"
    )
    chosen = tmp_path / "inductor" / "ab" / "x.best_config"
    chosen.parent.mkdir(parents=True)
    chosen.write_text("{}")
    words = ("--ops", "softmax", "--directions", "forward", "--against", "liger")
    done = start(
        tmp_path / "a.jsonl", *words, "--compilers", "2", "--columns", "256,17",
        path=peer.parents[1], TORCHINDUCTOR_CACHE_DIR=str(tmp_path / "inductor"),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "2 processes, 0 of which did not end well; 1 choices" in done.stdout
    assert "-- softmax liger: ValueError: no such width" in done.stderr
    assert len(list(tmp_path.glob("called-*"))) == 3  # two that compile, one that times
    assert done.stdout.index("-- compiled") < done.stdout.index("s left softmax")
    assert not chosen.exists()
    assert len(read_lines(tmp_path / "a.jsonl", Measurement)) == 2 * 2
