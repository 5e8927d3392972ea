"""A user's file and its neighbours leave the process as it was."""

import sys
from pathlib import Path

import pytest

import rooftile
from rooftile.errors import InputError
from rooftile.user_file import files_in, free_name, importable


def write(folder, name, text):
    """A file, its folder made."""
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(text)
    return path


def test_neighbours_come_and_go(tmp_path):
    """Two folders have a neighbour of the same name: each file finds its own, nothing stays."""
    path, modules = list(sys.path), set(sys.modules)
    for value in (1, 2):
        file = write(tmp_path / str(value), "case.py", "")
        write(file.parent, "beside_it.py", f"VALUE = {value}")
        with importable([file]):
            import beside_it

            assert value == beside_it.VALUE
    assert sys.path == path
    assert set(sys.modules) == modules


def test_it_leaves_after_an_error(tmp_path):
    """The path is as before when the user's code raises."""
    path = list(sys.path)
    with pytest.raises(ZeroDivisionError), importable([tmp_path / "a.py"]):
        raise ZeroDivisionError
    assert sys.path == path


def test_a_file_called_json_is_no_json():
    """A name that a module of Python's has is not taken from it."""
    assert free_name(Path("somewhere/json.py")) == "target_json"
    assert free_name(Path("somewhere/case_of_mine.py")) == "case_of_mine"


def test_files_of_targets():
    """Ops and cases that are objects have no file."""
    assert files_in(["softmax", "a/b.py:CASE", object()]) == ["a/b.py"]


def test_a_benchmark_s_file_leaves_nothing(tmp_path):
    """A case's file is refused or run, and its folder is no longer on the path."""
    path, modules = list(sys.path), set(sys.modules)
    write(tmp_path, "beside_case.py", "WRONG = 3")
    file = write(tmp_path, "wrong_case.py", "from beside_case import WRONG\nCASE = WRONG\n")
    with pytest.raises(InputError, match=r"must be a rooftile\.bench\.case\.Case"):
        rooftile.benchmark(f"{file}:CASE", clock=object(), device="cpu")
    assert sys.path == path
    assert not {"beside_case", "wrong_case"} & (set(sys.modules) - modules)
