"""Who else runs a case: torch's own ops, the compiler, and libraries where they are installed."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import metadata
from typing import cast

import torch

from rooftile.bench.case import Case, Function, Peer
from rooftile.errors import InputError

EVERYWHERE = ("eager", "compile")
LIBRARIES = {
    "liger": "liger-kernel",
    "quack": "quack-kernels",
    "flash-attn-4": "flash-attn-4",
}
"""Peer to the distribution that brings it; they are never installed with Rooftile."""


def known_peers(cases: Sequence[Case]) -> tuple[str, ...]:
    """All names that ``against`` may have for these cases."""
    own = (name for case in cases for name in case.peers)
    return tuple(dict.fromkeys((*EVERYWHERE, *LIBRARIES, *own)))


def check_against(against: Sequence[str], cases: Sequence[Case]) -> None:
    """Refuse a name that is no peer.

    Raises:
        InputError: The message lists the peers.
    """
    known = known_peers(cases)
    for name in against:
        if name not in known:
            raise InputError(f"against must be of {', '.join(known)}, got {name!r}")


def providers(case: Case, against: Sequence[str]) -> dict[str, Peer]:
    """The case's own function first, then those of the peers that have such an op."""
    own = {
        "eager": Peer(lambda: case.reference),
        "compile": Peer(lambda: _compiled(case.reference)),
        **case.peers,
    }
    found = {name: own[name] for name in against if name in own}
    return {case.provider: Peer(lambda: case.function), **found}


def versions() -> dict[str, str]:
    """Installed peer to its version."""
    found = {}
    for name, distribution in LIBRARIES.items():
        try:
            found[name] = metadata.version(distribution)
        except metadata.PackageNotFoundError:
            continue  # an absent peer has no version; that is what this says
    return found


def _compiled(reference: Function) -> Function:
    """The definition under torch.compile, for this shape alone."""
    import torch._functorch.config as functorch  # it has no public name for this switch

    torch._dynamo.reset()  # a second shape would be compiled for all shapes
    functorch.donated_buffer = False  # a backward is timed many times over one forward
    compiled = torch.compile(lambda *inputs: reference(*inputs), dynamic=False)
    return cast(Function, compiled)
