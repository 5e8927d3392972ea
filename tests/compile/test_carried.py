"""Variables of kernels that a loop has to carry from round to round."""

from __future__ import annotations

import ast
from pathlib import Path

import rooftile

SOURCES = sorted(Path(rooftile.__file__).parent.rglob("*.py"))


def copied(statement):
    """Name and source of an assignment of one plain name to another, else None."""
    match statement:
        case ast.Assign(targets=[ast.Name(id=name)], value=ast.Name(id=source)):
            return name, source
    return None


def lost(body, before=()):
    """Lines that copy inside a loop what was copied from the same name before it."""
    copies = set(before)
    for statement in body:
        if isinstance(statement, ast.For | ast.While):
            found = (copied(inner) for inner in ast.walk(statement))
            yield from (pair for pair in found if pair in copies)
        if pair := copied(statement):
            copies.add(pair)
        for name in ("body", "orelse"):
            inner = getattr(statement, name, [])
            yield from lost(inner, () if isinstance(statement, ast.FunctionDef) else copies)


def test_no_loop_loses_a_copy():
    """Triton 3.6 does not carry ``a`` of ``a = b``, a loop, and ``a = b`` again inside it.

    The backward once wrote every tile of dK and dV of a persistent block where its first one goes.
    """
    fault = "a = b\nfor i in range(3):\n    use(a)\n    a = b\n    b = i\n"
    assert list(lost(ast.parse(fault).body)) == [("a", "b")]
    assert len(SOURCES) > 100
    for path in SOURCES:
        assert not list(lost(ast.parse(path.read_text()).body)), path
