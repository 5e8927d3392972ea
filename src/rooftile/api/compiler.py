"""The rules about torch.compile against torch.compile itself: ``rooftile.check_compiler``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rooftile.records.agreement import Agreement
    from rooftile.records.graph import Phase
    from rooftile.records.plan import Plan

_PASSES: tuple[Phase, ...] = ("forward", "backward")


def check_compiler(plan: Plan, *, progress: Callable[[str], None] | None = None) -> Agreement:
    """Ask Inductor which kernels it makes of a captured step, and where the rules differ.

    Inductor runs up to its decision on kernels; nothing is generated and no GPU is needed. With a
    GPU it decides for that one, without as for Triton on a CPU: a GPU may differ where its rules
    ask for one. A pass of some thousand ops takes it a minute.

    Args:
        plan: What :func:`rooftile.advise` gives.
        progress: Told each stage in words.

    Raises:
        MissingDependencyError: torch is not installed.
        InputError: Inductor cannot take the graph.
    """
    from rooftile.api.dependencies import require_torch

    require_torch("asking the compiler needs torch")
    import torch

    from rooftile.capture.inductor import inductor_kernels
    from rooftile.plan.agreement import agreement

    cuda = torch.cuda.is_available()
    graph = plan.estimate.graph
    there = {op.phase for op in graph.ops}
    kernels = {}
    for phase in _PASSES:
        if phase in there:
            if progress is not None:
                progress(f"asking Inductor about the {phase} pass")
            kernels[phase] = inductor_kernels(graph, phase, "cuda" if cuda else "cpu")
    device = torch.cuda.get_device_name() if cuda else "cpu"
    return agreement(plan, kernels, {"torch": str(torch.__version__)}, device)
