"""What importing Rooftile costs, and what its names are."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import rooftile

SRC = Path(__file__).parents[1] / "src"
ENV = {**os.environ, "PYTHONPATH": str(SRC)}


def python(*args: str) -> subprocess.CompletedProcess[str]:
    """Run a fresh Python that finds this checkout."""
    return subprocess.run(
        [sys.executable, *args], check=True, capture_output=True, text=True, env=ENV
    )


def processor_s() -> float:
    """Processor time of this process's children so far [s]."""
    used = os.times()
    return used.children_user + used.children_system


def test_import_loads_the_standard_library_only():
    """No torch, no msgspec, nothing that has to be installed."""
    code = (
        "import sys; before = set(sys.modules); import rooftile; "
        "print(*{name.split('.')[0] for name in set(sys.modules) - before})"
    )
    loaded = set(python("-c", code).stdout.split())
    assert loaded - set(sys.stdlib_module_names) == {"rooftile"}


def test_help_answers_at_once():
    """``rooftile --help`` in under 0.3 s, the best of five, and without torch or rich.

    Time of the processor: it waits for nothing, so on an idle machine that is the time on the wall,
    and other tests beside it do not count.
    """
    times = []
    for _ in range(5):
        start = processor_s()
        done = python("-m", "rooftile", "--help")
        times.append(processor_s() - start)
    assert "audit" in done.stdout
    assert min(times) < 0.3
    trace = python("-X", "importtime", "-m", "rooftile", "--help").stderr
    loaded = {line.rpartition("|")[2].strip().split(".")[0] for line in trace.splitlines()}
    assert "typer" in loaded
    assert loaded.isdisjoint({"torch", "rich", "msgspec", "numpy"})


def test_public_names_are_what_all_says():
    """Each is there, a function has a docstring, and dir() shows it."""
    for name in rooftile.__all__:
        assert getattr(rooftile, name)
        assert name in dir(rooftile)
        assert name == "__version__" or getattr(rooftile, name).__doc__


def test_an_unknown_name_is_an_attribute_error():
    """As of any module, so that hasattr works."""
    assert not hasattr(rooftile, "no_such_function")
    with pytest.raises(ImportError):
        exec("from rooftile import no_such_function")


def test_functions_stay_functions_whatever_is_imported():
    """Importing every module of the light rooms puts no module in the place of a function."""
    code = (
        "import importlib, pkgutil, types, rooftile, rooftile.api, rooftile.cli, rooftile.report\n"
        "for room in (rooftile.api, rooftile.cli, rooftile.report):\n"
        "    for info in pkgutil.walk_packages(room.__path__, room.__name__ + '.'):\n"
        "        importlib.import_module(info.name)\n"
        "        for name in set(rooftile.__all__) - {'__version__'}:\n"
        "            assert isinstance(getattr(rooftile, name), types.FunctionType), name\n"
        "print('all', len(rooftile.__all__))"
    )
    assert python("-c", code).stdout.startswith("all")
