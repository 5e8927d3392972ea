"""Occupancy as text: of one launch, and of a sweep."""

from __future__ import annotations

from collections.abc import Sequence

from rooftile import units
from rooftile.records.occupancy import Cliff, Occupancy, SimpleOccupancy
from rooftile.records.resources import Sweep, SweepRow
from rooftile.report.columns import Column, Line, align, pairs


def occupancy_lines(found: Occupancy) -> list[Line]:
    """What is resident, what each resource allows, and where that changes next."""
    lines = [
        ("target", f"{found.target}, per {found.unit}"),
        (
            "block",
            f"{found.threads} threads ({found.warps_per_block} warps), {found.registers} registers,"
            f" {units.count(found.static_shared_bytes + found.dynamic_shared_bytes)} B shared",
        ),
        (
            "allocated",
            f"{found.allocated_registers_per_thread} registers a thread,"
            f" {units.count(found.allocated_registers_per_block)} a block;"
            f" {units.count(found.allocated_shared_bytes)} B shared",
        ),
    ]
    if not found.launches:
        lines.append(("occupancy", f"cannot launch: {found.reason}"))
    else:
        lines.append(
            (
                "occupancy",
                f"{units.percent(found.occupancy)}: {_blocks(found.blocks)}, {found.warps} of"
                f" {found.max_warps} warps",
            )
        )
    if found.waves_per_simd is not None:
        lines.append(("compiler's", f"{found.waves_per_simd} waves a SIMD"))
    lines.append(("limits", ", ".join(_limit(found, i) for i in range(len(found.limits)))))
    lines.append(("binding", ", ".join(found.limiting) if found.launches else "-"))
    lines += [("cliff", _cliff(cliff)) for cliff in found.cliffs]
    return pairs(lines)


def simple_lines(found: SimpleOccupancy) -> list[Line]:
    """The textbook's answer, and what it does not know."""
    return pairs(
        [
            ("target", found.target),
            (
                "block",
                f"{found.threads} threads, {found.registers} registers,"
                f" {units.count(found.shared_bytes)} B shared",
            ),
            (
                "occupancy",
                f"{units.percent(found.occupancy)}: {_blocks(found.blocks)}, {found.warps} of"
                f" {found.max_warps} warps, by the simple formula",
            ),
            *(("left out", what) for what in found.leaves_out),
        ]
    )


def sweep_lines(sweeps: Sequence[Sweep], width: int | None = None) -> list[Line]:
    """All sweeps in one table, a star at each pick, and why it is that one."""
    names = list(sweeps[0].rows[0].config)
    columns = [
        Column(""),
        Column("arch"),
        *(Column(name, "right") for name in names),
        Column("threads", "right"),
        Column("regs", "right"),
        Column("spill B", "right"),
        Column("shared B", "right"),
        Column("blocks", "right"),
        Column("occupancy", "right"),
        Column("bound by"),
        Column("load B", "right"),
        Column("in flight B", "right"),
        Column("of need", "right"),
        Column("against it", cut="end"),
    ]
    rows = [
        _cells(sweep, row, names, pick=i == sweep.pick)
        for sweep in sweeps
        for i, row in enumerate(sweep.rows)
    ]
    lines = align(columns, rows, width)
    lines.append((("", ""),))
    lines += pairs([item for sweep in sweeps for item in _conclusion(sweep)])
    return lines


def _cells(sweep: Sweep, row: SweepRow, names: Sequence[str], *, pick: bool) -> list[str]:
    """One configuration."""
    config = [str(row.config[name]) for name in names]
    kernel = row.resources
    if kernel is None:
        gone = ["-"] * 10
        return ["", sweep.target, *config, *gone, " ".join(row.error.split())]
    registers = str(kernel.registers)
    if kernel.accumulation_registers:
        registers += f"+{kernel.accumulation_registers}"
    return [
        "*" if pick else "",
        sweep.target,
        *config,
        str(kernel.threads),
        registers,
        str(kernel.spills),
        str(kernel.static_shared_bytes + kernel.dynamic_shared_bytes),
        str(row.blocks),
        units.percent(row.occupancy),
        ", ".join(row.limiting),
        f"{_loads(row)}x{kernel.load_width_bytes}" if kernel.loads else "-",
        units.count(row.in_flight_bytes),
        units.percent(row.in_flight_bytes, sweep.needed_bytes),
        row.error or ", ".join(row.unfit),
    ]


def _loads(row: SweepRow) -> int:
    """Loads of the widest kind in the code."""
    assert row.resources is not None
    widest = row.resources.load_width_bytes
    return sum(access.count for access in row.resources.loads if access.width_bytes == widest)


def _conclusion(sweep: Sweep) -> list[tuple[str, str]]:
    """The need and the pick."""
    need = (
        f"{units.count(sweep.needed_bytes)} B in flight a {sweep.unit} keep {sweep.gpu}'s memory"
        f" busy at {units.seconds(sweep.latency_s)} latency"
    )
    if sweep.pick is None:
        return [(sweep.target, need), ("pick", sweep.reason)]
    config = sweep.rows[sweep.pick].config
    words = ", ".join(f"{name}={value}" for name, value in config.items()) or "as it is"
    return [(sweep.target, need), ("pick", f"{words}: {sweep.reason}")]


def _limit(found: Occupancy, position: int) -> str:
    limit = found.limits[position]
    return f"{limit.resource} {'-' if limit.blocks is None else limit.blocks}"


def _cliff(cliff: Cliff) -> str:
    """``8 registers fewer (32): 8 blocks, 100.0 %``."""
    amount = units.count(abs(cliff.change))
    what = "B of shared memory" if cliff.resource != "registers" else "registers"
    if what == "registers" and amount == "1":
        what = "register"
    there = f"{_blocks(cliff.blocks)}, {units.percent(cliff.occupancy)}"
    if not cliff.blocks:
        there = "cannot launch"
    return f"{amount} {what} {cliff.direction} ({units.count(cliff.at)}): {there}"


def _blocks(count: int) -> str:
    return f"{count} block" if count == 1 else f"{count} blocks"
