"""Occupancy: the vendors' own answers, the field's traps, and what no kernel has."""

from __future__ import annotations

import dataclasses
import time

import pytest
from plan.vectors import rows

import rooftile
from rooftile.errors import InputError
from rooftile.plan.occupancy import occupancy, suggested_block
from rooftile.plan.resident import UNLIMITED, resident, waves_per_simd
from rooftile.spec.limits import AmdLimits, NvidiaLimits, limits, targets

NVIDIA = rows("occupancy_vectors.csv")
AMD = rows("occupancy_vectors_amd.csv")
MASK = {"warps": 1, "registers": 2, "shared memory": 4, "blocks": 8, "barriers": 16}


def header(row: dict[str, str]) -> tuple[int, ...]:
    """Our answer to a row of NVIDIA's, in the order of its columns."""
    number = {name: int(text) for name, text in row.items() if text.lstrip("-").isdigit()}
    unit = limits(row["cc"])
    assert isinstance(unit, NvidiaLimits)
    now = resident(
        unit,
        number["threads_per_block"],
        number["regs_per_thread"],
        number["static_smem"],
        number["dynamic_smem"],
        number["barriers"],
        opt_in=row["shmem_mode"] == "optin",
        max_dynamic_shared=number["max_dyn_attr"],
        carveout=number["carveout"],
    )
    warps = -(-number["threads_per_block"] // 32)
    found = {
        "warps": now.by_warps, "registers": now.by_registers, "shared memory": now.by_shared,
        "blocks": now.by_blocks,
    }  # fmt: skip
    # the header finds what limits before it looks at barriers, and does not look again
    least = min(found.values())
    mask = sum(MASK[name] for name, blocks in found.items() if blocks == least)
    if unit.barrier_slots_per_sm is not None and now.by_barriers == now.blocks:
        mask |= MASK["barriers"]
    limit = [
        -1 if blocks == UNLIMITED else blocks
        for blocks in (now.by_warps, now.by_blocks, now.by_registers, now.by_shared)
    ]
    return (now.blocks, now.blocks * warps, unit.max_warps_per_sm, mask, *limit)


@pytest.mark.parametrize("cc", sorted({row["cc"] for row in NVIDIA}))
def test_nvidia_as_its_header_says(cc):
    """All vectors of a capability: blocks, warps, what limits, and what each resource allows."""
    columns = ("active_blocks", "active_warps", "max_warps", "limiting_mask", "limit_warps",
               "limit_blocks", "limit_regs", "limit_smem")  # fmt: skip
    mine = [row for row in NVIDIA if row["cc"] == cc]
    wrong = [row for row in mine if header(row) != tuple(int(row[name]) for name in columns)]
    assert len(mine) >= 30
    assert wrong == []


def test_there_are_all_vectors():
    """1080 of NVIDIA and 391 of AMD."""
    assert (len(NVIDIA), len(AMD)) == (1080, 391)


def test_amd_as_its_compiler_says():
    """All vectors: the waves of a SIMD."""
    wrong = []
    for row in AMD:
        unit = limits(row["target"], wave=int(row["wavefront"]))
        assert isinstance(unit, AmdLimits)
        threads, vgprs, agprs, lds = (
            int(row[name]) for name in ("threads_per_workgroup", "vgprs", "agprs", "lds_bytes")
        )
        if waves_per_simd(unit, threads, vgprs, agprs, lds, None) != int(row["waves_per_simd"]):
            wrong.append(row)
    assert wrong == []


def test_suggested_block_as_the_header_says():
    """The block size with the most resident threads, where a row leaves all else at its default."""
    plain = [
        row for row in NVIDIA
        if row["carveout"] == "-1" and row["barriers"] in ("0", "1")
        and (row["shmem_mode"] == "optin") and row["max_dyn_attr"] == row["dynamic_smem"]
        and int(row["regs_per_thread"]) <= 255
    ]  # fmt: skip
    assert len(plain) > 300
    for row in plain:
        unit = limits(row["cc"])
        assert isinstance(unit, NvidiaLimits)
        shared = int(row["static_smem"]), int(row["dynamic_smem"])
        assert suggested_block(unit, int(row["regs_per_thread"]), *shared) == int(
            row["suggested_block"]
        ), row


@pytest.mark.parametrize(
    ("target", "threads", "registers", "shared", "blocks", "warps", "percent"),
    [
        ("8.0", 224, 92, 0, 2, 14, 21.875),
        ("8.0", 128, 85, 0, 5, 20, 31.25),
        ("9.0", 128, 85, 0, 5, 20, 31.25),
        ("8.0", 256, 162, 0, 1, 8, 12.5),
        ("9.0", 32, 8, 12 * 1024, 17, 17, 26.5625),
        ("8.0", 1024, 32, 0, 2, 64, 100),
        ("8.6", 1024, 32, 0, 1, 32, 66.6667),
        ("8.9", 1024, 32, 0, 1, 32, 66.6667),
        ("12.0", 1024, 32, 0, 1, 32, 66.6667),
        ("12.0", 128, 32, 33 * 1024, 2, 8, 16.6667),
        ("12.0", 32, 32, 0, 24, 24, 50),
        ("8.0", 1024, 64, 0, 1, 32, 50),
        ("8.0", 128, 16, 0, 16, 64, 100),
        ("8.0", 128, 0, 0, 16, 64, 100),
    ],
)
def test_the_field_s_traps(target, threads, registers, shared, blocks, warps, percent):
    """Rounding of registers, the driver's shared memory, caps that differ by chip, no division."""
    found = rooftile.occupancy(
        target=target, threads=threads, registers=registers, shared_bytes=shared
    )
    assert (found.blocks, found.warps) == (blocks, warps)
    assert found.occupancy * 100 == pytest.approx(percent, abs=1e-3)


def test_used_and_allocated_registers_are_both_shown():
    """162 registers of 256 threads are 43,008 of the file; 10 of 512 are 8,192."""
    wide = rooftile.occupancy(target="8.0", threads=256, registers=162)
    assert (wide.registers, wide.allocated_registers_per_thread) == (162, 168)
    assert wide.allocated_registers_per_block == 43008
    narrow = rooftile.occupancy(target="8.0", threads=512, registers=10)
    assert narrow.allocated_registers_per_block == 8192


@pytest.mark.parametrize(
    ("threads", "registers", "fit"), [(1024, 65, "at most 64"), (800, 80, "at most 72")]
)
def test_what_cannot_launch_is_named(threads, registers, fit):
    """Registers that fit as a sum but not by sub-partition: no 0 %, no division by zero."""
    found = rooftile.occupancy(target="8.0", threads=threads, registers=registers)
    assert (found.blocks, found.launches) == (0, False)
    assert "do not fit the register file" in found.reason
    assert fit in found.reason
    assert rooftile.occupancy(target="8.0", threads=threads, registers=int(fit[8:])).launches


def test_shared_memory_that_no_block_can_have():
    """The reason names what is wanted and what there is."""
    found = rooftile.occupancy(target="sm_90", threads=128, shared_bytes=232449)
    assert found.reason == "232,449 B of shared memory are wanted, a block can have 232,448 B"
    assert rooftile.occupancy(target="sm_90", threads=128, shared_bytes=232448).blocks == 1


def test_without_opt_in_a_block_has_48_kib():
    """One byte more cannot launch."""
    for size, launches in ((48 * 1024, True), (48 * 1024 + 1, False)):
        found = rooftile.occupancy(target="sm_90", threads=128, shared_bytes=size, opt_in=False)
        assert found.launches is launches


@pytest.mark.parametrize("target", targets())
@pytest.mark.parametrize("registers", [24, 40, 64, 128])
def test_cliffs_are_where_the_blocks_change(target, registers):
    """One step on this side of a cliff the blocks are the same, at it they are those it says."""
    found = occupancy(target, threads=256, registers=registers, dynamic_shared=6000)
    assert found.cliffs
    for cliff in found.cliffs:
        back = 1 if cliff.direction == "fewer" else -1
        for value, blocks in ((cliff.at, cliff.blocks), (cliff.at + back, found.blocks)):
            changed = {"registers": registers, "dynamic_shared": 6000}
            changed["registers" if cliff.resource == "registers" else "dynamic_shared"] = value
            assert occupancy(target, threads=256, **changed).blocks == blocks
        assert (cliff.blocks > found.blocks) == (cliff.direction == "fewer")
        assert cliff.change == cliff.at - (registers if cliff.resource == "registers" else 6000)


def test_the_cliffs_of_the_example():
    """8 registers fewer fill a Hopper SM; 1 more costs a block."""
    found = rooftile.occupancy(target="sm_90", threads=256, registers=40, shared_bytes=8192)
    assert (found.blocks, found.occupancy, found.limiting) == (6, 0.75, ("registers",))
    fewer, more = found.cliffs[:2]
    assert (fewer.change, fewer.blocks, fewer.occupancy) == (-8, 8, 1.0)
    assert (more.change, more.blocks) == (1, 5)


def test_amd_counts_whole_work_groups():
    """16 waves of 72 registers: the compiler says 7 waves a SIMD, 1 work-group of 4 is resident."""
    found = rooftile.occupancy(target="gfx942", threads=1024, registers=72)
    assert (found.waves_per_simd, found.blocks, found.warps) == (7, 1, 16)
    assert (found.occupancy, found.unit) == (0.5, "CU")


def test_amd_work_group_that_cannot_launch():
    """Its 4 waves a SIMD have 160 registers each: 512 hold 3."""
    found = rooftile.occupancy(target="gfx942", threads=1024, registers=160)
    assert not found.launches
    assert "at most 128 a thread" in found.reason


def test_amd_accumulation_registers_share_the_file():
    """100 and 30 make 130: 3 waves of a SIMD instead of 4."""
    alone = rooftile.occupancy(target="gfx90a", threads=256, registers=100)
    both = rooftile.occupancy(
        target="gfx90a", threads=256, registers=100, accumulation_registers=30
    )
    assert (alone.waves_per_simd, both.waves_per_simd) == (4, 3)


def test_amd_scalar_registers_limit_cdna_only():
    """Above 80 a SIMD runs 7 waves, above 96 6."""
    waves = [
        rooftile.occupancy(target="gfx942", threads=64, scalar_registers=n).waves_per_simd
        for n in (80, 81, 96, 97)
    ]
    assert waves == [8, 7, 7, 6]
    rdna = rooftile.occupancy(target="gfx1100", threads=32, scalar_registers=106)
    assert rdna.waves_per_simd == 16


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"threads": 0}, "threads must be 1 to 1024 on sm_90, got 0"),
        ({"threads": 1025}, "threads must be 1 to 1024 on sm_90, got 1025"),
        ({"threads": None}, "threads must be given"),
        ({"registers": 256}, "registers must be 0 to 255 on sm_90, got 256"),
        ({"registers": -1}, "registers must be 0 to 255"),
        ({"shared_bytes": -1}, "dynamic_shared must be 0 B or more, got -1"),
        ({"accumulation_registers": 8}, "agprs must be 0 to 0 on sm_90, got 8"),
        ({"target": "sm_91"}, "target must be one of"),
    ],
)
def test_what_no_kernel_has_is_refused(changed, message):
    """With the argument, what was wanted and what came."""
    arguments = {"target": "sm_90", "threads": 256, "registers": 32, **changed}
    with pytest.raises(InputError, match=message):
        rooftile.occupancy(**arguments)


def test_the_simple_formula_and_the_lesson():
    """With 32 registers and 8 KiB of 100 KiB: 37.5, 100 and 100 % of 64, 256 and 1024 threads."""
    from rooftile.plan.simple_occupancy import simple_occupancy

    unit = limits("sm_90")
    assert isinstance(unit, NvidiaLimits)
    lesson = dataclasses.replace(unit, shared_per_sm=100 * 1024)
    found = [
        simple_occupancy(lesson, threads=n, registers=32, shared=8192).occupancy
        for n in (64, 256, 1024)
    ]
    assert found == [0.375, 1.0, 1.0]


def test_the_simple_formula_says_what_it_leaves_out():
    """16 registers of 128 threads: 32 blocks, 200 %, where the hardware runs 16."""
    simple = rooftile.simple_occupancy(target="sm_80", threads=128, registers=16)
    exact = rooftile.occupancy(target="sm_80", threads=128, registers=16)
    assert (simple.blocks, simple.occupancy) == (32, 2.0)
    assert (exact.blocks, exact.occupancy) == (16, 1.0)
    assert any("64 warps" in what for what in simple.leaves_out)
    assert any("1024 B of shared memory" in what for what in simple.leaves_out)


def test_two_hundred_thousand_queries_a_second():
    """Of processor time, without the cliffs; the best of five, as others share the machine."""
    unit = limits("sm_90")
    best = 0.0
    for _ in range(5):
        begun = time.process_time()
        for i in range(20_000):
            resident(unit, 256, i & 127, 0, 8192)
        best = max(best, 20_000 / (time.process_time() - begun))
    assert best > 200_000
