"""Which room may import which, and what each loads: the table of CONTRIBUTING.md, held."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

import rooftile

SRC = Path(__file__).parents[1] / "src" / "rooftile"
ANY = "any room"


@dataclass(frozen=True)
class Room:
    """What a room may import: of the package, and of third parties when it is itself imported."""

    rooms: tuple[str, ...] = ()
    third: tuple[str, ...] = ()
    lazily: tuple[str, ...] | None = None  # inside functions; None: whatever the function needs


STD = ()
ROOMS = {
    "__init__": Room(("api",), STD, ()),
    "__main__": Room(("cli",), STD, ()),
    "errors": Room((), STD, ()),
    "units": Room(("errors",), STD, ()),
    "user_file": Room((), STD),
    "records": Room(("errors",), STD, ()),
    "records.io": Room(("errors", "records"), ("msgspec",), ()),
    "spec": Room(("errors", "records"), STD, ()),
    "cost": Room(("errors", "records", "spec"), STD, ()),
    "plan": Room(("errors", "records", "spec", "cost"), STD, ()),
    "report": Room(("errors", "units", "records"), ("rich", "jinja2", "plotly")),
    "capture": Room(("errors", "records", "user_file"), ("torch",)),
    "compile": Room(("errors", "records", "spec"), ("triton",)),
    "ops": Room(
        (
            "errors",
            "plan.launch",
            "plan.launch_attention",
            "plan.launch_hopper",
            "plan.launch_packed",
            "plan.schedule_hopper",
        ),
        ("torch", "triton"),
    ),
    "bench": Room(("errors", "user_file", "records", "spec", "cost", "ops"), ("torch",)),
    "measure": Room(("errors", "records", "spec", "cost", "capture", "bench.clock"), ("torch",)),
    "export": Room(("errors", "records", "spec", "compile", "ops"), ("torch", "triton")),
    "swap": Room(("errors", "records", "plan", "ops"), ("torch",)),
    "api": Room((ANY,), STD),
    "cli": Room(("errors", "units", "api", "report"), ("typer",)),
}
LIGHT = ("errors", "units", "records", "spec", "cost", "plan", "api")
FILES = sorted(SRC.rglob("*.py"))


@dataclass(frozen=True)
class Import:
    """One module that a file imports."""

    name: str
    lazy: bool


def module_of(path: Path) -> str:
    """The dotted name below ``rooftile``: ``"cost.graph"``."""
    parts = path.relative_to(SRC).with_suffix("").parts
    return ".".join(parts[:-1] if len(parts) > 1 and parts[-1] == "__init__" else parts)


def room_of(module: str) -> Room:
    """The rules of a module's room; a file may have its own."""
    return ROOMS[module] if module in ROOMS else ROOMS[module.split(".")[0]]


def is_module(name: str) -> bool:
    """Whether a dotted name below ``rooftile`` is a file or a package of ours."""
    path = SRC.joinpath(*name.split("."))
    return path.is_dir() or path.with_suffix(".py").is_file()


def imports(tree: ast.AST, lazy: bool = False) -> Iterator[Import]:
    """Every import of a file, those within functions too."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from (Import(alias.name, lazy) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative import"
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                ours = inner.startswith("rooftile.") and is_module(inner.removeprefix("rooftile."))
                yield Import(inner if ours else str(node.module), lazy)
        else:
            within = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            yield from imports(node, lazy or within)


def fault(module: str, found: Import) -> str:
    """What is wrong with a module's import; "" if nothing is."""
    room = room_of(module)
    top, _, rest = found.name.partition(".")
    if top != "rooftile":
        allowed = (*room.third, *(room.lazily or ())) if found.lazy else room.third
        free = found.lazy and room.lazily is None
        known = top in sys.stdlib_module_names or top in allowed or free
        return "" if known else f"{module} may not import {found.name}"
    if not rest:  # the version
        return (
            "" if module.startswith(("cli.", "report.", "api.")) else f"{module} imports rooftile"
        )
    own = module.split(".")[0]
    if rest.split(".")[0] == own and not (own == "records" and rest == "records.io"):
        return ""
    if ANY in room.rooms:
        lazy_or_data = found.lazy or rest.split(".")[0] in ("errors", "records", "units")
        allowed_here = rest.split(".")[0] != "cli" and lazy_or_data
        return "" if allowed_here else f"{module} may not import {found.name} at import"
    fits = any(rest == name or rest.startswith(f"{name}.") for name in room.rooms)
    return "" if fits else f"{module} may not import {found.name}"


def faults(module: str, source: str) -> list[str]:
    """What is wrong with the imports of a file; ``if TYPE_CHECKING`` counts as lazy."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            body = ast.FunctionDef(name="", args=ast.arguments([], [], None, [], [], None, []),
                                   body=node.body, decorator_list=[])  # fmt: skip
            node.body, node.orelse = [body], []
    return [text for found in imports(tree) if (text := fault(module, found))]


@pytest.mark.parametrize("path", FILES, ids=module_of)
def test_a_file_imports_what_its_room_may(path):
    """Read from the source, so imports within functions count."""
    assert faults(module_of(path), path.read_text()) == []


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("cost.graph", "import torch"),
        ("cost.graph", "def f():\n    import numpy"),
        ("cost.graph", "from rooftile.report.text import write_audit"),
        ("records.graph", "import msgspec"),
        ("records.graph", "from rooftile.records import io"),
        ("capture.module", "from rooftile import cost"),
        ("capture.module", "import transformers"),
        ("ops.softmax", "from rooftile.plan import fusion"),
        ("ops.softmax", "from rooftile.plan.launch import x\nfrom rooftile.spec import devices"),
        ("report.text", "from rooftile.api.audit import audit"),
        ("cli.audit", "from rooftile.records.estimate import Estimate"),
        ("cli.audit", "import rich"),
        ("api.audit", "from rooftile.cost.graph import estimate"),
        ("api.audit", "def f():\n    from rooftile.cli import main"),
        ("units", "import rooftile"),
    ],
)
def test_the_rule_above_can_fail(module, source):
    """Each of these breaks it."""
    assert faults(module, source)


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("capture.config", "import torch\ndef f():\n    import transformers"),
        ("ops.softmax", "import triton\nfrom rooftile.plan.launch import row_launch"),
        ("report.text", "from rooftile import units"),
        ("api.audit", "def f():\n    from rooftile.cost.graph import estimate"),
        (
            "api.audit",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n"
            "    from rooftile.cost.graph import estimate",
        ),
        ("cli.app", "def f():\n    from rooftile import __version__"),
    ],
)
def test_the_rule_above_lets_pass_what_is_right(module, source):
    """It does not hold by refusing everything."""
    assert faults(module, source) == []


@cache
def loaded_by(*rooms: str) -> set[str]:
    """Third-party packages that importing every module of these rooms loads, in a fresh process."""
    names = [
        f"rooftile.{module_of(path)}" for path in FILES if module_of(path).split(".")[0] in rooms
    ]
    code = (
        "import importlib, json, sys\nbefore = set(sys.modules)\n"
        f"for name in {names!r}:\n    importlib.import_module(name)\n"
        "print(json.dumps(sorted({name.split('.')[0] for name in set(sys.modules) - before})))"
    )
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(SRC.parent)!r})\n{code}"],
        check=True,
        capture_output=True,
        text=True,
    )
    return set(json.loads(done.stdout)) - set(sys.stdlib_module_names) - {"rooftile"}


@pytest.mark.parametrize("room", LIGHT)
def test_a_light_room_loads_the_standard_library_only(room):
    """Nothing of a third party, direct or not; ``records.io`` has msgspec and what that loads."""
    msgspec = {"msgspec", "typing_extensions"}
    assert loaded_by(room) <= (msgspec if room == "records" else set())


@pytest.mark.parametrize("room", ["report", "cli"])
def test_a_report_and_the_command_line_load_no_torch(room):
    """They work on a machine that has none."""
    assert loaded_by(room).isdisjoint({"torch", "triton", "numpy", "transformers"})


def test_the_probe_sees_a_third_party():
    """The two tests above can fail: the same probe finds what draws the reports."""
    assert "jinja2" in loaded_by("report")


def test_every_room_has_its_rules():
    """A new folder or file at the top needs a row in the table."""
    assert {module_of(path).split(".")[0] for path in FILES} <= set(ROOMS)


def test_no_public_function_is_named_like_a_room():
    """A later import of the room would put the package in the function's place."""
    beside = {path.stem for path in SRC.iterdir() if path.is_dir() or path.suffix == ".py"}
    assert beside.isdisjoint(rooftile.__all__)


def test_no_drawer_for_everything():
    """A helper is named for what it does and sits in the narrowest room that needs it."""
    drawers = {"utils", "util", "common", "helpers", "helper", "misc", "tools"}
    assert [path for path in FILES if path.stem.strip("_") in drawers] == []
