"""Answers of the compile server with all that they depend on: asked again, no server is started."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rooftile.compile.cache import READER, cached
from rooftile.errors import InputError
from rooftile.records.files import write_whole
from rooftile.records.resources import Constant, KernelResources

# Variables that a compiler or torch reads without Python seeing it, and those that only say where
# files go
_READ_UNSEEN = (
    "TRITON_", "MLIR_", "LLVM_", "NVPTX_", "AMDGCN_", "DISABLE_", "ALLOW_", "USE_IR_", "CUDA_",
    "HIP_", "ROCR_", "TORCH_",
)  # fmt: skip
_PLACES = frozenset({"TRITON_CACHE_DIR", "TRITON_HOME", "TRITON_DUMP_DIR"})
_LARGE_BYTES = 1 << 20  # libraries: compared by size and time, reading them would take seconds
_IMPORTABLE = (".py", ".so", ".pyd")


@dataclass(frozen=True, slots=True)
class Depends:
    """All that a user's file was seen to read while it was imported and its call recorded.

    Attributes:
        files: Path to digest; "" where there was none.
        folders: Where imports were looked for, to a digest of the names that can be imported.
        environment: Variable to a digest of its value, which may be a secret; "" where not set.
    """

    files: Mapping[str, str]
    folders: Mapping[str, str]
    environment: Mapping[str, str]

    def hold(self) -> bool:
        """Whether nothing of it has changed."""
        return (
            all(variable_digest(name) == digest for name, digest in self.environment.items())
            and all(file_digest(path) == digest for path, digest in self.files.items())
            and all(folder_digest(path) == digest for path, digest in self.folders.items())
        )


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of one configuration.

    Attributes:
        outcome: Resources, or why there are none.
        grid: Blocks in x, y and z of the call that the types were taken from; None where there was
            no call, or nobody asked.
        formula_bytes: What must move by the formula of the call's case [B]; None without a case.
    """

    outcome: KernelResources | str
    grid: tuple[int, int, int] | None = None
    formula_bytes: int | None = None


def question(asked: Mapping[str, Any], target: str, config: Mapping[str, Constant]) -> str:
    """A hash of all that is asked about one configuration.

    Args:
        asked: Kernel, signature, call or case, and search path.
        target: ``"sm_90"``.
        config: Constants and options.
    """
    unseen = {
        name: value
        for name, value in os.environ.items()
        if name.startswith(_READ_UNSEEN) and name not in _PLACES
    }
    parts = (READER, sys.version, sorted(unseen.items()), dict(asked), target, dict(config))
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def recall(folder: Path, questions: Sequence[str]) -> dict[int, Answer]:
    """The answers that still hold, by the question's position.

    Args:
        folder: Of the cache.
        questions: As ``question`` gives them.
    """
    found: dict[int, Answer] = {}
    hold: dict[str, bool] = {}
    for position, asked in enumerate(questions):
        answer = _read(_answer_path(folder, asked))
        if answer is None:
            continue
        digest = answer["depends"]
        if digest not in hold:
            depends = _read(_depends_path(folder, digest))
            hold[digest] = depends is not None and Depends(**depends).hold()
        if not hold[digest]:
            continue
        outcome = answer["error"] or cached(folder, answer["key"])
        if outcome is not None:
            found[position] = answer_of(answer, outcome)
    return found


def answer_of(facts: Mapping[str, Any], outcome: KernelResources | str) -> Answer:
    """An outcome with the facts of its launch, as JSON holds them."""
    grid = facts.get("grid")
    x, y, z = grid or (1, 1, 1)
    return Answer(outcome, (x, y, z) if grid else None, facts.get("formula_bytes"))


def remember(
    folder: Path,
    asked: str,
    depends: Depends,
    *,
    key: str = "",
    error: str = "",
    facts: Mapping[str, Any] | None = None,
) -> bool:
    """Keep the answer to a question: where its resources are, or why there are none.

    Args:
        folder: Of the cache.
        asked: As ``question`` gives it.
        depends: What it depends on.
        key: Of the resources in the cache.
        error: Why there are none.
        facts: ``grid`` and ``formula_bytes`` of the call.

    Returns:
        Whether it could be written: a full or read-only disk costs the next time, not this one.
    """
    text = json.dumps(asdict(depends), sort_keys=True)
    digest = hashlib.sha256(text.encode()).hexdigest()
    answer = json.dumps({"depends": digest, "key": key, "error": error, **(facts or {})})
    try:
        for path, data in (
            (_depends_path(folder, digest), text),
            (_answer_path(folder, asked), answer),
        ):
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, data.encode())
    except (OSError, InputError):
        return False
    return True


def file_digest(path: str) -> str:
    """A digest of a file's bytes, of a large one's size and time; "" where there is none."""
    try:
        found = os.stat(path)
        if not stat.S_ISREG(found.st_mode):
            return ""
        if found.st_size > _LARGE_BYTES:
            return f"{found.st_size} {found.st_mtime_ns}"
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except OSError:
        return ""


def folder_digest(path: str) -> str:
    """A digest of the names in a folder that Python could import; "" where there is none."""
    try:
        with os.scandir(path) as entries:
            names = sorted(
                entry.name
                for entry in entries
                if entry.name.endswith(_IMPORTABLE)
                or (entry.name != "__pycache__" and entry.is_dir())
            )
    except OSError:
        return ""
    return hashlib.sha256("\0".join(names).encode(errors="surrogateescape")).hexdigest()


def variable_digest(name: str) -> str:
    """A digest of a variable's value; "" where it is not set."""
    value = os.environ.get(name)
    if value is None:
        return ""
    return hashlib.sha256(value.encode(errors="surrogateescape")).hexdigest()


def _answer_path(folder: Path, asked: str) -> Path:
    return folder / "answers" / asked[:2] / f"{asked}.json"


def _depends_path(folder: Path, digest: str) -> Path:
    return folder / "depends" / f"{digest}.json"


def _read(path: Path) -> dict[str, Any] | None:
    """What a file of the cache holds; None for nothing, or what was cut short."""
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None
