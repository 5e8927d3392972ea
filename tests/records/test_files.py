"""What stands at a destination that is no plain file stays what it is."""

import os
import threading

from rooftile.records.files import write_whole


def test_a_link_stays_and_its_file_is_written(tmp_path):
    """The file that a symbolic link names has the data, and the link is still one."""
    real, link = tmp_path / "real.json", tmp_path / "link.json"
    real.write_text("old")
    link.symlink_to(real)
    write_whole(link, b"new")
    assert link.is_symlink()
    assert real.read_text() == "new"


def test_a_pipe_gets_the_data(tmp_path):
    """The reader of a named pipe has it, and the pipe is still one."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    got = []
    reader = threading.Thread(target=lambda: got.append(pipe.read_bytes()))
    reader.start()
    write_whole(pipe, b"data")
    reader.join(timeout=10)
    assert got == [b"data"]
    assert pipe.is_fifo()


def test_a_device_stays_a_device():
    """The null device takes the data and is not replaced."""
    before = os.stat(os.devnull)
    write_whole(os.devnull, b"data")
    after = os.stat(os.devnull)
    assert (after.st_ino, after.st_rdev) == (before.st_ino, before.st_rdev)
