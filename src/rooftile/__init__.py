"""Rooftile finds the memory wall in a PyTorch model and says what to do about it."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rooftile.api.advise import advise, what_if
    from rooftile.api.audit import audit
    from rooftile.api.benchmark import benchmark
    from rooftile.api.claim import claim, claims_from_file
    from rooftile.api.compiler import check_compiler
    from rooftile.api.export import export_bundle, write_rust_host
    from rooftile.api.fusion import fusion
    from rooftile.api.gate import diff, gate
    from rooftile.api.gpus import gpu, gpus
    from rooftile.api.load import load
    from rooftile.api.occupancy import (
        compile_kernel,
        occupancy,
        simple_occupancy,
        sweep_kernel,
    )
    from rooftile.api.roofline import roofline
    from rooftile.api.schema import schema
    from rooftile.api.tile import tile, tile_plan
    from rooftile.api.timeline import timeline
    from rooftile.api.traffic import kernel_traffic, traffic
    from rooftile.api.write_report import write_report

__version__ = "0.1.0"

__all__ = [
    "__version__",
    "advise",
    "audit",
    "benchmark",
    "check_compiler",
    "claim",
    "claims_from_file",
    "compile_kernel",
    "diff",
    "export_bundle",
    "fusion",
    "gate",
    "gpu",
    "gpus",
    "kernel_traffic",
    "load",
    "occupancy",
    "roofline",
    "schema",
    "simple_occupancy",
    "sweep_kernel",
    "tile",
    "tile_plan",
    "timeline",
    "traffic",
    "what_if",
    "write_report",
    "write_rust_host",
]

# public function -> the module that holds it: loaded when it is first asked for
_HOMES = {
    "advise": "rooftile.api.advise",
    "audit": "rooftile.api.audit",
    "benchmark": "rooftile.api.benchmark",
    "check_compiler": "rooftile.api.compiler",
    "claim": "rooftile.api.claim",
    "claims_from_file": "rooftile.api.claim",
    "compile_kernel": "rooftile.api.occupancy",
    "diff": "rooftile.api.gate",
    "export_bundle": "rooftile.api.export",
    "fusion": "rooftile.api.fusion",
    "gate": "rooftile.api.gate",
    "gpu": "rooftile.api.gpus",
    "gpus": "rooftile.api.gpus",
    "kernel_traffic": "rooftile.api.traffic",
    "load": "rooftile.api.load",
    "occupancy": "rooftile.api.occupancy",
    "roofline": "rooftile.api.roofline",
    "schema": "rooftile.api.schema",
    "simple_occupancy": "rooftile.api.occupancy",
    "sweep_kernel": "rooftile.api.occupancy",
    "tile": "rooftile.api.tile",
    "tile_plan": "rooftile.api.tile",
    "timeline": "rooftile.api.timeline",
    "traffic": "rooftile.api.traffic",
    "what_if": "rooftile.api.advise",
    "write_report": "rooftile.api.write_report",
    "write_rust_host": "rooftile.api.export",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    function = getattr(import_module(_HOMES[name]), name)
    globals()[name] = function  # found without this function next time
    return function


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
