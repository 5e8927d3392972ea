"""docs/occupancy.md shows what its commands print."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pytest
import triton

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "occupancy.md").read_text()


def commands() -> list[tuple[str, str]]:
    """Every command of the page and the lines under it."""
    found = []
    for block in re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL):
        joined = block.replace("\\\n", " ")
        for part in re.split(r"^\$ ", joined, flags=re.MULTILINE)[1:]:
            line, _, output = part.partition("\n")
            found.append((" ".join(line.split()), output))
    return found


def printed(cli, line: str) -> str:
    """What a command prints, in a terminal's order: errors behind data, progress left out."""
    done = cli(*shlex.split(line)[1:])
    errors = [text for text in done.err.splitlines() if text.startswith("error:")]
    return done.out + "".join(f"{text}\n" for text in errors)


@pytest.mark.skipif(
    not triton.__version__.startswith("3.9"), reason="registers are those of Triton 3.9"
)
@pytest.mark.parametrize(("line", "output"), commands(), ids=[line for line, _ in commands()])
def test_the_page_shows_what_is_printed(line, output, cli, tmp_path, monkeypatch):
    """Each command beside copies of the examples, to the letter."""
    for path in (ROOT / "examples").glob("*.py"):
        shutil.copy(path, tmp_path)
    monkeypatch.chdir(tmp_path)
    shown = re.sub(r"^\n", "", output)
    assert printed(cli, line).rstrip("\n") == shown.rstrip("\n")


def test_the_page_has_commands():
    """Among them a sweep, both vendors, a traffic and a tile."""
    words = {line.split()[1] for line, _ in commands()}
    assert words == {"occupancy", "traffic", "tile"}
    assert len(commands()) >= 10
