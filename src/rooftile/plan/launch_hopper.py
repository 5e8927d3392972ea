"""Launch parameters of the attention kernels for Hopper, by head dimension and by what is seen."""

from __future__ import annotations

from dataclasses import dataclass, replace

from rooftile.errors import InputError

WIDTHS = (64, 128, 256)


@dataclass(frozen=True, slots=True)
class FlashForward:
    """How the forward kernel is launched.

    Attributes:
        width: Columns of a tile: the head dimension, rounded up.
        groups: Consumer warpgroups, of ``block_m`` query rows each.
        block_m: Query rows of one warpgroup.
        block_n: Keys of one step.
        stages: Buffers of keys and of values.
        q_registers: Columns of Q that a warpgroup keeps in registers; the others stay in shared
            memory, twice.
        consumer_registers: Registers of a consumer thread.
        producer_registers: Registers of a producer thread.
        poly: One exponential in ``poly`` is a polynomial instead of the special-function unit's; 0
            for none.
    """

    width: int
    groups: int
    block_m: int
    block_n: int
    stages: int
    q_registers: int
    consumer_registers: int
    producer_registers: int
    poly: int = 0

    @property
    def rows(self) -> int:
        """Query rows of a tile."""
        return self.groups * self.block_m


_FORWARD = {
    64: FlashForward(64, 3, 64, 128, 2, 0, 160, 32),
    128: FlashForward(128, 2, 64, 128, 2, 128, 240, 24),
    256: FlashForward(256, 2, 64, 64, 2, 128, 240, 24),
}
# A tile of 192 queries under a mask multiplies much that few of them see, where there are few keys.
# Causal, 64 columns on an H200: 273 TFLOP/s for 210 at 512 keys, 371 for 305 at 1,024, at 2,048 3 %
# less; windows of 256 keys in 0.64 of the time, of 1,024 in 0.82
_SHORT_KEYS = 640
_SHORT_WINDOW = 1100
_SHORT = {64: FlashForward(64, 2, 64, 128, 3, 64, 240, 24)}


@dataclass(frozen=True, slots=True)
class Band:
    """Which keys a query sees: ``q - left <= k <= q + right``; None is no bound."""

    left: int | None = None
    right: int | None = None

    def keys(self, row: int, rows: int, n_keys: int) -> tuple[int, int]:
        """First key and end of the keys that any of some query rows sees."""
        end = n_keys if self.right is None else min(n_keys, row + rows + self.right)
        first = 0 if self.left is None else max(0, row - self.left)
        return first, max(first, end)

    def seen(self, n_queries: int, n_keys: int) -> int:
        """Keys that a query in the middle sees."""
        first, end = self.keys(n_queries // 2, 1, n_keys)
        return end - first

    def queries(self, key: int, keys: int, n_queries: int) -> tuple[int, int]:
        """First query and end of the queries that see any of some keys."""
        first = 0 if self.right is None else max(0, key - self.right)
        end = n_queries if self.left is None else min(n_queries, key + keys + self.left)
        return first, max(first, end)


def width_of(head_dim: int) -> int:
    """Columns of the tile that holds a head dimension.

    Raises:
        InputError: It is above 256.
    """
    for width in WIDTHS:
        if head_dim <= width:
            return width
    raise InputError(f"head_dim must be at most {WIDTHS[-1]}, got {head_dim}")


def flash_forward(
    head_dim: int, keys: float = float("inf"), windowed: bool = False
) -> FlashForward:
    """Launch parameters of the forward for a head dimension.

    Args:
        head_dim: Of the wider operand.
        keys: That a query sees, about.
        windowed: Whether a query sees none of the first keys.
    """
    width = width_of(head_dim)
    if keys <= (_SHORT_WINDOW if windowed else _SHORT_KEYS) and width in _SHORT:
        return _SHORT[width]
    return _FORWARD[width]


@dataclass(frozen=True, slots=True)
class FlashBackward:
    """How the backward kernel is launched.

    Attributes:
        width: Columns of a tile: the head dimension, rounded up.
        block_m: Query rows of one step.
        block_n: Keys of one main warpgroup, of which there are two.
        stages: Buffers of Q and of dO.
        ds_stages: Buffers of dS.
        k_stages: Buffers of K.
        v_stages: Buffers of V.
        parts: Pieces of columns in which dQ is made.
        main_registers: Registers of a main thread.
        dq_registers: Registers of a thread of the warpgroup of dQ.
        producer_registers: Registers of a producer thread.
        p_16bit: Keep P as the 16-bit operand alone.
        kv_in_registers: Keep K and V as operands in registers.
        branch: Keep the mask's branch in every case.
        persistent: One block a SM takes tile after tile; else one block a tile.
        skips: Under a causal mask, skip a step of one warpgroup that sees none of its queries.
    """

    width: int
    block_m: int
    block_n: int
    stages: int
    ds_stages: int
    k_stages: int
    v_stages: int
    parts: int
    main_registers: int
    dq_registers: int
    producer_registers: int
    p_16bit: bool
    kv_in_registers: bool
    branch: bool
    persistent: bool = True
    skips: bool = False

    @property
    def keys(self) -> int:
        """Keys of a tile."""
        return 2 * self.block_n


@dataclass(frozen=True, slots=True)
class FlashBackwardWide:
    """How the two backward kernels above 128 columns are launched.

    Attributes:
        width: Columns of a tile.
        block: Query rows and keys of one warpgroup and of one step.
        stages: Buffers of Q and of dO, for dK and dV.
        slots: Buffers of keys and values, for dQ.
        main_registers: Registers of a thread that computes.
        producer_registers: Registers of a producer thread.
    """

    width: int
    block: int
    stages: int
    slots: int
    main_registers: int
    producer_registers: int


BACKWARD_WIDE = FlashBackwardWide(256, 64, 2, 3, 240, 24)
_BACKWARD = {
    64: FlashBackward(64, 64, 64, 2, 2, 2, 2, 1, 208, 72, 24, False, True, False, True, True),
    128: FlashBackward(128, 64, 64, 2, 2, 2, 1, 2, 208, 72, 24, True, False, True),
}
# With as many steps in a tile, the registers for the next one cost more than the time between
_LONG_STEPS = 32
_LONG = {128: FlashBackward(128, 64, 64, 2, 2, 1, 1, 2, 208, 72, 24, True, False, True, False)}
# dK and dV alone
_APART = {
    # not with K and V in registers: ptxas 12.8 gives K's to dP inside the loop
    64: FlashBackward(64, 64, 64, 2, 1, 1, 1, 1, 240, 0, 24, False, False, False, False),
    128: FlashBackward(128, 64, 64, 2, 1, 1, 1, 1, 240, 0, 24, True, False, True, False),
}


def sums_queries(head_dim: int, deterministic: bool) -> bool:
    """Whether one backward kernel makes all three gradients, dQ as sums in no fixed order."""
    return width_of(head_dim) in _BACKWARD and not deterministic


def backward_apart(head_dim: int) -> tuple[FlashBackward | FlashBackwardWide, FlashBackwardWide]:
    """Launch parameters where dQ has a kernel of its own: of dK and dV, and of dQ."""
    width = width_of(head_dim)
    return _APART.get(width, BACKWARD_WIDE), replace(BACKWARD_WIDE, width=width)


def flash_backward(head_dim: int, steps: float = 0) -> FlashBackward:
    """Launch parameters of the backward for a head dimension.

    Args:
        head_dim: Of the wider operand.
        steps: Blocks of queries that a tile of keys sees, about.

    Raises:
        InputError: ``head_dim`` is above 128.
    """
    width = width_of(head_dim)
    if width not in _BACKWARD:
        raise InputError(f"head_dim must be at most 128 for this backward, got {head_dim}")
    if steps >= _LONG_STEPS and width in _LONG:
        return _LONG[width]
    return _BACKWARD[width]
