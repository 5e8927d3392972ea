"""One call of attention, ready to launch: its tensors with batch, heads, sequence and width."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from rooftile.ops._launch import architecture
from rooftile.ops.flash.problem import Problem
from rooftile.plan.launch import power_of_two
from rooftile.plan.launch_attention import AttentionLaunch

_INT32 = 2**31
_ROW_BYTES = 16  # of a vector load, and of a TMA row
_LEAST_DIM = 16  # of a matrix instruction's depth


@dataclass(frozen=True, slots=True)
class Call:
    """The arguments of the torch ops.

    Attributes:
        q: ``[batch, heads, q_len, head_dim]``; packed: ``[1, heads, tokens, head_dim]``.
        k: ``[batch, kv_heads, k_len, head_dim]``; packed likewise; paged: ``[pages, kv_heads,
            page_size, head_dim]``.
        v: As k, of width v_dim.
        mask: Additive or boolean, of 4 dimensions that broadcast, or None.
        slopes: ``[batch or 1, heads]`` float32, or None.
        sinks: ``[heads]``, or None.
        cu_q: ``[batch + 1]`` int32 starts of packed queries, or None.
        cu_k: Of packed keys.
        k_lens: ``[batch]`` int32 keys of each sequence, or None.
        block_table: ``[batch, pages of a sequence]`` int32, or None.
        seed: ``[1]`` int64, or None without dropout.
        scale, softcap, window_left, window_right, bottom_right, dropout_p: As in ``Problem``.
        longest_q: Queries of the longest sequence.
        longest_k: Keys of the longest sequence.
        deterministic: Whether gradients must come out bit-equal each time.
        mask_gradient: Whether the mask's gradient is wanted.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    mask: Tensor | None
    slopes: Tensor | None
    sinks: Tensor | None
    cu_q: Tensor | None
    cu_k: Tensor | None
    k_lens: Tensor | None
    block_table: Tensor | None
    seed: Tensor | None
    scale: float
    softcap: float
    window_left: int
    window_right: int
    bottom_right: bool
    dropout_p: float
    longest_q: int
    longest_k: int
    deterministic: bool = False
    mask_gradient: bool = False

    @property
    def batch(self) -> int:
        """Sequences."""
        return self.q.shape[0] if self.cu_q is None else self.cu_q.numel() - 1

    @property
    def heads(self) -> int:
        """Heads of queries."""
        return self.q.shape[1]

    @property
    def group(self) -> int:
        """Query heads that share a head of keys; 1 where there is none."""
        return self.heads // max(1, self.k.shape[1])

    @property
    def device(self) -> torch.device:
        """Where the tensors are."""
        return self.q.device

    def problem(self) -> Problem:
        """What the choice of a kernel depends on."""
        return Problem(
            batch=self.batch,
            heads=self.heads,
            kv_heads=self.k.shape[1],
            q_len=self.longest_q,
            k_len=self.longest_k,
            head_dim=self.q.shape[-1],
            v_dim=self.v.shape[-1],
            dtype=self.q.dtype,
            arch=architecture(self.device),
            window_left=self.window_left,
            window_right=self.window_right,
            bottom_right=self.bottom_right,
            scale=self.scale,
            softcap=self.softcap,
            mask=mask_kind(self.mask),
            mask_gradient=self.mask_gradient,
            alibi=self.slopes is not None,
            sinks=self.sinks is not None,
            dropout_p=self.dropout_p,
            varlen=self.cu_q is not None,
            key_lengths=self.k_lens is not None,
            paged=self.block_table is not None,
            aligned=all(map(is_aligned, (self.q, self.k, self.v))),
            deterministic=self.deterministic,
        )

    def tokens(self, t: Tensor, cu: Tensor | None) -> int:
        """Rows of a packed tensor; 0 where sequences are not packed."""
        return 0 if cu is None else t.shape[2]

    def constants(self, plan: AttentionLaunch) -> dict[str, Any]:
        """What the portable kernels are compiled for, but for their tile."""
        plain = (self.mask is None and self.slopes is None
                 and self.softcap == 0 and self.scale > 0)  # fmt: skip
        tensors = [self.q, self.k, self.v]
        return {
            "HEAD_DIM": self.q.shape[-1],
            "V_DIM": self.v.shape[-1],
            "BLOCK_D": max(_LEAST_DIM, power_of_two(self.q.shape[-1])),
            "BLOCK_DV": max(_LEAST_DIM, power_of_two(self.v.shape[-1])),
            "CAP": self.softcap > 0,
            "MASK": mask_kind(self.mask),
            "PLAIN": plain,
            "LEFT": self.window_left >= 0,
            "RIGHT": self.window_right >= 0,
            "BOTTOM_RIGHT": self.bottom_right,
            "WIDE": any(t.stride(2) * max(plan.block_m, plan.block_n) >= _INT32 for t in tensors),
            "PRECISION": "ieee",
            "num_warps": plan.num_warps,
            "num_stages": plan.num_stages,
        }


def mask_kind(mask: Tensor | None) -> str:
    """``"boolean"``, ``"additive"`` or ``""``."""
    if mask is None:
        return ""
    return "boolean" if mask.dtype == torch.bool else "additive"


def is_aligned(t: Tensor) -> bool:
    """Whether every row lies at a multiple of 16 bytes, its elements side by side."""
    size = t.element_size()
    rows = all(s * size % _ROW_BYTES == 0 for s in t.stride()[:-1])
    return rows and t.stride(-1) == 1 and t.data_ptr() % _ROW_BYTES == 0


def mask_strides(mask: Tensor | None) -> tuple[int, int, int, int]:
    """Strides of a mask, 0 where it broadcasts."""
    if mask is None:
        return (0, 0, 0, 0)
    sizes = zip(mask.shape, mask.stride(), strict=True)
    b, h, m, n = (0 if size == 1 else stride for size, stride in sizes)
    return b, h, m, n


def slope_strides(slopes: Tensor | None) -> tuple[int, int]:
    """Strides of ALiBi slopes by sequence and by head, 0 where they are the same for all."""
    if slopes is None:
        return (0, 0)
    return (0 if slopes.shape[0] == 1 else slopes.stride(0), slopes.stride(1))
