"""What to do about each op of a priced step: ``rooftile.advise(...)``."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rooftile.records.estimate import Estimate
    from rooftile.records.plan import Plan

HOT_SHARE = 0.01


def advise(estimate: Estimate, *, hot_share: float = HOT_SHARE) -> Plan:
    """Say which ops may share a kernel, what that saves, and what to do about each op.

    ``rooftile.advise(rooftile.audit("model.py:make"))``. Nothing is loaded but the standard
    library, and 8,000 ops take under a second.

    Args:
        estimate: What :func:`rooftile.audit` gives.
        hot_share: Share of the step's least time, 0 to 1, from which ops that one kernel would
            serve count as hot.

    Returns:
        Fusion groups with their traffic before and after, named refusals, and a verdict for every
        op that launches a kernel: LEAVE IT, USE LIBRARY, AUTO-FUSE or HAND-WRITE.

    Raises:
        InputError: ``hot_share`` is no share.
    """
    from rooftile.plan.decide import decide

    return decide(estimate, hot_share=hot_share)


def check_hot_share(hot_share: float) -> None:
    """Refuse a threshold that is no share, before any work is done for it.

    Raises:
        InputError: It is not from 0 to 1.
    """
    from rooftile.errors import InputError

    if not 0 <= hot_share <= 1:
        raise InputError(f"hot_share must be from 0 to 1, got {hot_share}")
