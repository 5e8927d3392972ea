"""The Hopper attention kernels, compiled without such a GPU: what their hot loops hold."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import torch
import triton

from rooftile.compile.build import compile_and_read, plan_build
from rooftile.compile.elf import sections
from rooftile.compile.launch import record_launches
from rooftile.compile.sass import read_sass
from rooftile.compile.targets import target_of
from rooftile.ops._launch import Planned, planned_for
from rooftile.ops.flash import hopper_bwd, hopper_fwd

SHARED = 232_448  # most shared memory of a block [B]: CUDA programming guide, 9.0
REGISTERS = 65_536  # of an SM
BYTES = 16  # of an instruction
LOCAL_LOAD, LOCAL_STORE, EXIT, MATRIX = 0x983, 0x387, 0x94D, 0x1F0
CAUSAL, WINDOW = {"right": 0}, {"left": 255, "right": 0}
# columns, band, keys; the last is no multiple of a tile
QUICK = [(128, CAUSAL, 1024)]
REST = [
    (128, {}, 1024), (128, WINDOW, 1024), (128, CAUSAL, 1000), (64, {}, 1024), (64, CAUSAL, 1024),
    (64, WINDOW, 1000), (256, {}, 1024), (256, CAUSAL, 1024), (256, WINDOW, 1000),
]  # fmt: skip
# Loads and stores of local memory in hot loops, forward and backward, under Triton 3.9, whose ptxas
# keeps fewer values in registers than that of 3.6. Else 0, 0, and 4, 0.
MOVED = {
    (128, ()): ((0, 0), (7, 0)), (128, ("left", "right")): ((30, 25), (12, 9)),
    (64, ("left", "right")): ((3, 3), (1, 1)),
    (256, ()): ((2, 0), (13, 1)), (256, ("right",)): ((3, 0), (20, 3)),
    (256, ("left", "right")): ((16, 6), (22, 0)),
}  # fmt: skip


def operands(columns, keys):
    """Queries, keys, values and log-sum-exp of one call, with a group of two query heads."""
    q = torch.empty(1, 4, 1024, columns, dtype=torch.bfloat16)
    k = torch.empty(1, 2, keys, columns, dtype=torch.bfloat16)
    return q, k, torch.empty_like(k), torch.empty(1, 4, 1024)


def forward(columns, band, keys):
    """Launches the forward."""
    q, k, v, lse = operands(columns, keys)
    return lambda: hopper_fwd.attention_fwd(q, k, v, q, lse, scale=0.1, **band)


def backward(columns, band, keys, deterministic=False):
    """Launches the backward."""
    q, k, v, lse = operands(columns, keys)
    return lambda: hopper_bwd.attention_bwd(
        q, k, v, q, lse, q, q, k, v, scale=0.1, deterministic=deterministic, **band
    )


def compiled(function):
    """Each kernel of Gluon that a function launches: its name, resources, code and cubin."""
    sm_90 = target_of("sm_90")
    with planned_for(Planned("sm_90", 132)):
        _, launches = record_launches(function, sm_90)
    for launched in launches:
        if launched.kernel.is_gluon():
            build = plan_build(launched.kernel, sm_90, launched.call, {})
            kernel, resources = compile_and_read(build)
            parts = sections(kernel.asm["cubin"])
            code = next(part for name, part in parts.items() if name.startswith(".text."))
            yield build.kernel.__name__, resources, code, kernel.asm["cubin"]


def hot_loops(code):
    """Operations of each innermost loop of matrix products, on the way that nothing masks.

    The retries of a wait stand behind the last exit; a jump forward inside a loop skips a branch.
    """
    operations = [
        int.from_bytes(code[at : at + 8], "little") & 0xFFF for at in range(0, len(code), BYTES)
    ]
    last = max(i for i, operation in enumerate(operations) if operation == EXIT)
    jumps = [(a // BYTES, b // BYTES) for a, b in read_sass(code, 90).jumps if a // BYTES <= last]
    matrix = {i for i, operation in enumerate(operations) if operation & 0x1FF == MATRIX}
    loops = [(b, a) for a, b in jumps if b < a and any(b <= i <= a for i in matrix)]
    for start, end in loops:
        inner = any(start <= s and e <= end and (s, e) != (start, end) for s, e in loops)
        if not inner:
            skipped = {
                i for a, b in jumps if start <= a < b <= end for i in range(a + 1, b)
                if not matrix & set(range(a + 1, b))
            }  # fmt: skip
            yield [operations[i] for i in range(start, end + 1) if i not in skipped]


RELOADED = 4  # values of a hot loop of the unordered backward of 128 columns, under Triton 3.6


def examine(function, loads=0, stores=0, reloaded=0, stored=0):
    """Every kernel fits an SM, multiplies by wgmma, and keeps its hot loops out of memory.

    ``loads``, ``stores``: how many of a loop's values may come from local memory and go there under
    a Triton above 3.6; ``reloaded``, ``stored``: under 3.6.
    """
    if triton.__version__.startswith("3.6."):
        loads, stores = reloaded, stored
    found = list(compiled(function))
    assert found
    for name, resources, code, _ in found:
        assert resources.dynamic_shared_bytes <= SHARED
        assert resources.registers * resources.threads <= REGISTERS
        assert set(resources.tensor_core) == {"HGMMA"}
        loops = list(hot_loops(code))
        assert len(loops) >= 2
        for operations in loops:
            assert operations.count(LOCAL_STORE) <= stores, name
            assert operations.count(LOCAL_LOAD) <= loads, name


def overwritten(cubin, path):
    """Operands that a loop's products take from registers, kept from before it and written in it.

    The products of K and V, whose other operand is not transposed; each operand is 4 registers.
    """
    path.write_bytes(cubin)
    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "nvdisasm"
    text = subprocess.run([tool, "-c", path], capture_output=True, text=True, check=True).stdout
    labels, lines = {}, []
    for line in text.splitlines():
        if label := re.match(r"\s*(\.L_x_\d+):", line):
            labels[label[1]] = len(lines)
        elif found := re.search(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?(.*?);", line):
            lines.append(found[1])
    last = max(i for i, line in enumerate(lines) if line.startswith("EXIT"))
    for end, line in enumerate(lines[:last]):
        back = re.match(r"BRA.*`\((\.L_x_\d+)\)", line)
        for at in range(labels[back[1]] if back else end, end):
            product = re.match(r"HGMMA\S+ R\d+, R(\d+), gdesc\[\w+\], ", lines[at])
            if product:
                kept = {int(product[1]) + i for i in range(4)}
                before = any(kept & written(x) for x in lines[labels[back[1]] : at])
                yield not before and any(kept & written(x) for x in lines[at:end])


def written(line):
    """Registers that a load, a move or arithmetic writes."""
    found = re.match(r"(?!ST|BAR|SYNCS|R2UR|HGMMA)(\S+)\s+(?:P\w+, )?R(\d+)", line)
    if not found:
        return set()
    wide = re.search(r"LDSM\S*\.4|\.128|\.64|CS2R|WIDE", found[1])
    count = 1 if not wide else 2 if wide[0] in (".64", "CS2R", "WIDE") else 4
    return {int(found[2]) + i for i in range(count)}


@pytest.mark.parametrize(
    ("queries", "kv_heads", "band", "blocks"),
    [
        (4096, 8, {}, 8 * 32),
        (4096, 8, CAUSAL, 8 * 32),
        (1024, 2, {}, 2 * 8),
        (1024, 32, {}, 132),
        (4096, 8, WINDOW, 132),
        (2048, 8, CAUSAL, 128),
        (1024, 8, CAUSAL, 64),
    ],
)
def test_blocks_of_the_backward(queries, kv_heads, band, blocks):
    """A block a tile where a tile sees 32 blocks of queries or more; else one a multiprocessor.

    32 query heads: a group of heads adds up, a causal mask hides half, a window leaves 256 keys.
    """
    q = torch.empty(1, 32, queries, 128, dtype=torch.bfloat16)
    k = torch.empty(1, kv_heads, queries, 128, dtype=torch.bfloat16)
    lse = torch.empty(1, 32, queries)

    def call():
        hopper_bwd.attention_bwd(q, k, k, q, lse, q, q, k, k, scale=0.1, **band)

    with planned_for(Planned("sm_90", 132)):
        _, launches = record_launches(call, target_of("sm_90"))
    (keys,) = (launched for launched in launches if launched.kernel.is_gluon())
    assert keys.grid == (blocks, 1, 1)


@pytest.mark.parametrize(("columns", "deterministic"), [(64, False), (256, True)])
def test_operands_in_registers_outlive_their_loop(columns, deterministic, tmp_path):
    """ptxas 12.8 once gave K's registers to dP inside the loop: gradients were wrong by 0.8."""
    function = backward(columns, CAUSAL, 1024, deterministic)
    *_, cubin = next(compiled(function))
    found = list(overwritten(cubin, tmp_path / "kernel.cubin"))
    assert found
    assert not any(found)


@pytest.mark.parametrize("case", QUICK, ids=str)
def test_the_forward_keeps_to_registers(case):
    """No hot loop of the forward touches local memory."""
    examine(forward(*case))


@pytest.mark.parametrize("case", QUICK, ids=str)
def test_the_backward_keeps_to_registers(case):
    """The backward stores nothing there; it reloads up to 4 values."""
    examine(backward(*case), 4, reloaded=RELOADED)


@pytest.mark.parametrize("case", QUICK, ids=str)
def test_the_ordered_backward_keeps_to_registers(case):
    """The backward that gives the same bits each time has registers to spare."""
    examine(backward(*case, deterministic=True))


@pytest.mark.slow
@pytest.mark.parametrize("case", REST, ids=str)
def test_every_variant_keeps_to_registers(case):
    """Any width and mask, forward and backward, in either order of the sums."""
    columns, band, _ = case
    ahead, back = MOVED.get((columns, tuple(band)), ((0, 0), (4, 0)))
    examine(forward(*case), *ahead)
    examine(backward(*case), *back, reloaded=RELOADED if columns == 128 else 0)
    examine(backward(*case, deterministic=True), *(back if columns == 256 else (0, 0)))
