"""A published benchmark against physics.

Each figure is compared on its own: FLOP/s with the dense peak, the least traffic with the bandwidth
of device memory, a printed bandwidth with that bandwidth and, times the time, with the least
traffic, a printed memory with what must be in it. Where a claim is silent it is read in every way:
causal or full, each dtype the GPU has a peak for. Sparse peaks count where a claim says sparse, and
never for attention: its operands are not weights that could be pruned.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

from rooftile.cost.formulas.attention import Mask, attention_forward
from rooftile.cost.formulas.matmul import matmul_forward
from rooftile.cost.formulas.normalization import layer_norm_forward, rms_norm_forward
from rooftile.cost.formulas.softmax import softmax_forward
from rooftile.errors import InputError
from rooftile.records.claim import Answer, Check, Claim, ClaimReport, Reading
from rooftile.records.cost import Cost
from rooftile.records.device import Device
from rooftile.spec.dtypes import itemsize, math_key
from rooftile.spec.peaks import peak

# Nobody's kernel has been seen above these parts of the two datasheet figures for long.
_SUSPICIOUS_PEAK, _SUSPICIOUS_BANDWIDTH = 0.9, 0.96
# So many times the least traffic is no sign of a fused kernel.
_MUCH_TRAFFIC = 4.0
_SPARSE = 2.0
# What a silent claim may have been run in.
_SILENT = ("bfloat16", "float32", "float8_e4m3fn", "float4_e2m1fn_x2")
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


@dataclass(frozen=True, slots=True)
class _Work:
    """What a call has to do at least.

    Attributes:
        kernels: The work of each kernel.
        output_bytes: Of the results.
        held_bytes: Of results and of what is kept between kernels.
    """

    kernels: tuple[Cost, ...]
    output_bytes: int
    held_bytes: int

    @property
    def flops(self) -> int:
        """Matrix and vector FLOP; of matrix work, matrix FLOP alone: that is what people count."""
        matrix = sum(cost.matrix_flops for cost in self.kernels)
        return matrix or sum(cost.vector_flops for cost in self.kernels)

    @property
    def bytes(self) -> int:
        """Least traffic."""
        return sum(cost.bytes for cost in self.kernels)


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
    dtypes = [claim.dtype] if claim.dtype else [d for d in _SILENT if _has_peak(device, d)]
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
        if size < 1:
            raise InputError(f"{name} must be at least 1, got {size}")
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


def _has_peak(device: Device, dtype: str) -> bool:
    try:
        peak(device, math_key(dtype))
    except InputError:  # the GPU has no such format: nobody can have run it there
        return False
    return True


def _math(device: Device, dtype: str) -> str:
    """The fastest roof that a dtype's products may have: float32 may have run as TF32."""
    key = math_key(dtype)
    return "tf32" if key == "fp32" and "tf32" in device.peaks else key


def _attention(claim: Claim, item: int, math: str, causal: bool) -> _Work:
    s = claim.shape
    length, v_dim = s.get("k_len", s["seq"]), s.get("v_dim", s["dim"])
    out = s["batch"] * s["heads"] * s["seq"] * v_dim * item
    whole = attention_forward(
        s["batch"], s["heads"], s["seq"], length, s["dim"], item, kv_heads=s.get("kv_heads"),
        v_dim=v_dim, mask=Mask(causal=causal, bottom_right=True), lse=False, math=math,
    )  # fmt: skip
    if not claim.unfused:
        return _Work((whole,), out, out)
    many = s["batch"] * s["heads"]
    scores = many * s["seq"] * length * item
    kernels = (
        matmul_forward(s["seq"], length, s["dim"], item, batch=many, math=math),
        softmax_forward(many * s["seq"], length, item),
        matmul_forward(s["seq"], v_dim, length, item, batch=many, math=math),
    )
    return _Work(kernels, out, out + scores)


def _work(claim: Claim, device: Device, dtype: str, causal: bool | None) -> _Work:
    s, item, math = claim.shape, itemsize(dtype), _math(device, dtype)
    if claim.op == "attention":
        return _attention(claim, item, math, bool(causal))
    if claim.op == "matmul":
        cost = matmul_forward(s["m"], s["n"], s["k"], item, batch=s.get("batch", 1), math=math)
        return _Work((cost,), cost.write_bytes, cost.write_bytes)
    if claim.op == "copy":
        size = s["elements"] * item
        return _Work((Cost(read_bytes=size, write_bytes=size),), size, size)
    rows: dict[str, Callable[[int, int, int], Cost]] = {
        "softmax": softmax_forward,
        "rms_norm": rms_norm_forward,
        "layer_norm": layer_norm_forward,
    }
    cost = rows[claim.op](s["rows"], s["cols"], item)
    size = prod((s["rows"], s["cols"], item))
    return _Work((cost,), size, size)


def _reading(claim: Claim, device: Device, dtype: str, causal: bool | None) -> Reading:
    work = _work(claim, device, dtype, causal)
    checks = [
        check
        for check in (
            _rate(claim, device, dtype, work),
            _traffic(claim, device, work),
            _bandwidth(claim, device),
            _printed(claim, work),
            _memory(claim, work),
            _launch(claim, device, work),
        )
        if check is not None
    ]
    worst = max(checks, key=lambda check: (_RANK[check.answer], check.factor))
    return Reading(dtype, causal, work.flops, work.bytes, worst.answer, worst.factor, tuple(checks))


def _rate(claim: Claim, device: Device, dtype: str, work: _Work) -> Check | None:
    """Implied FLOP/s against the dense peak."""
    if claim.time_s is None or not work.flops:
        return None
    matrix = any(cost.matrix_flops for cost in work.kernels)
    top = peak(device, _math(device, dtype) if matrix else "fp32", vector=not matrix)
    sparse = claim.sparse and claim.op == "matmul"
    if sparse:
        top *= _SPARSE
    rate = work.flops / claim.time_s
    detail = (
        f"{work.flops / 1e12:.4g} TFLOP in {_time(claim.time_s)} is {rate / 1e12:,.4g} TFLOP/s, "
        f"the {'sparse' if sparse else 'dense'} peak is {top / 1e12:,.4g}"
    )
    return _judged("FLOP/s", rate / top, _SUSPICIOUS_PEAK, detail)


def _traffic(claim: Claim, device: Device, work: _Work) -> Check | None:
    """The least traffic against device memory; what fits the L2 may have been warm."""
    bandwidth = device.bandwidth.value
    if claim.time_s is None or bandwidth is None:
        return None
    least_s = work.bytes / bandwidth
    detail = (
        f"{work.bytes / 1e9:.4g} GB at {bandwidth / 1e12:.4g} TB/s take {_time(least_s)}, "
        f"claimed are {_time(claim.time_s)}"
    )
    scores = work.held_bytes - work.output_bytes
    if scores:
        passes = f"; four passes over {scores / 1e9:.4g} GB of scores alone"
        detail += f"{passes} take {_time(4 * scores / bandwidth)}"
    l2 = device.l2_bytes.value
    check = _judged("traffic", least_s / claim.time_s, _SUSPICIOUS_BANDWIDTH, detail)
    if check.answer == "impossible" and l2 is not None and work.bytes <= l2:
        return Check(check.name, "suspicious", check.factor, f"{detail}: only from a warm L2")
    return check


def _bandwidth(claim: Claim, device: Device) -> Check | None:
    """A printed bandwidth against the datasheet's."""
    top = device.bandwidth.value
    if claim.bandwidth_bytes_per_s is None or top is None:
        return None
    detail = f"{claim.bandwidth_bytes_per_s / 1e12:.4g} TB/s printed, {top / 1e12:.4g} there are"
    return _judged("bandwidth", claim.bandwidth_bytes_per_s / top, _SUSPICIOUS_BANDWIDTH, detail)


def _printed(claim: Claim, work: _Work) -> Check | None:
    """What the printed bandwidth moves in the printed time, against the least traffic."""
    if claim.bandwidth_bytes_per_s is None or claim.time_s is None:
        return None
    moved = claim.bandwidth_bytes_per_s * claim.time_s
    factor = work.bytes / moved
    detail = (
        f"the printed bandwidth moves {moved / 1e9:.4g} GB in that time, "
        f"{work.bytes / 1e9:.4g} GB must move"
    )
    if factor > 1:
        return Check("printed traffic", "impossible", factor, detail)
    much = factor < 1 / _MUCH_TRAFFIC
    return Check("printed traffic", "suspicious" if much else "possible", factor, detail)


def _memory(claim: Claim, work: _Work) -> Check | None:
    """A printed memory against what must be in it at once."""
    if claim.memory_bytes is None:
        return None
    detail = (
        f"{claim.memory_bytes / 1e6:,.4g} MB printed, the output alone is "
        f"{work.output_bytes / 1e6:,.4g} MB"
    )
    if work.held_bytes > work.output_bytes:
        detail += f", with the scores {work.held_bytes / 1e6:,.4g} MB"
    return _judged("memory", work.held_bytes / claim.memory_bytes, 1.0, detail)


def _launch(claim: Claim, device: Device, work: _Work) -> Check | None:
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
