"""What an extra of the package brings, and how to get it."""

from __future__ import annotations

from importlib import import_module

from rooftile.errors import MissingDependencyError


def require_torch(what: str) -> None:
    """Torch, or a message that says how to get it.

    Args:
        what: Who needs what: ``"a benchmark needs torch and Triton"``.

    Raises:
        MissingDependencyError: torch is not installed; one that is broken raises its own error.
    """
    try:
        import_module("torch")
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise MissingDependencyError(
            f"{what}, which is not installed: pip install 'rooftile[torch]', or 'rooftile[hf]' for "
            "a transformers config.json"
        ) from error
