"""Tiles: the lesson's, the field's traps, and what a ranking must hold."""

from __future__ import annotations

import pytest

import rooftile
from rooftile.errors import InputError
from rooftile.plan.tile import check_dot, check_fits, kv_splits, most_shared, waves
from rooftile.plan.tile_attention import attention_shared_bytes
from rooftile.plan.tile_matmul import matmul_traffic, pipeline_shared_bytes
from rooftile.records.tile import RowTile, TilePlan
from rooftile.spec.limits import limits

KIB = 1024


@pytest.mark.parametrize(
    ("n", "plan"), [(8192, (8192, 1)), (50257, (16384, 4)), (1, (1, 1)), (781, (512, 2))]
)
def test_the_lesson_s_tiles(n, plan):
    """The largest power of two that fits 100 KiB of floats and the row."""
    assert rooftile.tile_plan(n, 100 * KIB, 4) == plan


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, 1024, 4), "n must be 1"),
        ((8, 2, 4), "one element of 4 B, got 2"),
        ((8, 8, 0), "itemsize"),
    ],
)
def test_the_lesson_s_tiles_of_nothing(arguments, message):
    """Nothing to cut, nothing that fits."""
    with pytest.raises(InputError, match=message):
        rooftile.tile_plan(*arguments)


def test_candidates_are_checked_against_memory():
    """256 x 64 x 32 floats in 4 stages: 163,840 B, too much for 8.6, one block an SM on 8.0."""
    shared = pipeline_shared_bytes(256, 64, 32, 4, 4)
    assert shared == 163840
    assert most_shared(limits("8.6")) == 101376
    with pytest.raises(InputError, match=r"163,840 B .* can have 101,376 B"):
        check_fits(limits("8.6"), shared, "256x64x32")
    check_fits(limits("8.0"), shared, "256x64x32")
    assert rooftile.occupancy(target="8.0", threads=256, shared_bytes=shared).blocks == 1


@pytest.mark.parametrize(
    ("target", "shared"), [("sm_80", (49152, 98304, 147456)), ("sm_90", (98304, 147456, 196608))]
)
def test_shared_memory_by_stages_as_triton_allocates_it(target, shared):
    """128 x 256 x 64 fp16: Ampere keeps one stage in registers, Hopper none."""
    unit = limits(target)
    found = tuple(pipeline_shared_bytes(128, 256, 64, 2, stages, unit) for stages in (2, 3, 4))
    assert found == shared
    assert found[-1] <= most_shared(unit)


@pytest.mark.parametrize(
    "extents", [(8, 16, 16, 2), (16, 8, 16, 2), (1, 16, 16, 2), (16, 16, 32, 1)]
)
def test_dots_that_triton_pads(extents):
    """M and N may be 1."""
    check_dot(*extents)


@pytest.mark.parametrize(
    ("extents", "message"),
    [
        ((16, 16, 8, 2), "block_k must be 16 or more for operands of 2 B, got 8"),
        ((16, 16, 16, 1), "block_k must be 32 or more for operands of 1 B, got 16"),
        ((24, 16, 16, 2), "block_m must be a power of two, got 24"),
        ((16, 16, 16, 3), "itemsize must be 1, 2, 4 or 8 B, got 3"),
    ],
)
def test_dots_that_do_not_compile(extents, message):
    """Too shallow, no power of two."""
    with pytest.raises(InputError, match=message):
        check_dot(*extents)


def test_no_setting_makes_a_scan_of_663_808_bytes_fit():
    """The reason does not ask for fewer stages."""
    with pytest.raises(InputError, match=r"663,808 B .* fewer stages do not help"):
        check_fits(limits("sm_90"), 663808, "head dim 512")
    with pytest.raises(InputError, match="head_dim 4096 fits no tile on h100-sxm"):
        rooftile.tile("attention", (1, 1, 128, 4096))


@pytest.mark.parametrize(("units", "splits"), [(108, 9), (132, 11), (114, 9)])
def test_splits_of_a_decoding_step(units, splits):
    """12 heads of one sequence fill the SMs, none twice."""
    assert kv_splits(12, units, most=64) == splits
    assert kv_splits(12, units, most=4) == 4
    assert kv_splits(500, units, most=64) == 1


def test_wave_quantisation():
    """133 blocks on 132 SMs take two rounds and use half of them."""
    one, two = waves(132, 132), waves(133, 132)
    assert (one.waves, one.efficiency) == (1, 1.0)
    assert (two.waves, two.tail_blocks, two.slots) == (2, 1, 132)
    assert two.efficiency == pytest.approx(133 / 264)
    assert waves(133, 132, per_unit=2).waves == 1


def test_traffic_of_a_tiled_matmul():
    """A goes once a column of tiles, B once a row of them, C once."""
    assert matmul_traffic(512, 1024, 64, 128, 256, 2, 2) == (512 * 64 * 4 + 64 * 1024 * 4) * 2 + (
        512 * 1024 * 2
    )
    whole = matmul_traffic(100, 100, 64, 128, 128, 2, 2)
    assert whole == (2 * 100 * 64 + 100 * 100) * 2


@pytest.mark.parametrize("gpu", ["a100-sxm-80gb", "h100-sxm", "b200", "rtx-5090", "mi300x"])
@pytest.mark.parametrize("op", ["matmul", "attention"])
def test_a_ranking_holds_only_what_fits_and_is_sorted(gpu, op):
    """Shared memory within the block's, accumulators within a thread's, cost ascending."""
    shape = (4096, 4096, 4096) if op == "matmul" else (4, 32, 4096, 128)
    plan = rooftile.tile(op, shape, gpu=gpu, top=50)
    assert isinstance(plan, TilePlan)
    unit = limits(plan.target)
    assert len(plan.tiles) > 3
    costs = [tile.traffic_bytes / tile.waves.efficiency for tile in plan.tiles]
    assert costs == sorted(costs)
    for tile in plan.tiles:
        assert tile.shared_bytes <= most_shared(unit)
        assert tile.accumulator_registers <= 128
        assert tile.traffic_bytes >= plan.least_bytes
    assert plan.refused["shared memory"] > 0


def test_the_tile_of_a_large_matmul_on_hopper():
    """128 x 256 by 8 warps, as cuBLAS has it: the largest whose accumulators stay in 128."""
    plan = rooftile.tile("matmul", "4096x4096x4096", gpu="h100-sxm")
    best = plan.tiles[0]
    assert {best.block_m, best.block_n} == {128, 256}
    assert (best.num_warps, best.accumulator_registers, best.waves.blocks) == (8, 128, 512)


def test_a_small_matmul_takes_smaller_tiles():
    """512 cubed: 8 tiles of 128 x 256 would leave 124 of 132 SMs idle."""
    best = rooftile.tile("matmul", (512, 512, 512), gpu="h100-sxm").tiles[0]
    assert best.block_m * best.block_n < 128 * 128
    assert best.waves.blocks >= 64


def test_attention_reads_keys_once_a_tile_of_queries():
    """Batch 1, 1 head: q and o once, k and v as often as there are tiles."""
    plan = rooftile.tile("attention", (1, 1, 1024, 2048, 64), gpu="h100-sxm", top=50)
    for tile in plan.tiles:
        tiles = 1024 // tile.block_m
        assert tile.traffic_bytes == (2 * 1024 + 2 * 2048 * tiles) * 64 * 2
        assert tile.waves.blocks == tiles
    assert plan.least_bytes == (2 * 1024 + 2 * 2048) * 64 * 2


def test_attention_of_flash_attention_3_on_hopper():
    """Head dimension 128: 128 queries by 128 keys in 2 stages, 164 KB, is among the tiles."""
    assert attention_shared_bytes(128, 128, 128, 2, 2, limits("sm_90")) == 160 * KIB
    plan = rooftile.tile("attention", (16, 32, 4096, 128), gpu="h100-sxm")
    best = plan.tiles[0]
    assert (best.block_m, best.block_n, best.num_warps) == (128, 128, 8)


def test_grouped_heads_share_their_keys():
    """8 heads of keys for 32 of queries: the least is less; 5 do not divide."""
    whole = rooftile.tile("attention", (1, 32, 1024, 128)).least_bytes
    grouped = rooftile.tile("attention", (1, 32, 1024, 128), kv_heads=8).least_bytes
    assert grouped * 64 == whole * 40
    with pytest.raises(InputError, match=r"kv_heads must divide heads \(32\), got 5"):
        rooftile.tile("attention", (1, 32, 1024, 128), kv_heads=5)


@pytest.mark.parametrize(
    ("n", "gpu", "shape", "tiles"),
    [(256, "a10", "many rows", 1), (4096, "a10", "one row", 1), (65537, "a10", "loop", None),
     (131073, "a10", "loop", None), (1_300_000, "a10", "loop", None),
     (65537, "h100-sxm", "split", 1)],
)  # fmt: skip
def test_every_width_of_row_has_a_tile(n, gpu, shape, tiles):
    """Short rows share a program, long ones are looped over or split; no column is left out."""
    row = rooftile.tile("rows", (n,), dtype="float32", gpu=gpu)
    assert isinstance(row, RowTile)
    assert row.shape == shape
    assert row.block * row.tiles * row.programs >= n
    assert row.block <= 1 << 20
    assert tiles in (None, row.tiles)
    assert row.reads == (2 if shape == "loop" else 1)
    assert row.idle == pytest.approx(1 - n / (row.block * row.tiles * row.programs))


def test_rows_are_launched_as_planned():
    """The plan is the launch that the kernels take."""
    from rooftile.plan.launch import row_launch

    for n in (100, 1000, 10_000, 100_000):
        row = rooftile.tile("rows", (n,), gpu="h100-sxm")
        launch = row_launch("softmax_fwd", n, 2, clusters=True)
        assert (row.rows, row.block, row.num_warps, row.programs) == (
            launch.rows, launch.block_n, launch.num_warps, launch.cluster,
        )  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("conv", (1,)), "op must be one of rows, matmul, attention, got 'conv'"),
        (("matmul", "4096x4096"), "shape of matmul must be MxNxK, got '4096x4096'"),
        (("matmul", (4, 4, -4)), "shape of matmul must be MxNxK"),
        (("matmul", (4, 4, 0)), "k must be 1 or more, got 0"),
        (("attention", (1, 2, 3)), "shape of attention must be BATCHxHEADS"),
        (("rows", "0"), "n_cols must be 1 or more, got 0"),
    ],
)
def test_what_is_no_shape_is_refused(arguments, message):
    """With the form that is wanted."""
    with pytest.raises(InputError, match=message):
        rooftile.tile(*arguments)


def test_an_unknown_family_is_refused():
    """It lists those there are."""
    with pytest.raises(InputError, match="family must be one of softmax_fwd"):
        rooftile.tile("rows", (64,), family="conv")


@pytest.mark.parametrize(
    ("gpu", "nearest"), [("rtx-4090", 256), ("h100-sxm", 256), ("a100-sxm-80gb", 256)]
)
def test_a_head_that_no_tile_holds_names_the_nearest_that_fits(gpu, nearest):
    """512 wants 272 registers of accumulators where 160 stand; the nearest it names has tiles."""
    with pytest.raises(InputError, match=rf"head_dim 512 fits no tile .*fits: {nearest}$"):
        rooftile.tile("attention", (1, 8, 1024, 512), gpu=gpu)
    assert rooftile.tile("attention", (1, 8, 1024, nearest), gpu=gpu).tiles
    assert rooftile.tile("attention", (1, 8, 1024, 512), gpu="b200").tiles, "in tensor memory"


@pytest.mark.parametrize(
    ("gpu", "dtype"),
    [
        ("t4", "bfloat16"), ("v100-sxm2-32gb", "bfloat16"), ("a100-sxm-80gb", "float8_e4m3fn"),
        ("h100-sxm", "int32"), ("rx-7900-xtx", "float8_e4m3fn"),
    ],
)  # fmt: skip
def test_a_dtype_that_no_matrix_unit_takes_is_refused(gpu, dtype):
    """A tile of it would be no use; what the GPU has is listed."""
    for op, shape in (("matmul", (512, 512, 512)), ("attention", (1, 8, 512, 64))):
        with pytest.raises(InputError, match=rf"dtype must be one that {gpu} multiplies \(.*fp16"):
            rooftile.tile(op, shape, gpu=gpu, dtype=dtype)


@pytest.mark.parametrize(
    ("gpu", "dtype"),
    [("t4", "float16"), ("a100-sxm-80gb", "bfloat16"), ("h100-sxm", "float8_e4m3fn"),
     ("v100-sxm2-32gb", "float32"), ("mi300x", "float32")],
)  # fmt: skip
def test_a_dtype_that_a_gpu_multiplies_has_tiles(gpu, dtype):
    """On matrix units, and floats where they run beside them."""
    assert rooftile.tile("matmul", (512, 512, 512), gpu=gpu, dtype=dtype).tiles
