"""Launch parameters of the portable attention kernels, for each kind of GPU and head dimension.

Four families: ``attention_fwd`` holds a block of queries and walks the keys; ``attention_dkdv``
holds a block of keys and walks the queries; ``attention_dq`` holds queries again; and
``attention_decode`` packs the few queries of a group of heads and walks a part of the keys.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

from rooftile.errors import InputError
from rooftile.plan.launch_override import Overrides

FAMILIES = ("attention_fwd", "attention_dkdv", "attention_dq", "attention_decode")
# part of the multiprocessors that a number of splits must keep busy
_FULL = 0.94
_WIDTHS = (32, 64, 128, 256)
# compute capability -> kind: by shared memory of a block, 227, 163 and 99 KB (64 KB on CDNA)
_KINDS = {
    "sm_80": "large",
    "sm_87": "large",
    "sm_86": "small",
    "sm_89": "small",
    "sm_120": "small",
    "sm_121": "small",
    "sm_90": "hopper",
    "sm_100": "hopper",
    "sm_103": "hopper",
}


@dataclass(frozen=True, slots=True)
class AttentionLaunch:
    """How a portable attention kernel is launched.

    Attributes:
        block_m: Queries of a tile.
        block_n: Keys of a tile.
        num_warps: Warps of a program.
        num_stages: Tiles in flight ahead of the loop that uses them.
    """

    block_m: int
    block_n: int
    num_warps: int
    num_stages: int


# kind -> family -> head dimension up to 32, 64, 128, 256 -> tile, for elements of 2 bytes
_TILES: dict[str, dict[str, tuple[AttentionLaunch, ...]]] = {
    "hopper": {
        "attention_fwd": (
            AttentionLaunch(128, 64, 8, 3),
            AttentionLaunch(128, 64, 8, 3),
            AttentionLaunch(128, 64, 8, 3),
            AttentionLaunch(128, 64, 8, 2),
        ),
        "attention_dkdv": (
            AttentionLaunch(32, 128, 4, 3),
            AttentionLaunch(32, 128, 4, 3),
            AttentionLaunch(32, 64, 4, 3),
            AttentionLaunch(32, 32, 4, 2),
        ),
        "attention_dq": (
            AttentionLaunch(64, 64, 4, 3),
            AttentionLaunch(64, 64, 4, 3),
            AttentionLaunch(128, 64, 8, 3),
            AttentionLaunch(128, 32, 8, 2),
        ),
        "attention_decode": (AttentionLaunch(16, 64, 4, 3),) * 3 + (AttentionLaunch(16, 64, 4, 2),),
    },
    "large": {
        "attention_fwd": (
            AttentionLaunch(128, 64, 4, 3),
            AttentionLaunch(128, 64, 4, 3),
            AttentionLaunch(128, 64, 8, 3),
            AttentionLaunch(64, 32, 4, 2),
        ),
        "attention_dkdv": (
            AttentionLaunch(32, 128, 4, 2),
            AttentionLaunch(32, 128, 4, 2),
            AttentionLaunch(32, 128, 8, 2),
            AttentionLaunch(32, 64, 8, 1),
        ),
        "attention_dq": (
            AttentionLaunch(128, 32, 4, 2),
            AttentionLaunch(128, 32, 4, 2),
            AttentionLaunch(64, 64, 8, 2),
            AttentionLaunch(64, 32, 8, 1),
        ),
        "attention_decode": (AttentionLaunch(16, 128, 4, 3),) * 2
        + (AttentionLaunch(16, 64, 4, 3), AttentionLaunch(16, 32, 4, 3)),
    },
    "small": {
        "attention_fwd": (
            AttentionLaunch(128, 64, 4, 2),
            AttentionLaunch(128, 64, 4, 2),
            AttentionLaunch(64, 64, 4, 2),
            AttentionLaunch(64, 32, 4, 1),
        ),
        "attention_dkdv": (
            AttentionLaunch(32, 64, 4, 2),
            AttentionLaunch(32, 64, 4, 2),
            AttentionLaunch(32, 64, 4, 1),
            AttentionLaunch(16, 32, 4, 1),
        ),
        "attention_dq": (
            AttentionLaunch(64, 32, 4, 2),
            AttentionLaunch(64, 32, 4, 2),
            AttentionLaunch(64, 32, 4, 1),
            AttentionLaunch(32, 16, 4, 1),
        ),
        "attention_decode": (AttentionLaunch(16, 64, 4, 2),) * 3 + (AttentionLaunch(16, 32, 4, 2),),
    },
    "cdna": {
        "attention_fwd": (
            AttentionLaunch(128, 64, 4, 1),
            AttentionLaunch(128, 64, 4, 1),
            AttentionLaunch(128, 32, 4, 1),
            AttentionLaunch(64, 32, 4, 1),
        ),
        "attention_dkdv": (AttentionLaunch(32, 64, 4, 1),) * 3 + (AttentionLaunch(16, 32, 4, 1),),
        "attention_dq": (AttentionLaunch(64, 32, 4, 1),) * 3 + (AttentionLaunch(32, 16, 4, 1),),
        "attention_decode": (AttentionLaunch(16, 64, 4, 1),) * 3 + (AttentionLaunch(16, 32, 4, 1),),
    },
}
# Elements of 4 bytes are multiplied without tensor cores: an operand's row is held in registers.
_WIDE: dict[str, AttentionLaunch] = {
    "attention_fwd": AttentionLaunch(32, 32, 4, 1),
    "attention_dkdv": AttentionLaunch(16, 32, 4, 1),
    "attention_dq": AttentionLaunch(32, 16, 4, 1),
    "attention_decode": AttentionLaunch(16, 32, 4, 1),
}


@lru_cache(maxsize=256)
def _planned(family: str, head_dim: int, itemsize: int, arch: str) -> AttentionLaunch:
    if itemsize > 2:
        if head_dim <= _WIDTHS[1]:
            return _WIDE[family]
        # 16 x 16 by 8 warps spills nothing at 128 on sm_90; by 4 warps up to 744 bytes
        return replace(_WIDE[family], block_m=16, block_n=16, num_warps=8)
    kind = _KINDS.get(arch, "cdna" if arch.startswith("gfx") else "small")
    index = next(i for i, width in enumerate(_WIDTHS) if head_dim <= width)
    return _TILES[kind][family][index]


def attention_launch(family: str, head_dim: int, itemsize: int, arch: str) -> AttentionLaunch:
    """Plan a portable attention kernel.

    Args:
        family: One of ``FAMILIES``.
        head_dim: The wider of the dimensions of keys and of values, at most 256.
        itemsize: Bytes of an element.
        arch: Compiler target: ``"sm_90"``, ``"gfx942"``; of others the smallest tiles are planned.

    Returns:
        The parameters, with those of ``override_attention`` in place of the planned ones.

    Raises:
        InputError: There is no such family, or the head dimension is above 256.
    """
    if family not in FAMILIES:
        raise InputError(f"family must be one of {', '.join(FAMILIES)}, got {family!r}")
    if not 1 <= head_dim <= _WIDTHS[-1]:
        raise InputError(f"head_dim must be in [1, {_WIDTHS[-1]}], got {head_dim}")
    return _overrides.applied(family, _planned(family, head_dim, itemsize, arch))


def split_count(tiles: int, blocks: int, multiprocessors: int) -> int:
    """Into how many parts the keys are split so that a decode fills the multiprocessors.

    The least number whose last wave leaves at most 6 % of them idle; where there is none, the one
    that leaves the fewest.

    Args:
        tiles: Programs without a split: batch times heads of keys.
        blocks: Tiles of keys that a program walks without a split: no part is empty.
        multiprocessors: Of the GPU.
    """

    def busy(splits: int) -> float:
        programs = tiles * splits
        return programs / (-(-programs // multiprocessors) * multiprocessors)

    most = max(1, min(blocks, multiprocessors))
    if tiles == 0:
        return 1
    fullest = max(range(1, most + 1), key=lambda n: (busy(n), -n))
    return next((n for n in range(1, most + 1) if busy(n) >= _FULL), fullest)


_overrides = Overrides(AttentionLaunch, FAMILIES)
override_attention = _overrides.set
