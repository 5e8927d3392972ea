"""``rooftile export``: what it refuses, and that a bundle is written whole or not at all."""

from __future__ import annotations

import errno
import json
import os
import threading
from pathlib import Path

import pytest
from export.conftest import KERNELS

from rooftile.errors import InputError
from rooftile.export import write
from rooftile.export.write import BUNDLE, CRATE, check_folder, write_folder


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    """An empty working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ((), "op must be given"),
        (("softmax",), "--out must be given"),
        (("--out", "b"), "op must be given with --out"),
        (("softmix", "--out", "b"), "op must be one of softmax, log_softmax, rms_norm"),
        (("linear_cross_entropy", "--out", "b"), "cannot be exported: it is a training loss"),
        (("softmax", "--out", "b", "--arch", "sm_70"), "target must be one of sm_80"),
        (("softmax", "--out", "b", "--arch", "sm_77"), "sm_77"),
        (("softmax", "--out", "b", "--arch", "sm_80,sm_80"), "arch sm_80 is given twice"),
        (("softmax", "softmax", "--out", "b"), "op softmax is given twice"),
        (("softmax", "--out", "b", "--dtype", "int8"), "dtype must be one of float32"),
        (("softmax", "--out", "b", "--size", "rows=4"), "size must be one of cols, got 'rows'"),
        (("softmax", "--out", "b", "--size", "cols=x"), "--size cols must be whole numbers"),
        (("softmax", "--out", "b", "--size", "cols=0"), "size cols must be 1 or more, got 0"),
        (("softmax", "--out", "b", "--ptx-version", "12"), "ptx-version must be 70 to 99"),
        (("softmax", "--out", "none/b"), "the folder none does not exist"),
        ((f"{KERNELS}:none", "--out", "b"), "has no kernel 'none'"),
    ],
)
def test_bad_input_is_refused_in_one_line(cli, here, args, said):
    """Exit code 2, the argument and what was wanted; nothing is written."""
    result = cli("export", *args)
    assert (result.code, result.out) == (2, "")
    assert said in result.err
    assert not list(here.iterdir())


def test_an_architecture_that_triton_cannot_build_for_is_refused(cli, here, monkeypatch):
    """PTX 7.0 has no sm_90: the assembler's own words, and no bundle."""
    result = cli("export", "softmax", "--arch", "sm_90", "--ptx-version", "70", "--out", "b")
    assert result.code == 2
    assert "cannot be exported" in result.err
    assert not list(here.iterdir())


def test_the_interpreter_is_refused(cli, here, monkeypatch):
    """It would leave no binary."""
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    result = cli("export", "softmax", "--out", "b")
    assert result.code == 2
    assert "TRITON_INTERPRET must not be set" in result.err


def test_a_bundle_is_kept_unless_it_may_be_replaced(cli, here):
    """--force replaces a bundle, and never another folder."""
    args = ("export", "softmax", "--arch", "sm_80", "--out", "b")
    write_folder(here / "b", {"manifest.json": b'"rooftile.manifest"', "mine.txt": b"kept"})
    refused = cli(*args)
    assert refused.code == 2
    assert "b exists and is kept: give --force" in refused.err
    assert (here / "b" / "mine.txt").exists()
    assert cli(*args, "--force").code == 0
    assert not (here / "b" / "mine.txt").exists()
    (here / "other").mkdir()
    (here / "other" / "manifest.json").write_text("{}")
    refused = cli("export", "softmax", "--out", "other", "--force")
    assert "the folder is not empty and has no manifest.json of ours" in refused.err
    assert (here / "other" / "manifest.json").read_text() == "{}"


def test_json_is_the_manifest(cli, here):
    """stdout is the record that was written, and the table is one line a kernel."""
    result = cli("export", "softmax", "--arch", "sm_80", "--out", "b", "--json")
    assert json.loads(result.out) == json.loads((here / "b" / "manifest.json").read_text())
    assert "wrote b: 2 kernels" in result.err


def test_a_full_disk_leaves_no_half_bundle(here, monkeypatch):
    """Whichever file no longer fits: the bundle before is whole, and nothing lies beside it."""
    write_folder(here / "b", {"manifest.json": b'"rooftile.manifest"', "old": b"old"})
    files = {"manifest.json": b"new", "golden/x": b"x" * 100, "y": b"y"}
    room = os.fsync

    for fits in range(len(files)):
        left = [fits]

        def full(descriptor: int, left: list[int] = left) -> None:
            if left[0] == 0:
                raise OSError(errno.ENOSPC, "No space left on device")
            left[0] -= 1
            room(descriptor)

        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(InputError, match="No space left on device"):
            write_folder(check_folder("b", True, BUNDLE), files, force=True)
        assert [path.name for path in here.iterdir()] == ["b"]
        assert (here / "b" / "old").read_bytes() == b"old"


def test_a_disk_of_no_room_is_really_met(here):
    """The same with a limit of the operating system on what a process may write."""
    import resource
    import signal

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
        with pytest.raises(InputError, match="cannot write"):
            write_folder(here / "b", {"manifest.json": b"m", "large": b"x" * 5000})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert not list(here.iterdir())


def test_a_bundle_that_has_come_meanwhile_is_kept(here):
    """Two exports into one folder: the second to finish says so, and the first's is whole."""
    target = check_folder("b", False, BUNDLE)
    write_folder(here / "b", {"manifest.json": b"first"})
    with pytest.raises(InputError, match="has come into being and is kept: give --force"):
        write_folder(target, {"manifest.json": b"second"})
    assert (here / "b" / "manifest.json").read_bytes() == b"first"
    assert [path.name for path in here.iterdir()] == ["b"]


def test_a_reader_never_finds_half_a_bundle(here):
    """While it is replaced again and again its name always leads to a whole one."""
    files = {"manifest.json": b"m", "kernel": b"k"}
    write_folder(here / "b", files)
    missing, done = [], threading.Event()

    def read() -> None:
        while not done.is_set():
            if not os.path.isdir("b"):
                missing.append(1)

    reader = threading.Thread(target=read)
    reader.start()
    for _ in range(50):
        write_folder(here / "b", files, force=True)
    done.set()
    reader.join()
    assert not missing
    assert [path.name for path in here.iterdir()] == ["b"]


def test_an_interrupt_brings_back_what_was_there(here, monkeypatch):
    """Where folders cannot be swapped in one step, the old one returns to its name."""
    write_folder(here / "b", {"manifest.json": b"old"})
    monkeypatch.setattr(write, "_exchange", lambda one, other: False)
    rename = os.rename

    def interrupted(one, other) -> None:
        if str(one).endswith(".part"):
            raise KeyboardInterrupt
        rename(one, other)

    monkeypatch.setattr(os, "rename", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_folder(here / "b", {"manifest.json": b"new"}, force=True)
    assert (here / "b" / "manifest.json").read_bytes() == b"old"
    assert [path.name for path in here.iterdir()] == ["b"]


def test_the_crate_is_written_and_kept(cli, here):
    """A second time it is kept; a crate of the user's own is never replaced."""
    assert cli("export", "--rust", "host").code == 0
    assert (here / "host" / "src" / "lib.rs").is_file()
    assert "host exists and is kept" in cli("export", "--rust", "host").err
    assert cli("export", "--rust", "host", "--force").code == 0
    (here / "own").mkdir()
    (here / "own" / "Cargo.toml").write_text('name = "own"')
    with pytest.raises(InputError, match=r"has no Cargo\.toml of ours"):
        check_folder("own", True, CRATE)


def test_the_schema_is_published(cli):
    """`rooftile schema manifest` prints it."""
    schema = json.loads(cli("schema", "manifest").out)
    assert "kernels" in json.dumps(schema)
