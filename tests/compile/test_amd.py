"""AMD's assembly, read from short listings written by hand."""

from __future__ import annotations

from rooftile.compile.amd import read_amd, read_gcn

LISTING = """
kernel:
	s_load_dwordx2 s[2:3], s[0:1], 0x0
	global_load_dwordx4 v[0:3], v[8:9], off
	global_load_dwordx2 v[4:5], v[8:9], off offset:16
	s_waitcnt vmcnt(1)
	buffer_load_ushort v6, v7, s[4:7], 0 offen
.LBB0_1:                                ; =>This Inner Loop Header: Depth=1
	s_waitcnt vmcnt(0) lgkmcnt(0)
	buffer_load_dwordx4 v7, s[4:7], 0 offen lds
	v_mfma_f32_32x32x8_f16 a[0:15], v[0:1], v[2:3], a[0:15]
	scratch_store_dwordx4 off, v[0:3], s32 ; 16-byte Folded Spill
	scratch_load_dword v0, off, s32 offset:4 ; 4-byte Folded Reload
	s_barrier
	s_cbranch_scc0 .LBB0_1
	global_store_byte v[8:9], v0, off
	global_atomic_add_f32 v[8:9], v0, off
	s_endpgm
; codeLenInByte = 480
; TotalNumSgprs: 26
; NumVgprs: 40
; NumAgprs: 16
    .agpr_count:     16
    .group_segment_fixed_size: 128
    .max_flat_workgroup_size: 256
    .private_segment_fixed_size: 64
    .sgpr_count:     26
    .vgpr_count:     56
"""


def test_what_a_listing_holds():
    """Registers of both kinds apart, spills by what they move, no spill among the accesses."""
    read = read_amd(LISTING)
    assert (read["threads"], read["registers"], read["accumulation_registers"]) == (256, 40, 16)
    assert (read["scalar_registers"], read["stack_bytes"]) == (26, 64)
    assert (read["spill_store_bytes"], read["spill_load_bytes"]) == (16, 4)
    assert (read["static_shared_bytes"], read["barriers"], read["code_bytes"]) == (128, 1, 480)
    assert (read["tensor_core"], read["loops"]) == ({"MFMA": 1}, 1)
    assert [(a.kind, a.width_bytes, a.count, a.loop) for a in read["accesses"]] == [
        ("atomic", 4, 1, 0),
        ("load", 2, 1, 0),
        ("load", 8, 1, 0),
        ("load", 16, 1, 0),
        ("store", 1, 1, 0),
        ("copy to shared", 16, 1, 1),
    ]


def test_loads_under_way_come_back_in_order():
    """16 and 8 are out; a wait for 1 leaves the 8, to which 2 and then, after a wait, 16 come."""
    assert read_gcn(LISTING).burst_bytes == 24
    assert read_gcn("\tglobal_load_dwordx4 v[0:3], v[8:9], off\n" * 3).burst_bytes == 48


def test_waits_on_other_counters_leave_loads_out():
    """lgkmcnt is of scalar loads and shared memory; depctr of registers."""
    load = "\tglobal_load_b64 v[0:1], v[8:9], off\n"
    for wait in ("s_waitcnt lgkmcnt(0)", "s_waitcnt_depctr 0xfff"):
        assert read_gcn(f"{load}\t{wait}\n{load}").burst_bytes == 16
    assert read_gcn(f"{load}\ts_wait_loadcnt 0x0\n{load}").burst_bytes == 8
