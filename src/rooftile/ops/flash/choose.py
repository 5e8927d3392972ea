"""Which kernel runs a call of attention, and why.

The rules of the forward, in order:

- keys in pages: ``decode``, which alone reads them;
- at most 64 queries in a group of heads, and four keys or more for each query: ``decode``, which
  splits the keys among programs and reads them once for a group;
- on Hopper, 16-bit operands that TMA can read, causal or with a window at most, packed or not:
  ``hopper``;
- else ``portable``.

The backward is ``hopper`` for what its forward takes, unless the log-sum-exp has a gradient; else
``portable``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from rooftile.errors import InputError
from rooftile.ops._launch import sm_count
from rooftile.ops.flash.call import Call
from rooftile.ops.flash.decode import MOST_ROWS, decode_launch, decode_splits, launch_decode
from rooftile.ops.flash.fwd import launch_fwd
from rooftile.ops.flash.problem import Problem, itemsize_of
from rooftile.plan.launch_attention import AttentionLaunch, attention_launch

if TYPE_CHECKING:
    from rooftile.ops.flash.packed_tiles import Packing

_KEYS_A_QUERY = 4
_HOPPER = "sm_90"
_ROW_ELEMENTS = 8  # of 2 bytes: rows of TMA are multiples of 16 bytes


@dataclass(frozen=True, slots=True)
class AttentionPlan:
    """Which kernels run a call.

    Attributes:
        forward: ``"hopper"``, ``"portable"`` or ``"decode"``.
        backward: ``"hopper"``, ``"portable"``, or ``""`` where there is none.
        reasons: Kernel that does not run to the rule that rules it out.
        tile: Launch parameters of the forward; None of ``"hopper"``, whose are fixed by head dim.
        num_splits: Parts that the keys are split into.
    """

    forward: str
    backward: str
    reasons: dict[str, str]
    tile: AttentionLaunch | None
    num_splits: int = 1


def plan_of(call: Call, problem: Problem, num_splits: int, multiprocessors: int) -> AttentionPlan:
    """Choose the kernels of a call.

    Args:
        call: Its tensors.
        problem: What it asks, perhaps of another GPU than the tensors' own.
        num_splits: Parts that the caller wants; 0: chosen.
        multiprocessors: Of the GPU.

    Raises:
        InputError: ``num_splits`` is given where the keys cannot be split.
    """
    refusal = "" if problem.paged else _decode_refusal(problem)
    if num_splits and refusal:
        if problem.varlen or problem.dropout_p:
            raise InputError(f"num_splits must be 0 here, got {num_splits}: {refusal}")
        refusal = ""
    hopper = hopper_refusal(call, problem)
    reasons = {"decode": refusal, "hopper": hopper}
    backward = "" if problem.paged else backward_of(hopper)
    if refusal and not hopper:
        return AttentionPlan("hopper", backward, {"decode": refusal}, None)
    if refusal:
        width = max(problem.head_dim, problem.v_dim)
        tile = attention_launch("attention_fwd", width, itemsize_of(problem), problem.arch)
        return AttentionPlan("portable", backward, reasons, tile)
    tile = decode_launch(problem)
    why = "keys lie in pages" if problem.paged else "few queries"
    most = max(1, problem.k_len)  # more parts have no key
    splits = min(num_splits, most) or decode_splits(problem, tile, multiprocessors)
    return AttentionPlan("decode", backward, {"portable": why, "hopper": why}, tile, splits)


def backward_of(hopper: str) -> str:
    """The backward's kernel, where ``hopper`` is why the Hopper kernels do not run."""
    return "portable" if hopper else "hopper"


def hopper_refusal(call: Call, problem: Problem) -> str:
    """Why the Hopper kernels cannot take a call; "" if they can."""
    if problem.arch != _HOPPER:
        return f"{problem.arch} is not {_HOPPER}"
    lacking = {
        "pages": problem.paged,
        "lengths in a cache": problem.key_lengths,
        "mask": problem.mask != "",
        "softcap": problem.softcap > 0,
        "ALiBi": problem.alibi,
        "sinks": problem.sinks,
        "dropout": problem.dropout_p > 0,
    }
    found = [name for name, asked in lacking.items() if asked]
    if found:
        return f"no {found[0]}"
    if problem.head_dim % _ROW_ELEMENTS or problem.v_dim % _ROW_ELEMENTS:
        return f"head dims {problem.head_dim} and {problem.v_dim} are not multiples of 8"
    left, _ = band_of(problem)
    if left is not None and left < 0:
        return "the window ends before a query's own row"
    from rooftile.ops.flash.hopper_fwd import shapes_reason  # Gluon: only where it is wanted

    return shapes_reason(call.q, call.k, call.v, problem.scale) or ""


def band_of(problem: Problem) -> tuple[int | None, int | None]:
    """Query i sees keys i - left to i + right; None: no bound.

    Packed sequences have a band each, by their own lengths: these are its bounds as they are given.
    """
    shift = problem.k_len - problem.q_len if problem.bottom_right and not problem.varlen else 0
    left = None if problem.window_left < 0 else problem.window_left - shift
    return left, None if problem.window_right < 0 else problem.window_right + shift


def packing_of(call: Call) -> Packing | None:
    """Where packed sequences lie; None where they are not packed."""
    if call.cu_q is None or call.cu_k is None:
        return None
    from rooftile.ops.flash.packed_tiles import Packing

    same = call.cu_q.data_ptr() == call.cu_k.data_ptr()  # queries are as many as keys
    bounded = call.window_left >= 0 or call.window_right >= 0
    return Packing(call.cu_q, call.cu_k, call.bottom_right and bounded and not same)


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
    problem = call.problem()
    plan = plan_of(call, problem, num_splits, sm_count(call.device))
    if plan.forward == "hopper":
        from rooftile.ops.flash.hopper_fwd import attention_fwd

        left, right = band_of(problem)
        attention_fwd(
            call.q, call.k, call.v, o, lse,
            scale=call.scale, left=left, right=right, packing=packing_of(call),
        )  # fmt: skip
    elif plan.tile is not None and plan.forward == "decode":
        launch_decode(call, plan.tile, plan.num_splits, o, lse)
    else:
        launch_fwd(call, o, lse)


def runs_hopper_backward(call: Call, dlse: Tensor | None) -> bool:
    """Whether the Hopper kernels compute a call's gradients."""
    return dlse is None and backward_of(hopper_refusal(call, call.problem())) == "hopper"


def run_hopper_backward(
    call: Call, do: Tensor, o: Tensor, lse: Tensor, gradients: tuple[Tensor, Tensor, Tensor]
) -> None:
    """Write the gradients of queries, keys and values; those that nobody wants are dropped."""
    from rooftile.ops.flash.hopper_bwd import attention_bwd

    operands = (call.q, call.k, call.v)
    dq, dk, dv = (
        g if g.shape == t.shape else torch.empty_like(t, memory_format=torch.contiguous_format)
        for g, t in zip(gradients, operands, strict=True)
    )
    left, right = band_of(call.problem())
    attention_bwd(
        *operands, o, lse, do, dq, dk, dv,
        scale=call.scale, left=left, right=right, deterministic=call.deterministic,
        packing=packing_of(call),
    )  # fmt: skip
