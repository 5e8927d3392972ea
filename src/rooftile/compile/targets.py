"""The targets that can be compiled for, as Triton names them."""

from __future__ import annotations

from typing import NamedTuple

from rooftile.errors import InputError
from rooftile.spec.limits import AmdLimits, NvidiaLimits, limits, targets

LEAST_CAPABILITY = 80  # what is older Triton's tests no longer cover


class Target(NamedTuple):
    """What Triton calls a GPUTarget."""

    name: str
    backend: str
    arch: int | str
    warp_size: int


def target_of(name: str) -> Target:
    """The target of a name.

    Args:
        name: ``"sm_90"``, ``"9.0"``, ``"gfx942"``.

    Raises:
        InputError: There are no limits for it, or no kernel can be compiled for it.
    """
    unit = limits(name)
    if isinstance(unit, AmdLimits):
        return Target(unit.target, "hip", unit.target, unit.wavefront_size)
    capability = _capability(unit)
    if capability < LEAST_CAPABILITY:
        known = ", ".join(compile_targets())
        raise InputError(f"target must be one of {known} to compile for, got {unit.target!r}")
    return Target(unit.target, "cuda", capability, unit.warp_size)


def compile_targets() -> tuple[str, ...]:
    """All targets that kernels are compiled for."""
    return tuple(
        name
        for name in targets()
        if isinstance(unit := limits(name), AmdLimits) or _capability(unit) >= LEAST_CAPABILITY
    )


def _capability(unit: NvidiaLimits) -> int:
    return int(unit.target.removeprefix("sm_"))
