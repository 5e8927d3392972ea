"""A published benchmark against physics.

Each figure is compared on its own: FLOP/s with the dense peak, the least traffic with the bandwidth
of device memory, a printed bandwidth with that bandwidth and, times the time, with the least
traffic, a printed memory with what must be in it. Where a claim is silent it is read in every way:
causal or full, each dtype the GPU has a peak for. Sparse peaks count where a claim says sparse, and
never for attention: its operands are not weights that could be pruned.
"""

from __future__ import annotations

from math import prod

from rooftile.cost.claim_work import Work, least_work, product_math
from rooftile.errors import InputError
from rooftile.records.claim import Answer, Check, Claim, ClaimReport, Reading
from rooftile.records.device import Device
from rooftile.spec.dtypes import math_key
from rooftile.spec.peaks import peak, unpublished

# Nobody's kernel has been seen above these parts of the two datasheet figures for long.
_SUSPICIOUS_PEAK, _SUSPICIOUS_BANDWIDTH = 0.9, 0.96
# So many times the least traffic is no sign of a fused kernel.
_MUCH_TRAFFIC = 4.0
_SPARSE = 2.0
_MOST = 2**62  # of one size: what an address can count
_SCALES = {"T": 1e12, "G": 1e9, "M": 1e6, "k": 1e3, "": 1.0}
# What a silent claim may have been run in: of each line the first that the GPU has.
_SILENT = (
    ("bfloat16", "float16"),
    ("float32",),
    ("float8_e4m3fn", "int8"),
    ("float4_e2m1fn_x2",),
)
# NVIDIA from compute capability 8.0 and AMD from CDNA 3 on skip every second pair of zeros.
_FIRST_SPARSE_SM = 80
_SPARSE_GFX = ("gfx942", "gfx950")
_RANK: dict[Answer, int] = {"possible": 0, "suspicious": 1, "impossible": 2}

_NEEDED = {
    "attention": ("batch", "heads", "seq", "dim"),
    "matmul": ("m", "n", "k"),
    "softmax": ("rows", "cols"),
    "rms_norm": ("rows", "cols"),
    "layer_norm": ("rows", "cols"),
    "copy": ("elements",),
}
_OPTIONAL = {"attention": ("kv_heads", "k_len", "v_dim"), "matmul": ("batch",)}
OPS = tuple(_NEEDED)


def check_claim(claim: Claim, device: Device) -> ClaimReport:
    """Say of each reading of a claim whether physics allows it, and by which factor not.

    Args:
        claim: What was published.
        device: The GPU it names.

    Returns:
        Readings with their checks, the kindest first.

    Raises:
        InputError: The op is not known, its shape is missing or incomplete, no figure is given, or
            the GPU has no peak for the dtype.
    """
    _check(claim)
    dtypes = [claim.dtype] if claim.dtype else _silent(claim, device)
    masks: list[bool | None] = [None]
    if claim.op == "attention":
        masks = [claim.causal] if claim.causal is not None else [False, True]
    readings = [_reading(claim, device, dtype, causal) for dtype in dtypes for causal in masks]
    readings.sort(key=_kindness)
    kindest = readings[0]
    return ClaimReport(claim, device.name, tuple(readings), kindest.answer, kindest.factor)


def _check(claim: Claim) -> None:
    if claim.op not in _NEEDED:
        raise InputError(f"op must be one of {', '.join(OPS)}, got {claim.op!r}")
    needed, optional = _NEEDED[claim.op], _OPTIONAL.get(claim.op, ())
    missing = [name for name in needed if name not in claim.shape]
    if missing:
        have = ", ".join(claim.shape) or "no shape"
        raise InputError(f"shape of {claim.op} must have {', '.join(needed)}, got {have}")
    for name, size in claim.shape.items():
        if name not in (*needed, *optional):
            known = ", ".join((*needed, *optional))
            raise InputError(f"shape of {claim.op} has {known}, got {name!r}")
        if not 1 <= size <= _MOST:
            raise InputError(f"{name} must be at least 1 and at most 2**62, got {size}")
    if claim.unfused and claim.op != "attention":
        raise InputError(f"unfused is for attention, got op {claim.op!r}")
    given = (claim.time_s, claim.bandwidth_bytes_per_s, claim.memory_bytes)
    names = ("time", "bandwidth", "memory")
    if all(figure is None for figure in given):
        raise InputError("a claim must have a time, a bandwidth or a memory, got none of them")
    for name, figure in zip(names, given, strict=True):
        if figure is not None and not 0 < figure < float("inf"):
            raise InputError(f"{name} must be positive and finite, got {figure}")


def _kindness(reading: Reading) -> tuple[int, float, float]:
    """The worst check decides; where it is the same in several, all of them together."""
    together = prod(check.factor for check in reading.checks)
    return _RANK[reading.answer], reading.factor, together


def _silent(claim: Claim, device: Device) -> list[str]:
    """What a claim that names no dtype may have been run in."""
    found = []
    for alike in _SILENT:
        has = [dtype for dtype in alike if _has_peak(device, dtype)]
        if claim.op == "copy":
            has += alike[-1:]  # bytes of any width are moved by every GPU
        found += has[:1]
    return found


def _has_peak(device: Device, dtype: str) -> bool:
    """Whether the GPU does products in a dtype, its rate known or not."""
    if unpublished(device, math_key(dtype)):
        return True
    try:
        peak(device, math_key(dtype))
    except InputError:  # the GPU has no such format: nobody can have run it there
        return False
    return True


def _reading(claim: Claim, device: Device, dtype: str, causal: bool | None) -> Reading:
    work = least_work(claim, device, dtype, causal)
    checks = [
        check
        for check in (
            _rate(claim, device, dtype, work),
            _traffic(claim, device, work),
            _bandwidth(claim, device, work),
            _printed(claim, device, work),
            _memory(claim, work),
            _capacity(claim, device),
            _launch(claim, device, work),
        )
        if check is not None
    ]
    if not checks:
        raise InputError(
            f"a claim must have a figure that {device.id} has one for, its bandwidth is not known"
        )
    worst = max(checks, key=lambda check: (_RANK[check.answer], check.factor))
    return Reading(dtype, causal, work.flops, work.bytes, worst.answer, worst.factor, tuple(checks))


def _rate(claim: Claim, device: Device, dtype: str, work: Work) -> Check | None:
    """Implied FLOP/s against the dense peak."""
    if claim.time_s is None or not work.flops:
        return None
    matrix = any(cost.matrix_flops for cost in work.kernels)
    if matrix and unpublished(device, product_math(device, dtype)):
        return None
    top = peak(device, product_math(device, dtype) if matrix else "fp32", vector=not matrix)
    sparse = claim.sparse and claim.op == "matmul" and _has_sparse(device)
    if sparse:
        top *= _SPARSE
    rate = work.flops / claim.time_s
    detail = (
        f"{_amount(work.flops, 'FLOP')} in {_time(claim.time_s)} is {_amount(rate, 'FLOP/s')}, "
        f"the {'sparse' if sparse else 'dense'} peak is {_amount(top, 'FLOP/s')}"
    )
    if claim.sparse and not sparse:
        detail += ": sparsity does not count " + (
            f"for {claim.op}" if claim.op != "matmul" else "on this GPU, which has none"
        )
    return _judged("FLOP/s", rate / top, _SUSPICIOUS_PEAK, detail)


def _has_sparse(device: Device) -> bool:
    """Whether the GPU's matrix units use 2:4 sparsity."""
    family, _, number = device.target.partition("_")
    if family == "sm":
        return int(number) >= _FIRST_SPARSE_SM
    return device.target in _SPARSE_GFX


def _traffic(claim: Claim, device: Device, work: Work) -> Check | None:
    """The least traffic against device memory; what fits the L2 may have been warm."""
    bandwidth = device.bandwidth.value
    if claim.time_s is None or bandwidth is None:
        return None
    least_s = work.bytes / bandwidth
    detail = (
        f"{_amount(work.bytes, 'B', 'G')} at {_amount(bandwidth, 'B/s')} take {_time(least_s)}, "
        f"claimed are {_time(claim.time_s)}"
    )
    scores = work.held_bytes - work.output_bytes
    if scores:
        passes = f"; four passes over {_amount(scores, 'B', 'G')} of scores alone"
        detail += f"{passes} take {_time(4 * scores / bandwidth)}"
    check = _judged("traffic", least_s / claim.time_s, _SUSPICIOUS_BANDWIDTH, detail)
    return _or_warm(check, device, work)


def _or_warm(check: Check, device: Device, work: Work) -> Check:
    """What is impossible for memory is only suspicious where all of it fits the L2."""
    l2 = device.l2_bytes.value
    if check.answer == "impossible" and l2 is not None and work.bytes <= l2:
        words = f"{check.detail}: only from a warm L2"
        return Check(check.name, "suspicious", check.factor, words)
    return check


def _bandwidth(claim: Claim, device: Device, work: Work) -> Check | None:
    """A printed bandwidth against the datasheet's."""
    top = device.bandwidth.value
    if claim.bandwidth_bytes_per_s is None or top is None:
        return None
    printed = claim.bandwidth_bytes_per_s
    detail = f"{_amount(printed, 'B/s')} printed, {_amount(top, 'B/s')} there are"
    return _or_warm(
        _judged("bandwidth", printed / top, _SUSPICIOUS_BANDWIDTH, detail), device, work
    )


def _printed(claim: Claim, device: Device, work: Work) -> Check | None:
    """What the printed bandwidth moves in the printed time, against the least traffic."""
    if claim.bandwidth_bytes_per_s is None or claim.time_s is None:
        return None
    moved = claim.bandwidth_bytes_per_s * claim.time_s
    factor = work.bytes / moved
    detail = (
        f"the printed bandwidth moves {_amount(moved, 'B', 'G')} in that time, "
        f"{_amount(work.bytes, 'B', 'G')} must move"
    )
    if factor > 1:
        return _or_warm(Check("printed traffic", "impossible", factor, detail), device, work)
    much = factor < 1 / _MUCH_TRAFFIC
    return Check("printed traffic", "suspicious" if much else "possible", factor, detail)


def _memory(claim: Claim, work: Work) -> Check | None:
    """A printed memory against what must be in it at once."""
    if claim.memory_bytes is None:
        return None
    detail = (
        f"{_amount(claim.memory_bytes, 'B', 'G')} printed, the output alone is "
        f"{_amount(work.output_bytes, 'B', 'G')}"
    )
    if work.held_bytes > work.output_bytes:
        detail += f", with the scores {_amount(work.held_bytes, 'B', 'G')}"
    return _judged("memory", work.held_bytes / claim.memory_bytes, 1.0, detail)


def _capacity(claim: Claim, device: Device) -> Check | None:
    """A printed memory against what the GPU has; only told where it has less."""
    has = device.memory_bytes.value
    if claim.memory_bytes is None or has is None or claim.memory_bytes <= has:
        return None
    detail = (
        f"{_amount(claim.memory_bytes, 'B', 'G')} printed, the GPU has {_amount(has, 'B', 'G')}"
    )
    return _judged("capacity", claim.memory_bytes / has, 1.0, detail)


def _launch(claim: Claim, device: Device, work: Work) -> Check | None:
    """The launch floor is an assumption, not a law: below it a claim is suspicious."""
    floor = device.launch_s.value
    if claim.time_s is None or floor is None or claim.time_s >= floor * len(work.kernels):
        return None
    factor = floor * len(work.kernels) / claim.time_s
    detail = f"{len(work.kernels)} launches take about {_time(floor * len(work.kernels))}"
    return Check("launch", "suspicious", factor, detail)


def _judged(name: str, factor: float, suspicious: float, detail: str) -> Check:
    answer: Answer = "possible"
    if factor > 1:
        answer = "impossible"
    elif factor > suspicious:
        answer = "suspicious"
    return Check(name, answer, factor, detail)


def _time(seconds: float) -> str:
    return f"{seconds * 1e3:.4g} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.4g} us"


def _amount(value: float, unit: str, top: str = "T") -> str:
    """A number of FLOP or bytes in the largest unit, up to ``top``, that it reaches."""
    scales = [scale for scale in _SCALES if _SCALES[scale] <= _SCALES[top]]
    scale = next((s for s in scales if value >= _SCALES[s]), "")
    return f"{value / _SCALES[scale]:,.4g} {scale}{unit}"
