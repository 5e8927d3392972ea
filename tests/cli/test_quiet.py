"""Which words of libraries the command line keeps back, and which it lets through."""

from __future__ import annotations

import logging
import warnings

import pytest

from rooftile.cli.quiet import quiet


@pytest.fixture
def heard(monkeypatch):
    """Names of the loggers whose records reach a handler that takes all."""
    for variable in ("TORCH_LOGS", "TRANSFORMERS_VERBOSITY", "HF_HUB_VERBOSITY"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr("sys.warnoptions", [])
    names: list[str] = []
    handler = logging.Handler(logging.NOTSET)
    handler.emit = lambda record: names.append(record.name)
    loggers = [logging.Logger(name, logging.DEBUG) for name in
               ("torch._subclasses.fake_tensor", "transformers", "mine", "torchlike")]  # fmt: skip

    def speak():
        names.clear()
        for logger in loggers:
            logger.addHandler(handler)
            logger.error("words")
            logger.removeHandler(handler)
        return names

    return speak


def test_logs_of_libraries_are_kept_back_and_come_again(heard):
    """The user's own logs stay, also those of a name that begins alike."""
    everything = ["torch._subclasses.fake_tensor", "transformers", "mine", "torchlike"]
    assert heard() == everything
    with quiet():
        assert heard() == ["mine", "torchlike"]
    assert heard() == everything


def test_they_come_back_after_an_error(heard):
    """A command that fails leaves logging as it was."""
    with pytest.raises(ZeroDivisionError), quiet():
        raise ZeroDivisionError
    assert len(heard()) == 4


def test_a_log_that_the_user_asks_for_is_let_through(heard, monkeypatch):
    """By torch's own variable, and by transformers'."""
    monkeypatch.setenv("TORCH_LOGS", "+dynamo")
    with quiet():
        assert heard() == ["torch._subclasses.fake_tensor", "mine", "torchlike"]
    monkeypatch.setenv("TRANSFORMERS_VERBOSITY", "info")
    with quiet():
        assert len(heard()) == 4


@pytest.mark.parametrize("asked", [False, True])
def test_warnings(asked, heard, monkeypatch):
    """Kept back, unless Python was started with -W."""
    monkeypatch.setattr("sys.warnoptions", ["default"] if asked else [])
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        with quiet():
            warnings.warn("slow", UserWarning, stacklevel=1)
        assert len(seen) == asked
