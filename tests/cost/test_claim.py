"""Published benchmarks against physics, the figures worked out by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

import rooftile

EXAMPLE = Path(__file__).parents[2] / "examples" / "claims" / "fused_attention.csv"
SHAPE = {"batch": 16, "heads": 32, "seq": 4096, "dim": 128}


def ask(**given):
    """The report on a claim of that attention on an H100."""
    return rooftile.claim("attention", SHAPE, gpu="h100-sxm", **given)


def reading(report, dtype, causal):
    """One reading's checks by name."""
    (found,) = [r for r in report.readings if (r.dtype, r.causal) == (dtype, causal)]
    return found, {check.name: check for check in found.checks}


def test_the_fused_row_is_faster_than_the_tensor_cores():
    """4.398 TFLOP in 1.14 ms is 3,858 TFLOP/s: 3.90 times 989.4; causal 1.95 times."""
    full, checks = reading(ask(time="1.14 ms"), "bfloat16", False)
    assert full.flops == 4 * 16 * 32 * 4096**2 * 128 == 4_398_046_511_104
    assert checks["FLOP/s"].factor == pytest.approx(3.8992, rel=1e-4)
    assert "3,858 TFLOP/s" in checks["FLOP/s"].detail
    _, checks = reading(ask(time="1.14 ms"), "bfloat16", True)
    assert checks["FLOP/s"].factor == pytest.approx(1.9501, rel=1e-4)


def test_as_fp8_and_causal_its_time_is_suspicious_and_no_more():
    """0.975 of the fp8 peak: the only reading of the time alone that is not impossible."""
    report = ask(time="1.14 ms")
    assert (report.answer, report.readings[0].dtype) == ("suspicious", "float8_e4m3fn")
    assert report.factor == pytest.approx(0.975, abs=5e-4)


def test_its_memory_cannot_hold_the_output():
    """537 MB in two bytes, 268 MB in one; 64 are claimed: impossible in every reading."""
    report = ask(time="1.14 ms", memory="64 MB")
    assert report.answer == "impossible"
    assert report.factor == pytest.approx(268_435_456 / 64e6)
    _, checks = reading(report, "bfloat16", True)
    assert "537 MB" in checks["memory"].detail.replace("536.9", "537")


def test_the_unfused_row_is_faster_than_its_scores_can_be_moved():
    """Four passes over 17.2 GB take 20.5 ms at 3.35 TB/s; 4.82 are claimed."""
    report = ask(time="4.82 ms", unfused=True)
    found, checks = reading(report, "bfloat16", False)
    scores = 16 * 32 * 4096**2 * 2
    small = 4 * 16 * 32 * 4096 * 128 * 2
    assert found.bytes == 4 * scores + small
    assert "17.18 GB of scores alone take 20.51 ms" in checks["traffic"].detail
    assert checks["traffic"].factor == pytest.approx((4 * scores + small) / 3.35e12 / 4.82e-3)
    assert report.answer == "impossible"


def test_the_example_table_is_impossible_row_by_row():
    """Three claims, three times impossible."""
    table = rooftile.claims_from_file(EXAMPLE)
    assert [report.answer for report in table.reports] == ["impossible"] * 3


def test_what_was_measured_is_possible():
    """cuDNN's 7.31 ms on an H200, with the output and little more in memory."""
    report = rooftile.claim(
        "attention", SHAPE, gpu="h200-sxm", time="7.31 ms", dtype="bf16", causal=False,
        memory="0.55 GB",
    )  # fmt: skip
    assert report.answer == "possible"


def test_a_sparse_peak_counts_only_where_it_is_claimed_and_never_for_attention():
    """1.5 PFLOP/s of a bf16 product: impossible dense, possible sparse."""
    sizes = {"m": 8192, "n": 8192, "k": 8192}
    time = 2 * 8192**3 / 1.5e15
    dense = rooftile.claim("matmul", sizes, gpu="h100-sxm", time=time, dtype="bf16")
    sparse = rooftile.claim("matmul", sizes, gpu="h100-sxm", time=time, dtype="bf16", sparse=True)
    assert (dense.answer, sparse.answer) == ("impossible", "possible")
    assert ask(time="1.14 ms", dtype="bf16", causal=True, sparse=True).answer == "impossible"


def test_a_warm_l2_is_a_reading_and_not_an_excuse():
    """A softmax of 8 MiB above the memory's bandwidth fits an L2 of 50 MB, one of 8 GiB not."""
    small = {"rows": 1024, "cols": 2048}
    fast = 2 * 1024 * 2048 * 2 / 5e12
    report = rooftile.claim("softmax", small, gpu="h100-sxm", time=fast, dtype="bf16")
    check = {c.name: c for c in report.readings[0].checks}["traffic"]
    assert (check.answer, "warm L2" in check.detail) == ("suspicious", True)
    large = {"rows": 1024 * 1024, "cols": 2048}
    report = rooftile.claim("softmax", large, gpu="h100-sxm", time=fast * 1024, dtype="bf16")
    assert report.answer == "impossible"


def test_printed_bandwidth_and_time_must_move_the_least_traffic():
    """A copy of 1 GB each way in 1 ms at a printed 1.5 TB/s: 2 GB cannot have moved."""
    report = rooftile.claim(
        "copy", {"elements": 500_000_000}, gpu="h100-sxm", time="1 ms", dtype="bf16",
        bandwidth="1.5 TB/s",
    )  # fmt: skip
    check = {c.name: c for c in report.readings[0].checks}["printed traffic"]
    assert (check.answer, check.factor) == ("impossible", pytest.approx(2e9 / 1.5e9))


def test_a_printed_bandwidth_above_the_memorys_is_impossible():
    """4 TB/s on an H100."""
    report = rooftile.claim(
        "copy", {"elements": 10**9}, gpu="h100-sxm", dtype="bf16", bandwidth="4 TB/s"
    )
    assert (report.answer, report.factor) == ("impossible", pytest.approx(4 / 3.35))


def test_silence_on_the_dtype_is_read_in_what_the_gpu_has():
    """An A100 has int8 in place of fp8, a T4 fp16 in place of bf16; an H100 has no fp4."""
    a100 = rooftile.claim("matmul", {"m": 64, "n": 64, "k": 64}, gpu="a100-sxm4-80gb", time=1.0)
    assert {r.dtype for r in a100.readings} == {"bfloat16", "float32", "int8"}
    t4 = rooftile.claim("matmul", {"m": 64, "n": 64, "k": 64}, gpu="t4", time=1.0)
    assert {r.dtype for r in t4.readings} == {"float16", "float32", "int8"}
    assert {r.dtype for r in ask(time=1.0).readings} == {"bfloat16", "float32", "float8_e4m3fn"}


def test_less_than_a_launch_is_suspicious():
    """1 us a call, where a launch is taken to be 2."""
    report = rooftile.claim("copy", {"elements": 8}, gpu="h100-sxm", dtype="bf16", time="1 us")
    assert (report.answer, report.readings[0].checks[-1].name) == ("suspicious", "launch")


def test_a_dtype_without_products_may_be_copied():
    """int64 has no matrix roof, and needs none."""
    report = rooftile.claim("copy", "elements=1e9", gpu="h100-sxm", dtype="int64", time=1.0)
    assert report.answer == "possible"


def test_half_precision_of_an_old_gpu_is_a_reading():
    """46 TFLOP/s on a T4 is 5.7 times its fp32 peak, and 0.70 of the 65 it has in fp16."""
    report = rooftile.claim("matmul", {"m": 4096, "n": 4096, "k": 4096}, gpu="t4", time="3 ms")
    assert report.answer == "possible"
    (half,) = [r for r in report.readings if r.dtype == "float16"]
    assert half.checks[0].factor == pytest.approx(2 * 4096**3 / 3e-3 / 65e12, rel=1e-3)


def test_a_rate_that_nobody_published_is_no_reason_to_say_impossible():
    """A GB10 has bf16 units of unknown rate: its traffic is checked, its FLOP/s are not."""
    sizes = {"m": 4096, "n": 4096, "k": 4096}
    for dtype in (None, "bf16"):
        report = rooftile.claim("matmul", sizes, gpu="gb10", time="2 ms", dtype=dtype)
        (found,) = [r for r in report.readings if r.dtype == "bfloat16"]
        assert report.answer == "possible"
        assert [check.name for check in found.checks] == ["traffic"]


def test_sparsity_counts_only_where_the_gpu_has_it():
    """172 TFLOP/s are above a V100's 125, sparse or not; an A100 has 624 sparse, not 312."""
    sizes = {"m": 4096, "n": 4096, "k": 4096}
    old = rooftile.claim("matmul", sizes, gpu="v100-sxm2-16gb", dtype="fp16", time="0.8 ms",
                         sparse=True)  # fmt: skip
    assert (old.answer, old.factor) == ("impossible", pytest.approx(2 * 4096**3 / 8e-4 / 125e12))
    assert "sparsity does not count on this GPU" in old.readings[0].checks[0].detail
    new = rooftile.claim("matmul", sizes, gpu="a100-sxm-80gb", dtype="bf16", time="0.3 ms",
                         sparse=True)  # fmt: skip
    assert new.answer == "possible"


def test_two_values_of_fp4_are_one_byte():
    """A product of 4096 cubed moves 3 * 4096**2 / 2 bytes in fp4, half of what fp8 moves."""
    sizes = {"m": 4096, "n": 4096, "k": 4096}
    report = rooftile.claim("matmul", sizes, gpu="b200", time=1.0, memory="9 MB")
    moved = {r.dtype: r.bytes for r in report.readings}
    assert moved["float4_e2m1fn_x2"] == 3 * 4096**2 // 2
    assert moved["float8_e4m3fn"] == 3 * 4096**2
    assert (report.answer, report.readings[0].dtype) == ("possible", "float4_e2m1fn_x2")


@pytest.mark.parametrize("figure", ["bandwidth", "printed traffic"])
def test_a_printed_bandwidth_of_what_fits_the_l2_may_be_the_l2s(figure):
    """A copy of 2 MB each way: 5.5 TB/s, or 1.5 MB through memory, are suspicious alone."""
    given = {
        "bandwidth": {"bandwidth": "5.5 TB/s"},
        "printed traffic": {"bandwidth": "0.5 TB/s", "time": "3 us"},
    }[figure]
    report = rooftile.claim("copy", {"elements": 10**6}, gpu="h200", dtype="bf16", **given)
    check = {c.name: c for c in report.readings[0].checks}[figure]
    assert (report.answer, check.answer) == ("suspicious", "suspicious")
    assert check.factor > 1
    assert "warm L2" in check.detail


def test_more_memory_than_the_gpu_has_is_impossible():
    """200 GB on a GPU of 80 GiB."""
    report = ask(time="20 ms", memory="200 GB")
    assert (report.answer, report.factor) == ("impossible", pytest.approx(200e9 / (80 * 2**30)))
    assert "200 GB printed, the GPU has 85.9 GB" in report.readings[0].checks[-1].detail


def test_small_figures_are_told_in_small_units():
    """2.6 MFLOP, not 0.0000026 TFLOP."""
    report = rooftile.claim("softmax", {"rows": 128, "cols": 4096}, gpu="t4", time="1 ms")
    rate = report.readings[0].checks[0].detail
    assert "2.621 MFLOP in 1 ms is 2.621 GFLOP/s, the dense peak is 8.1 TFLOP/s" in rate


def test_the_kindest_reading_decides():
    """A claim is impossible only if all of its readings are."""
    report = ask(time="3 ms")
    assert report.answer == report.readings[0].answer == "possible"
    assert report.readings[-1].answer == "impossible"
