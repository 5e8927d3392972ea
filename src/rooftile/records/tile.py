"""How a kernel cuts its tensors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

SCHEMA_VERSION = 1

Shape = Literal["many rows", "one row", "loop", "split"]


@dataclass(frozen=True, slots=True)
class Waves:
    """How evenly blocks fill a GPU.

    Attributes:
        blocks: Of the grid.
        slots: Blocks that the GPU runs at once.
        waves: Rounds it takes, a part of one counted whole.
        tail_blocks: Blocks of the last round.
        efficiency: Blocks over the slots of all rounds, 0 to 1: the share of the GPU that works if
            all blocks take equally long.
    """

    blocks: int
    slots: int
    waves: int
    tail_blocks: int
    efficiency: float


@dataclass(frozen=True, slots=True)
class RowTile:
    """How a kernel walks rows.

    Attributes:
        n_cols: Elements of a row.
        itemsize: Bytes of an element.
        shape: ``"many rows"`` a program, ``"one row"``, ``"loop"`` over a row in chunks, or
            ``"split"`` over the programs of a cluster.
        rows: Rows that a program holds at a time.
        block: Columns of a tile, a power of two.
        tiles: Tiles of a row.
        num_warps: Warps of a program.
        programs: Programs that share a row.
        reads: How often a row is read from device memory or L2.
        idle: Part of the lanes of the last tile that hold no element, 0 to 1.
        reason: Why this shape, in words.
        kind: Tells this record's JSON from others.
    """

    n_cols: int
    itemsize: int
    shape: Shape
    rows: int
    block: int
    tiles: int
    num_warps: int
    programs: int
    reads: int
    idle: float
    reason: str
    kind: Literal["rooftile.row_tile"] = "rooftile.row_tile"
    schema_version: int = SCHEMA_VERSION


@dataclass(frozen=True, slots=True)
class Tile:
    """One way to cut a matmul or an attention.

    Attributes:
        block_m: Rows of an output tile; of queries in attention.
        block_n: Columns of an output tile; keys of one step in attention.
        block_k: Depth of one step; the head dimension in attention.
        num_stages: Steps whose operands are in shared memory or on their way.
        num_warps: Warps of a program.
        shared_bytes: Shared memory of a block, as the compiler allocates it [B].
        accumulator_registers: float32 registers of a thread that the output tile takes; 0 where it
            lies in tensor memory.
        traffic_bytes: What all tiles read and write beyond the SM [B].
        waves: How evenly the grid fills the GPU.
    """

    block_m: int
    block_n: int
    block_k: int
    num_stages: int
    num_warps: int
    shared_bytes: int
    accumulator_registers: int
    traffic_bytes: int
    waves: Waves


@dataclass(frozen=True, slots=True)
class TilePlan:
    """Ways to cut an op, the best first.

    Attributes:
        op: ``"matmul"`` or ``"attention"``.
        shape: Extents: M, N, K; or batch, heads, queries, keys, head dimension.
        dtype: Of the operands.
        target: ``"sm_90"``.
        gpu: Id of the GPU whose units count.
        least_bytes: Traffic if every tensor moved once [B].
        tiles: Those that fit, by traffic over wave efficiency.
        refused: How many candidates did not fit, by reason.
        kind: Tells this record's JSON from others.
    """

    op: Literal["matmul", "attention"]
    shape: tuple[int, ...]
    dtype: str
    target: str
    gpu: str
    least_bytes: int
    tiles: tuple[Tile, ...]
    refused: dict[str, int]
    kind: Literal["rooftile.tile_plan"] = "rooftile.tile_plan"
    schema_version: int = SCHEMA_VERSION
