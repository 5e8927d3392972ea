"""Machine code as we read it, beside what NVIDIA's disassembler says, on every kind of kernel."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from compile.cubins import KERNELS

import rooftile
from rooftile.compile.elf import sections
from rooftile.compile.sass import read_sass

TARGETS = ("sm_80", "sm_89", "sm_90", "sm_100", "sm_120")
INSTRUCTION = re.compile(r"/\*([0-9a-f]{4,})\*/\s+(?:@!?U?P\w+\s+)?([A-Z0-9_.x]+)([^;]*);")
KINDS = {
    "LDG": "load", "STG": "store", "LDGSTS": "copy to shared", "ATOMG": "atomic", "RED": "atomic",
    "REDG": "atomic", "UTMALDG": "copy to shared", "UTMASTG": "store",
}  # fmt: skip
WIDTHS = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "64": 8, "S64": 8, "F64": 8, "128": 16,
          "256": 32, "F32x2": 8, "F32x4": 16}  # fmt: skip
ENDS = ("BRA", "EXIT", "RET", "BRX", "JMP", "JMX")
CONDITION = re.compile(r"^\s*!?U?P\d")
MATRIX = re.compile(r"[HIDQ]MMA|[HIQ]GMMA|UTC[A-Z]*MMA")


@pytest.fixture(scope="module")
def cubins(tmp_path_factory) -> Path:
    """All kernels for all targets."""
    folder = tmp_path_factory.mktemp("cubins")
    src = str(Path(rooftile.__file__).parents[1])
    subprocess.run(
        [sys.executable, str(Path(__file__).with_name("cubins.py")), str(folder), *TARGETS],
        env={**os.environ, "PYTHONPATH": src, "TRITON_CACHE_DIR": str(folder / "triton")},
        check=True,
        capture_output=True,
    )
    return folder


def disassembler() -> str:
    """The one that comes with Triton."""
    import importlib.util

    spec = importlib.util.find_spec("triton")
    assert spec is not None
    assert spec.origin is not None
    return str(Path(spec.origin).parent / "backends" / "nvidia" / "bin" / "nvdisasm")


def listed(text: str) -> tuple[Counter[object], set[tuple[int, int]], set[int]]:
    """Accesses by kind and width, matrix instructions by name, the jumps and the places that
    nothing follows, of a listing."""
    found: Counter[object] = Counter()
    labels: dict[str, int] = {}
    waiting: list[str] = []
    jumps: list[tuple[int, str]] = []
    stops: set[int] = set()
    for line in text.splitlines():
        if label := re.match(r"(\.L_\w+):", line):
            waiting.append(label[1])
        if not (match := INSTRUCTION.search(line)):
            continue
        at, (name, *parts) = int(match[1], 16), match[2].split(".")
        labels.update(dict.fromkeys(waiting, at))
        waiting.clear()
        if name in KINDS:
            width = next((WIDTHS[part] for part in parts if part in WIDTHS), 4)
            found[KINDS[name], 0 if name.startswith("UTMA") else width] += 1
        elif MATRIX.fullmatch(name):
            found["UTCMMA" if name.startswith("UTC") else name] += 1
        if name in ENDS and "@" not in line.split("*/")[1] and not CONDITION.search(match[3]):
            stops.add(at)
        if name == "BRA" and (to := re.search(r"`\((\.L_\w+)\)", match[3])):
            jumps.append((at, to[1]))
    return found, {(at, labels[to]) for at, to in jumps}, stops


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", KERNELS)
def test_as_the_disassembler_says(name, target, cubins):
    """Every access with its width, every matrix instruction, every jump; and barriers, if any."""
    path = cubins / f"{name}.{target}.cubin"
    text = subprocess.run(
        [disassembler(), "-c", str(path)], check=True, capture_output=True, text=True
    ).stdout
    (code,) = [
        part for title, part in sections(path.read_bytes()).items() if title.startswith(".text.")
    ]
    read = read_sass(code, int(target.removeprefix("sm_")))
    ours: Counter[object] = Counter((touch.kind, touch.width_bytes) for touch in read.touches)
    ours.update(read.tensor_core)
    theirs, jumps, stops = listed(text)
    assert sum(theirs.values()) > 0
    assert ours == theirs
    assert set(read.jumps) == jumps
    assert read.stops == stops
    assert read.barriers == ("BAR.SYNC" in text)


@pytest.mark.parametrize(
    ("name", "target", "loops"),
    [
        ("loops", "sm_90", {"load": (1, 2), "store": (2,)}),
        ("matmul", "sm_80", {"copy to shared": (0, 1), "store": (0,)}),
        ("matmul", "sm_100", {"copy to shared": (0, 1), "store": (0,)}),
        ("descriptors", "sm_90", {"copy to shared": (1,), "store": (1,), "atomic": (0,)}),
        ("descriptors", "sm_100", {"copy to shared": (1,), "store": (1,), "atomic": (0,)}),
    ],
)
def test_which_loop_an_access_is_in(name, target, loops, cubins):
    """By the source: what waits for a barrier behind the code jumps back and makes no loop."""
    data = (cubins / f"{name}.{target}.cubin").read_bytes()
    (code,) = [part for title, part in sections(data).items() if title.startswith(".text.")]
    found: dict[str, set[int]] = {}
    for access in read_sass(code, int(target.removeprefix("sm_"))).accesses():
        found.setdefault(access.kind, set()).add(access.loop)
    assert {kind: tuple(sorted(where)) for kind, where in found.items()} == loops


def test_the_comparison_can_fail(cubins):
    """Read as another generation, a copy's width is another."""
    data = (cubins / "matmul.sm_100.cubin").read_bytes()
    (code,) = [part for title, part in sections(data).items() if title.startswith(".text.")]
    assert read_sass(code, 100).accesses() != read_sass(code, 90).accesses()


def test_loads_under_way_in_a_pipeline(cubins):
    """3 stages of 64 x 64 fp16 tiles of A and B: 2 are on their way, 256 B of each thread."""
    data = (cubins / "matmul.sm_80.cubin").read_bytes()
    (code,) = [part for title, part in sections(data).items() if title.startswith(".text.")]
    stage = 2 * 64 * 64 * 2 // 128
    assert read_sass(code, 80).burst_bytes == 2 * stage


def test_no_elf_is_refused():
    """A cut or foreign file."""
    with pytest.raises(ValueError, match="no 64-bit ELF file"):
        sections(b"\x7fELF\x01")
