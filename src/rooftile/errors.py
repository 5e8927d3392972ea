"""Every error that Rooftile raises on purpose, with the exit code it gives the command line."""

from __future__ import annotations


class RooftileError(Exception):
    """Base of all errors raised on purpose. The command line prints it and exits with exit_code."""

    exit_code = 1


class InputError(RooftileError, ValueError):
    """An argument is wrong: the message names it, what was wanted and what came."""

    exit_code = 2


class UnknownDeviceError(InputError):
    """A GPU's name is in no table. The message lists near names."""


class TargetError(InputError):
    """A target to audit cannot be found, imported, built or run.

    Attributes:
        traceback: The user's own part of the traceback, or "" where there is none.
    """

    def __init__(self, message: str, traceback: str = "") -> None:
        super().__init__(message)
        self.traceback = traceback


class FileFormatError(InputError):
    """A file is not what it should be: truncated, of another kind or another schema version."""


class MissingDependencyError(RooftileError, ImportError):
    """A part needs a package that is not installed. The message says how to install it."""

    exit_code = 2


class GateError(RooftileError):
    """A gate does not hold: a claim, a budget or a kernel's result."""
