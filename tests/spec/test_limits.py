"""Limits per architecture."""

from __future__ import annotations

import pytest

from rooftile.errors import InputError
from rooftile.spec.devices import devices
from rooftile.spec.limits import AmdLimits, NvidiaLimits, limits, targets


def test_hopper_as_its_driver_reports_it() -> None:
    """The limits of compute capability 9.0 are those an H200 reports."""
    sm = limits("sm_90")
    assert isinstance(sm, NvidiaLimits)
    assert (sm.capability, sm.name) == ("9.0", "Hopper")
    assert (sm.max_threads_per_sm, sm.max_warps_per_sm, sm.max_blocks_per_sm) == (2048, 64, 32)
    assert (sm.registers_per_sm, sm.max_registers_per_thread) == (65536, 255)
    assert (sm.register_granularity, sm.sub_partitions, sm.warp_granularity) == (256, 4, 4)
    assert (sm.shared_per_sm, sm.shared_per_block_optin) == (233472, 232448)
    assert (sm.shared_reserved_per_block, sm.shared_granularity) == (1024, 128)
    assert sm.shared_carveouts[0] == 0
    assert sm.shared_carveouts[-1] == sm.shared_per_sm
    assert sm.barrier_slots_per_sm == 64


@pytest.mark.parametrize("name", ["sm_90", "sm_90a", "SM90", "9.0", " sm_90 "])
def test_spellings_of_a_capability(name: str) -> None:
    """Compilers, drivers and people write it differently."""
    assert limits(name) is limits("sm_90")


@pytest.mark.parametrize(
    ("target", "blocks", "threads", "shared"),
    [
        ("7.0", 32, 2048, 98304),
        ("7.5", 16, 1024, 65536),
        ("8.0", 32, 2048, 167936),
        ("8.6", 16, 1536, 102400),
        ("8.9", 24, 1536, 102400),
        ("10.0", 32, 2048, 233472),
        ("12.0", 24, 1536, 102400),
        ("12.1", 24, 1536, 102400),
    ],
)
def test_nvidia_differs_where_it_does(target: str, blocks: int, threads: int, shared: int) -> None:
    """Blocks, threads and shared memory of an SM by capability."""
    sm = limits(target)
    assert isinstance(sm, NvidiaLimits)
    assert (sm.max_blocks_per_sm, sm.max_threads_per_sm, sm.shared_per_sm) == (
        blocks,
        threads,
        shared,
    )


@pytest.mark.parametrize("target", [name for name in targets() if name.startswith("sm_")])
def test_nvidia_limits_agree_with_each_other(target: str) -> None:
    """Warps are threads by 32, opt-in is the SM's memory less the reserve."""
    sm = limits(target)
    assert isinstance(sm, NvidiaLimits)
    assert sm.max_warps_per_sm * sm.warp_size == sm.max_threads_per_sm
    assert sm.shared_per_block_optin == sm.shared_per_sm - sm.shared_reserved_per_block
    assert list(sm.shared_carveouts) == sorted(sm.shared_carveouts)
    assert sm.shared_carveouts[-1] == sm.shared_per_sm
    assert (sm.barrier_slots_per_sm is not None) == (float(sm.capability) >= 9)


def test_cdna3() -> None:
    """A CU of gfx942: 512 registers a lane, shared by eight waves, accumulation ones included."""
    cu = limits("gfx942:sramecc+:xnack-")
    assert isinstance(cu, AmdLimits)
    assert (cu.unit, cu.wavefront_size, cu.simds_per_unit, cu.max_waves_per_simd) == (
        "CU",
        64,
        4,
        8,
    )
    assert (cu.vgprs_per_lane, cu.vgpr_granularity, cu.agpr_granularity) == (512, 8, 4)
    assert (cu.max_vgprs_per_wave, cu.max_vgprs_per_wave_total) == (256, 512)
    assert (cu.lds_per_unit, cu.lds_granularity, cu.max_workgroups_per_unit) == (65536, 512, 16)
    assert (cu.sgprs_per_simd, cu.sgpr_granularity, cu.max_sgprs_per_wave) == (800, 16, 102)


def test_cdna4_has_the_larger_lds() -> None:
    """gfx950: 160 KiB, in steps of 1280 B."""
    cu = limits("gfx950")
    assert isinstance(cu, AmdLimits)
    assert (cu.lds_per_unit, cu.max_lds_per_workgroup, cu.lds_granularity) == (163840, 163840, 1280)


def test_rdna3_in_both_wave_sizes() -> None:
    """gfx1100 counts per work-group processor; wave64 halves the registers of a lane."""
    wave32 = limits("gfx1100")
    wave64 = limits("gfx1100", wave=64)
    assert isinstance(wave32, AmdLimits)
    assert isinstance(wave64, AmdLimits)
    assert (wave32.unit, wave32.cus_per_unit, wave32.simds_per_unit) == ("WGP", 2, 4)
    assert (wave32.wavefront_size, wave32.vgprs_per_lane, wave32.vgpr_granularity) == (32, 1536, 24)
    assert (wave64.wavefront_size, wave64.vgprs_per_lane, wave64.vgpr_granularity) == (64, 768, 12)
    assert (wave32.lds_per_unit, wave32.max_lds_per_workgroup) == (131072, 65536)
    assert wave32.agpr_granularity == 0
    assert wave32.sgprs_per_simd is None


@pytest.mark.parametrize("target", [name for name in targets() if name.startswith("gfx")])
def test_amd_register_file_adds_up(target: str) -> None:
    """SIMDs x lanes x registers of a lane x 4 B are the register file."""
    cu = limits(target)
    assert isinstance(cu, AmdLimits)
    size = cu.simds_per_unit * cu.wavefront_size * cu.vgprs_per_lane * 4
    assert size == cu.vgpr_file_bytes


@pytest.mark.parametrize("target", ["sm_60", "gfx908", "9", "", "hopper"])
def test_unknown_target_lists_the_known(target: str) -> None:
    """No neighbour's limits are taken instead."""
    with pytest.raises(InputError, match=r"target must be one of sm_70.*sm_90.*gfx942.*, got"):
        limits(target)


def test_unknown_wave_size() -> None:
    """A wave size that a target lacks is named with those it has."""
    with pytest.raises(InputError, match="wave must be 32 or 64 on gfx1100, got 16"):
        limits("gfx1100", wave=16)
    with pytest.raises(InputError, match="wave must be 64 on gfx942, got 32"):
        limits("gfx942", wave=32)


def test_every_nvidia_gpu_has_limits() -> None:
    """The table of GPUs names no capability without limits."""
    assert {gpu.target for gpu in devices() if gpu.vendor == "NVIDIA"} <= set(targets())
