"""Which kernel runs a call of attention, and why.

The rules, in order:

- keys in pages: ``decode``, which alone reads them;
- at most 64 queries in a group of heads, and four keys or more for each query: ``decode``, which
  splits the keys among programs and reads them once for a group;
- else ``portable``.

The backward is ``portable``: without atomics, so that it gives the same bits each time.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from rooftile.errors import InputError
from rooftile.ops._launch import sm_count
from rooftile.ops.flash.call import Call
from rooftile.ops.flash.decode import MOST_ROWS, decode_launch, decode_splits, launch_decode
from rooftile.ops.flash.fwd import launch_fwd
from rooftile.ops.flash.problem import Problem, itemsize_of
from rooftile.plan.launch_attention import AttentionLaunch, attention_launch

_KEYS_A_QUERY = 4


@dataclass(frozen=True, slots=True)
class AttentionPlan:
    """Which kernels run a call.

    Attributes:
        forward: ``"portable"`` or ``"decode"``.
        backward: ``"portable"``, or ``""`` where there is none.
        reasons: Kernel that does not run to the rule that rules it out.
        tile: Launch parameters of the forward.
        num_splits: Parts that the keys are split into.
    """

    forward: str
    backward: str
    reasons: dict[str, str]
    tile: AttentionLaunch
    num_splits: int = 1


def plan_of(problem: Problem, num_splits: int, multiprocessors: int) -> AttentionPlan:
    """Choose the kernels of a call.

    Args:
        problem: What is asked.
        num_splits: Parts that the caller wants; 0: chosen.
        multiprocessors: Of the GPU.

    Raises:
        InputError: ``num_splits`` is given where the keys cannot be split.
    """
    refusal = _decode_refusal(problem)
    backward = "" if problem.paged else "portable"
    if num_splits and refusal and not problem.paged:
        if problem.varlen or problem.dropout_p:
            raise InputError(f"num_splits must be 0 here, got {num_splits}: {refusal}")
        refusal = ""
    if refusal and not problem.paged:
        width = max(problem.head_dim, problem.v_dim)
        tile = attention_launch("attention_fwd", width, itemsize_of(problem), problem.arch)
        return AttentionPlan("portable", backward, {"decode": refusal}, tile)
    tile = decode_launch(problem)
    why = "keys lie in pages" if problem.paged else "few queries"
    splits = num_splits or decode_splits(problem, tile, multiprocessors)
    return AttentionPlan("decode", backward, {"portable": why}, tile, splits)


def _decode_refusal(problem: Problem) -> str:
    """Why the keys are not split; "" if they are."""
    rows = problem.q_len * problem.group
    if problem.varlen:
        return "sequences are packed"
    if problem.dropout_p:
        return "dropout"
    if rows > MOST_ROWS:
        return f"{rows} queries in a group of heads, above {MOST_ROWS}"
    if problem.k_len < _KEYS_A_QUERY * problem.q_len:
        return f"{problem.k_len} keys are under {_KEYS_A_QUERY} for each of {problem.q_len} queries"
    return ""


def run_forward(call: Call, o: Tensor, lse: Tensor, num_splits: int) -> None:
    """Write the output and the log-sum-exp of a call."""
    plan = plan_of(call.problem(), num_splits, sm_count(call.device))
    if plan.forward == "decode":
        launch_decode(call, plan.tile, plan.num_splits, o, lse)
    else:
        launch_fwd(call, o, lse)
