"""One step on several GPUs as text: the totals, then where a verdict flips."""

from __future__ import annotations

from typing import TextIO

from rooftile import units
from rooftile.records.whatif import Kind, OnGpu, WhatIf
from rooftile.report.columns import Column, Line, align, pairs, width_of, write_lines

SHOWN = 20
_BOUNDS = ("compute", "memory", "launch", "unpriced")
_ACTIONS = ("LEAVE IT", "USE LIBRARY", "AUTO-FUSE", "HAND-WRITE")


def write_what_if(found: WhatIf, out: TextIO, *, top: int | None = None) -> None:
    """Write the comparison: plain to a pipe, fitted to its width to a terminal.

    Args:
        found: What to show.
        out: Where to.
        top: Only so many kinds of ops; None: 20.
    """
    write_lines(what_if_lines(found, top=top, width=width_of(out)), out)


def what_if_lines(found: WhatIf, *, top: int | None = None, width: int | None = None) -> list[Line]:
    """The lines of :func:`write_what_if`."""
    blank: Line = (("", ""),)
    flips = [kind for kind in found.kinds if kind.flips]
    walls = [kind for kind in found.kinds if not kind.flips and _walls(kind) > 1]
    shown = (flips + walls)[: top or SHOWN]
    total = sum(kind.ops for kind in found.kinds)
    lines = [*_totals(found), blank]
    if shown:
        lines += [*_kinds(found, shown, width), blank]
    return [
        *lines,
        *pairs(
            [
                ("target", f"{found.target}, {found.mode}"),
                ("flips", _count(flips, total)),
                ("other wall, same verdict", _count(walls, total)),
            ]
        ),
    ]


def _totals(found: WhatIf) -> list[Line]:
    bounds = [b for b in _BOUNDS if any(on.bound_s.get(b) for on in found.gpus)]
    columns = [
        Column("GPU"),
        Column("least time", "right"),
        *(Column(bound, "right") for bound in bounds),
        Column("fusion saves", "right"),
        *(Column(action, "right") for action in _ACTIONS),
    ]
    return align(columns, [_total_cells(on, bounds) for on in found.gpus])


def _total_cells(on: OnGpu, bounds: list[str]) -> list[str]:
    return [
        on.gpu,
        units.seconds(on.least_s),
        *(units.percent(on.bound_s.get(bound, 0.0), on.least_s) for bound in bounds),
        units.percent(on.saved_s, on.least_s),
        *(units.count(on.verdicts.get(action, 0)) for action in _ACTIONS),
    ]


def _kinds(found: WhatIf, kinds: list[Kind], width: int | None) -> list[Line]:
    columns = [
        Column("op", cut="end"),
        Column("ops", "right"),
        Column("module", cut="start"),
        Column("shapes and dtype", cut="end"),
        *(Column(on.gpu) for on in found.gpus),
    ]
    return align(columns, [_kind_cells(kind) for kind in kinds], width)


def _kind_cells(kind: Kind) -> list[str]:
    places = [f"{p.action}, {p.bound}, {units.percent(p.share)}" for p in kind.on]
    return [kind.name, units.count(kind.ops), kind.module or "-", kind.shapes, *places]


def _walls(kind: Kind) -> int:
    return len({place.bound for place in kind.on})


def _count(kinds: list[Kind], total: int) -> str:
    ops = sum(kind.ops for kind in kinds)
    return f"{units.count(ops)} of {units.count(total)} ops, of {units.count(len(kinds))} kinds"
