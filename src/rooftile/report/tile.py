"""Tile plans as text."""

from __future__ import annotations

from rooftile import units
from rooftile.records.tile import RowTile, Tile, TilePlan
from rooftile.report.columns import Column, Line, align, pairs


def tile_lines(plan: RowTile | TilePlan, width: int | None = None) -> list[Line]:
    """How rows are walked, or the tiles that fit, the best first."""
    if isinstance(plan, RowTile):
        return _row_lines(plan)
    head = pairs(
        [
            (plan.op, f"{' x '.join(map(str, plan.shape))} {plan.dtype}"),
            ("GPU", f"{plan.gpu} ({plan.target})"),
            ("least", f"{units.traffic(plan.least_bytes)} if every tensor moved once"),
        ]
    )
    columns = [
        Column(name, "right")
        for name in (
            "M", "N", "K", "stages", "warps", "shared B", "acc regs", "traffic", "of least",
            "blocks", "waves", "efficiency",
        )
    ]  # fmt: skip
    lines = [*head, (("", ""),)]
    lines += align(columns, [_cells(plan, tile) for tile in plan.tiles], width)
    refused = ", ".join(f"{count} {reason}" for reason, count in plan.refused.items())
    return [*lines, (("", ""),), *pairs([("refused", refused or "none")])]


def _row_lines(row: RowTile) -> list[Line]:
    return pairs(
        [
            ("rows", f"{units.count(row.n_cols)} columns of {row.itemsize} B"),
            ("shape", f"{row.shape}: {row.reason}"),
            ("tile", f"{row.rows} x {units.count(row.block)}, {row.tiles} a row"),
            ("warps", f"{row.num_warps} in each of {row.programs} programs a row"),
            ("reads", f"{row.reads} of each row"),
            ("idle", f"{units.percent(row.idle)} of the lanes"),
        ]
    )


def _cells(plan: TilePlan, tile: Tile) -> list[str]:
    return [
        str(tile.block_m),
        str(tile.block_n),
        str(tile.block_k),
        str(tile.num_stages),
        str(tile.num_warps),
        units.count(tile.shared_bytes),
        str(tile.accumulator_registers) if tile.accumulator_registers else "-",
        units.traffic(tile.traffic_bytes),
        f"{tile.traffic_bytes / plan.least_bytes:.2f}",
        units.count(tile.waves.blocks),
        str(tile.waves.waves),
        units.percent(tile.waves.efficiency),
    ]
