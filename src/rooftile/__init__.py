"""Rooftile finds the memory wall in a PyTorch model and says what to do about it."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rooftile.api.advise import advise, what_if
    from rooftile.api.audit import audit
    from rooftile.api.claim import claim, claims_from_file
    from rooftile.api.compiler import check_compiler
    from rooftile.api.fusion import fusion
    from rooftile.api.gate import diff, gate
    from rooftile.api.gpus import gpu, gpus
    from rooftile.api.roofline import roofline
    from rooftile.api.schema import schema

__version__ = "0.1.0"

__all__ = [
    "__version__",
    "advise",
    "audit",
    "check_compiler",
    "claim",
    "claims_from_file",
    "diff",
    "fusion",
    "gate",
    "gpu",
    "gpus",
    "roofline",
    "schema",
    "what_if",
]

# public function -> the module that holds it: loaded when it is first asked for
_HOMES = {
    "advise": "rooftile.api.advise",
    "audit": "rooftile.api.audit",
    "check_compiler": "rooftile.api.compiler",
    "claim": "rooftile.api.claim",
    "claims_from_file": "rooftile.api.claim",
    "diff": "rooftile.api.gate",
    "fusion": "rooftile.api.fusion",
    "gate": "rooftile.api.gate",
    "gpu": "rooftile.api.gpus",
    "gpus": "rooftile.api.gpus",
    "roofline": "rooftile.api.roofline",
    "schema": "rooftile.api.schema",
    "what_if": "rooftile.api.advise",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    function = getattr(import_module(_HOMES[name]), name)
    globals()[name] = function  # found without this function next time
    return function


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
