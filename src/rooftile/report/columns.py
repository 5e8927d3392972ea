"""Rows of text cells in aligned columns: one line a row, for a pipe or for a terminal's width.

Rich's own table takes 1.6 ms a row, 5 s for a step of 3,000 ops; these take 0.05 ms.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TextIO

GAP = "  "
_NARROWEST = 8  # characters; an elastic column shrinks no further
_WIDEST = 64  # and without a width to fit is padded no further: the rare longer cell sticks out

# What a cell stands for, to what a terminal shows it as
STYLES = {
    "header": "bold",
    "memory": "yellow",
    "compute": "green",
    "launch": "magenta",
    "unpriced": "bold red",
}

Segment = tuple[str, str]  # text, key of STYLES or ""
Line = tuple[Segment, ...]


@dataclass(frozen=True, slots=True)
class Column:
    """How a column is set.

    Attributes:
        title: Its header.
        align: ``"left"`` for words, ``"right"`` for numbers.
        cut: Which end may go where a terminal is too narrow; ``""``: it is never cut.
        styled: Cells are shown in the style their text names.
    """

    title: str
    align: Literal["left", "right"] = "left"
    cut: Literal["", "start", "end"] = ""
    styled: bool = False


def align(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int | None = None
) -> list[Line]:
    """A header and the rows in columns.

    Args:
        columns: How each column is set.
        rows: One cell a column.
        width: Characters a line may have; elastic columns are cut to it. None: nothing is cut.

    Returns:
        One line a row, the header first. Two spaces or more part the columns.
    """
    titles = [column.title for column in columns]
    widths = [max(map(len, cells)) for cells in zip(titles, *rows, strict=True)]
    fit = width is not None
    if width is not None:
        widths = _fitted(columns, widths, width)
    else:
        widths = [
            min(wide, _WIDEST) if column.cut else wide
            for column, wide in zip(columns, widths, strict=True)
        ]
    lines = [_line(columns, widths, titles, fit, "header")]
    lines += [_line(columns, widths, row, fit) for row in rows]
    return lines


def pairs(items: Sequence[tuple[str, str]]) -> list[Line]:
    """Names and what they are, the names padded to one width."""
    width = max((len(name) for name, _ in items), default=0)
    return [((name.ljust(width) + GAP + text, ""),) for name, text in items]


def write_lines(lines: Sequence[Line], out: TextIO) -> None:
    """Write lines: plain to a pipe or a file, with colour to a terminal."""
    if not out.isatty():
        out.writelines("".join(text for text, _ in line).rstrip() + "\n" for line in lines)
        return
    from rich.console import Console
    from rich.text import Text

    whole = Text()
    for line in lines:
        for text, style in line:
            whole.append(text, STYLES.get(style, ""))
        whole.append("\n")
    Console(file=out, highlight=False).print(
        whole, end="", no_wrap=True, overflow="ignore", crop=False
    )


def width_of(out: TextIO) -> int | None:
    """Characters a line of a terminal has; None for a pipe or a file, which has no width."""
    if not out.isatty():
        return None
    from rich.console import Console

    return Console(file=out).width


def _fitted(columns: Sequence[Column], widths: list[int], width: int) -> list[int]:
    """Widths with the elastic columns cut, the widest first, until a line fits."""
    fitted = list(widths)
    elastic = [i for i, column in enumerate(columns) if column.cut]
    excess = sum(widths) + len(GAP) * (len(widths) - 1) - width
    while excess > 0:
        widest = max(elastic, key=lambda i: fitted[i], default=-1)
        if widest < 0 or fitted[widest] <= max(_NARROWEST, len(columns[widest].title)):
            break
        fitted[widest] -= 1
        excess -= 1
    return fitted


def _line(
    columns: Sequence[Column],
    widths: Sequence[int],
    cells: Sequence[str],
    fit: bool,
    style: str = "",
) -> Line:
    """One row, its cells padded and, to fit, cut."""
    segments: list[Segment] = []
    for column, width, cell in zip(columns, widths, cells, strict=True):
        text = _cut(cell, width, column.cut) if fit and len(cell) > width else cell
        padded = text.rjust(width) if column.align == "right" else text.ljust(width)
        segments.append((padded, style or (cell if column.styled else "")))
        segments.append((GAP, ""))
    return tuple(segments[:-1])


def _cut(text: str, width: int, end: str) -> str:
    """A text without what its column has no room for."""
    return "…" + text[len(text) - width + 1 :] if end == "start" else text[: width - 1] + "…"
