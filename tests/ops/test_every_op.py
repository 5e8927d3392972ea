"""The op's name is the join: its file, its test, its benchmark's case and its formula."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SRC = ROOT / "src" / "rooftile"
OPS = sorted(p.stem for p in (SRC / "ops").glob("*.py") if not p.stem.startswith("_"))


def functions(path: Path) -> set[str]:
    """Names of the functions and classes at the top of a file; none where there is no file."""
    if not path.is_file():
        return set()
    tree = ast.parse(path.read_text())
    return {n.name for n in tree.body if isinstance(n, ast.FunctionDef | ast.ClassDef)}


def missing(op: str, root: Path = ROOT) -> list[str]:
    """What an op lacks."""
    src = root / "src" / "rooftile"
    found = []
    public = functions(src / "ops" / f"{op}.py")
    found += [f"ops/{op}.py: {name}" for name in (op, f"{op}_ref") if name not in public]
    if not any(name.startswith("test_") for name in functions(root / f"tests/ops/test_{op}.py")):
        found.append(f"tests/ops/test_{op}.py")
    case = src / "bench" / "cases" / f"{op}.py"
    if not case.is_file() or f'op="{op}"' not in case.read_text():
        found.append(f"bench/cases/{op}.py")
    formulas = [f for p in (src / "cost" / "formulas").glob("*.py") for f in functions(p)]
    names = (op, f"{op}_forward", f"{op.removeprefix('log_')}_forward")
    if not any(name in formulas for name in names):
        found.append(f"cost/formulas: {op}_forward")
    exported = (src / "ops" / "__init__.py").read_text() if src.is_dir() else ""
    if f'"{op}"' not in exported:
        found.append(f"ops/__init__.py: {op}")
    return found


@pytest.mark.parametrize("op", OPS)
def test_every_op_is_whole(op):
    """Definition, test, case, formula and export are there under the op's name."""
    assert missing(op) == []


def test_an_op_without_its_parts_is_found(tmp_path):
    """Meta-test: a bare file lacks everything else."""
    ops = tmp_path / "src" / "rooftile" / "ops"
    ops.mkdir(parents=True)
    (ops / "__init__.py").write_text("")
    (ops / "mish.py").write_text("def mish(x): ...\n")
    assert missing("mish", tmp_path) == [
        "ops/mish.py: mish_ref",
        "tests/ops/test_mish.py",
        "bench/cases/mish.py",
        "cost/formulas: mish_forward",
        "ops/__init__.py: mish",
    ]


def test_there_are_ops():
    """The list is not empty: twelve ops at least."""
    assert len(OPS) >= 12
