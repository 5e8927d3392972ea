"""An audit as text."""

from __future__ import annotations

import io
import re
import time
from dataclasses import replace

import estimates
import pytest

from rooftile.records.cost import Cost
from rooftile.report.text import audit_lines, total_pairs, write_audit

ESTIMATE = estimates.estimate()


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def text_of(lines) -> list[str]:
    """The lines without their styles."""
    return ["".join(text for text, _ in line) for line in lines]


def plain(**options) -> list[str]:
    """What a pipe gets, line by line."""
    out = io.StringIO()
    write_audit(ESTIMATE, out, **options)
    return out.getvalue().splitlines()


def test_the_table_has_one_line_an_op():
    """Columns parted by two spaces or more, so that a script can split them; views left out."""
    head, *rows = plain()
    assert re.split(r"\s{2,}", head) == [
        "op",
        "phase",
        "module",
        "line",
        "shapes and dtype",
        "FLOP",
        "bytes",
        "FLOP/byte",
        "bound",
        "least time",
        "share",
    ]
    assert re.split(r"\s{2,}", rows[0]) == [
        "matmul",
        "forward",
        "model.q",
        "m.py:3",
        "(2048, 4096) bfloat16",
        "600 M",
        "400 MB",
        "1.5",
        "compute",
        "600 us",
        "60.0 %",
    ]
    assert rows[4] == ""


def test_an_unpriced_op_shows_a_question_mark():
    """Never a 0."""
    (row,) = [line for line in plain() if line.startswith("aten.frobnicate")]
    assert re.split(r"\s{2,}", row)[5:9] == ["?", "100 MB", "-", "unpriced"]


def test_the_totals_are_absolute_numbers():
    """Matrix FLOP by family with both counts of attention, vector FLOP, bytes, time by wall."""
    assert dict(total_pairs(ESTIMATE)) == {
        "matmul FLOP": "600,000,000",
        "attention FLOP, effective": "100,000,000",
        "attention FLOP, dense": "200,000,000",
        "vector FLOP": "60,000,000",
        "bytes": "800,000,000 (800 MB)",
        "least time": "1 ms with cold caches "
        "(900 us where data fits the L2, 8 us of launches alone)",
        "  compute": "600 us, 60.0 %",
        "  memory": "300 us, 30.0 %",
        "  unpriced": "100 us, 10.0 %",
        "priced": "3 of 4 ops (75.0 %), 700,000,000 of 800,000,000 bytes (87.5 %)",
        "unpriced": "aten.frobnicate.default: 1 op, 100,000,000 bytes",
        "assumed": "loss: out.sum()",
    }


def test_matrix_flop_are_parted_by_phase():
    """A training step says what its forward and its backward take."""
    forward = ESTIMATE.ops[0]
    cost = Cost(12 * 10**8, 0, 10**8, 10**8, 12 * 10**8, "bf16", formula="matmul.mm")
    backward = replace(forward, index=5, phase="backward", cost=cost)
    step = replace(ESTIMATE, ops=(forward, backward))
    assert dict(total_pairs(step))["matmul FLOP"] == (
        "1,800,000,000 (forward 600,000,000, backward 1,200,000,000)"
    )


def test_what_the_table_leaves_out_is_said():
    """How many of how many rows, and how many ops launch nothing."""
    listed = next(line for line in plain(top=1) if line.startswith("listed"))
    assert "1 of 4 ops; 1 more launch no kernel" in listed
    assert sum(line.startswith(("matmul ", "attention ")) for line in plain(top=1)[:2]) == 1


def test_groups_say_where_something_is_unpriced():
    """``+ ?`` behind the FLOP of a group with an op that has no formula."""
    row = next(line for line in plain(by="module") if line.startswith("(outside"))
    assert re.split(r"\s{2,}", row)[1:5] == ["2", "10 M + ?", "200 MB", "0.1"]


def test_a_pipe_gets_whole_lines_without_colour():
    """However long a module's path is, nothing is cut and no escape is written."""
    path = "model." + "layers.0." * 40 + "q"
    wide = replace(ESTIMATE, ops=(replace(ESTIMATE.ops[0], module=path),))
    out = io.StringIO()
    write_audit(wide, out)
    assert path in out.getvalue()
    assert "\x1b" not in out.getvalue()
    assert out.getvalue().isascii()


def test_a_rare_long_cell_does_not_widen_all_lines():
    """In a pipe it is whole and sticks out; the other lines keep their length."""
    long = replace(ESTIMATE.ops[0], shapes="2048x4096, " * 20 + "bfloat16")
    out = io.StringIO()
    write_audit(replace(ESTIMATE, ops=(long, *ESTIMATE.ops[1:])), out)
    head, first, second, *_ = out.getvalue().splitlines()
    assert long.shapes in first
    assert len(head) == len(second) < len(first)


def test_a_terminal_gets_colour_and_lines_that_fit(monkeypatch):
    """The walls are coloured, and the elastic columns are cut to the terminal's width."""
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.delenv("NO_COLOR", raising=False)
    path = "model." + "layers.0." * 20 + "q_proj"
    out = Terminal()
    write_audit(replace(ESTIMATE, ops=(replace(ESTIMATE.ops[0], module=path),)), out)
    assert "\x1b[32mcompute" in out.getvalue()
    row = re.sub(r"\x1b\[[0-9;]*m", "", out.getvalue()).splitlines()[1]
    assert len(row) == 120
    assert "q_proj" in row  # a path is cut at its start, where paths are alike
    assert "…" in row


@pytest.mark.parametrize("width", [1, 40, 100, 200])
def test_a_narrow_terminal_never_loses_a_number(width):
    """Numbers and walls are never cut, whatever the width."""
    row = text_of(audit_lines(ESTIMATE, width=width))[1]
    for cell in ("600 M", "400 MB", "1.5", "compute", "600 us", "60.0 %"):
        assert cell in row


def test_a_long_audit_prints_fast(monkeypatch):
    """A step of 3,000 ops takes less than 1 s of the processor, on a terminal too.

    The least of three: other processes take caches and clock from this one.
    """
    monkeypatch.setenv("TERM", "xterm-256color")
    long = replace(ESTIMATE, ops=ESTIMATE.ops[:4] * 750)
    write_audit(ESTIMATE, Terminal())  # import rich
    starts = []
    for _ in range(3):
        starts.append(time.process_time())
        write_audit(long, Terminal())
    ends = [*starts[1:], time.process_time()]
    assert min(end - start for start, end in zip(starts, ends, strict=True)) < 1.0


def test_a_step_of_nothing_is_still_a_report():
    """No division by its 0 bytes and 0 seconds."""
    totals = replace(
        ESTIMATE.totals,
        ops=0,
        unpriced_ops=0,
        bytes=0,
        unpriced_bytes=0,
        least_s=0.0,
        bound_s={"memory": 0.0},
    )
    lines = text_of(audit_lines(replace(ESTIMATE, ops=(), totals=totals)))
    assert any(line.startswith("priced") and "0 of 0 ops (-)" in line for line in lines)
