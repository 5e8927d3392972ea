"""One measured thing: who ran what, how fast, and beside which ceilings of the same run."""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import median, quantiles
from typing import Literal

from rooftile.records.cost import Cost

SCHEMA_VERSION = 1

Direction = Literal["forward", "backward", "forward_backward"]
Cache = Literal["balanced", "cold", "clean", "warm"]

OURS = "rooftile"
CEILINGS = ("copy", "matmul")
NOT_CHECKED = "nothing to hold it to"  # how it begins where inputs or reference failed
NOT_INSTALLED = "is not installed"  # how the error of a missing peer begins


@dataclass(frozen=True, slots=True)
class Environment:
    """What a run stood on.

    Attributes:
        gpu: Name the driver gives.
        gpu_id: Its id in ``rooftile gpus``; "" where it is in no table.
        driver: Version of the driver.
        cuda: Version of CUDA (or ROCm) that torch was built with.
        torch: Version of torch.
        triton: Version of Triton; "" where there is none.
        python: Version of Python.
        rooftile: Version of Rooftile.
        peers: Installed peer to its version.
        units: SMs or CUs; 0 where not known.
        l2_bytes: Capacity of the L2 cache; 0 where not known.
        memory_bytes: Capacity of device memory; 0 where not known.
        sm_clock_mhz: Clock of the SMs under load; None where not read.
        memory_clock_mhz: Clock of device memory under load; None where not read.
        power_limit_w: Power limit; None where not read.
        started: Date and time of the run, ISO 8601, UTC.
    """

    gpu: str
    gpu_id: str
    driver: str
    cuda: str
    torch: str
    triton: str
    python: str
    rooftile: str
    peers: dict[str, str]
    units: int
    l2_bytes: int
    memory_bytes: int
    sm_clock_mhz: float | None
    memory_clock_mhz: float | None
    power_limit_w: float | None
    started: str


@dataclass(frozen=True, slots=True)
class Check:
    """A result against the float64 reference, before any time is taken.

    Attributes:
        passed: Every number is within what is allowed.
        error: Norm of the difference over norm of the reference, the largest of all results.
        allowed: What that may be: twice the error of torch's own op in the same dtype, and one
            rounding.
        detail: Which result fails and how; "" where none does.
    """

    passed: bool
    error: float
    allowed: float
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Measurement:
    """The times of one provider at one shape, beside the ceilings of the same rounds.

    Attributes:
        op: Name of the op, or of the user's case.
        provider: Who ran it: ``"rooftile"``, a peer, or a ceiling: ``"copy"``, ``"matmul"``.
        direction: ``"forward"`` (without gradient), ``"backward"`` or ``"forward_backward"``.
        shape: Dimension to its length, in the case's order.
        dtype: ``"bfloat16"``, ``"float16"`` or ``"float32"``.
        cost: Least work of one call, of the op and not of the provider.
        seconds: Device time of each round [s], in the order they ran; empty where it failed.
        cache: State of the L2 before each call: full of another buffer's lines, of which
            ``"balanced"`` as many are written as the call leaves written, ``"cold"`` all,
            ``"clean"`` none; ``"warm"`` as the call before left it.
        timer: What measured: ``"cuda events"``, or ``"host clock"`` where there is no device.
        warmup_rounds: Rounds before the first that counts.
        settled: Whether every provider's median had stopped moving by then.
        host_s: Host time of one call [s]; None where not measured.
        first_call_s: Host time of the first call, compilation included [s]; None likewise.
        peak_bytes: Device memory of one call above its inputs; None likewise.
        copy_s: Median time of a copy of the same bytes in the same rounds [s]; None without one.
        matmul_flops_per_s: Rate of a large matmul in the same rounds; None without one.
        best_peer: The fastest peer of the same rounds; "" without any.
        best_peer_s: Its median time [s].
        bandwidth_bytes_per_s: Of the datasheet; None for a GPU in no table.
        peak_flops_per_s: Of the datasheet for this work; None likewise.
        check: Result against float64; None for a ceiling or where there was no result.
        error: Why there is no time, or why it is not to be believed; "" for a good row.
        variant: Which of several forms of the op, such as ``"erf"``.
        environment: What the run stood on.
        kind: Tells this record's JSON from others.
    """

    op: str
    provider: str
    direction: Direction
    shape: dict[str, int]
    dtype: str
    cost: Cost
    environment: Environment
    seconds: tuple[float, ...] = ()
    cache: Cache = "cold"
    timer: str = ""
    warmup_rounds: int = 0
    settled: bool = False
    host_s: float | None = None
    first_call_s: float | None = None
    peak_bytes: int | None = None
    copy_s: float | None = None
    matmul_flops_per_s: float | None = None
    best_peer: str = ""
    best_peer_s: float | None = None
    bandwidth_bytes_per_s: float | None = None
    peak_flops_per_s: float | None = None
    check: Check | None = field(default=None)
    error: str = ""
    variant: str = ""
    kind: Literal["rooftile.measurement"] = "rooftile.measurement"
    schema_version: int = SCHEMA_VERSION

    @property
    def timed(self) -> bool:
        """There are times, and nothing says not to believe them."""
        return bool(self.seconds) and not self.error

    @property
    def median_s(self) -> float | None:
        """Median of the rounds [s]."""
        return median(self.seconds) if self.seconds else None

    @property
    def spread_s(self) -> tuple[float, float] | None:
        """20th and 80th percentile of the rounds [s]."""
        if len(self.seconds) < 2:
            return (self.seconds[0], self.seconds[0]) if self.seconds else None
        fifths = quantiles(self.seconds, n=5, method="inclusive")
        return fifths[0], fifths[-1]

    @property
    def bytes_per_s(self) -> float | None:
        """Least traffic over the median time."""
        return self.cost.bytes / self.median_s if self.median_s else None

    @property
    def flops_per_s(self) -> float | None:
        """FLOP over the median time."""
        return self.cost.flops / self.median_s if self.median_s else None

    @property
    def ratio_to_copy(self) -> float | None:
        """Speed in parts of a copy of the same bytes in the same rounds."""
        if self.copy_s is None or not self.median_s:
            return None
        return self.copy_s / self.median_s

    @property
    def ratio_to_matmul(self) -> float | None:
        """Matrix FLOP/s in parts of a large matmul's in the same rounds."""
        if not self.matmul_flops_per_s or not self.median_s:
            return None
        return self.cost.matrix_flops / self.median_s / self.matmul_flops_per_s

    @property
    def ratio_to_best_peer(self) -> float | None:
        """Speed in parts of the fastest peer's in the same rounds: above 1 is faster."""
        if self.best_peer_s is None or not self.median_s:
            return None
        return self.best_peer_s / self.median_s

    @property
    def fraction_of_bandwidth(self) -> float | None:
        """Least traffic over the median time, in parts of the datasheet's bandwidth."""
        if not self.bandwidth_bytes_per_s or self.bytes_per_s is None:
            return None
        return self.bytes_per_s / self.bandwidth_bytes_per_s

    @property
    def fraction_of_peak(self) -> float | None:
        """Matrix FLOP/s, of other work all FLOP/s, in parts of the datasheet's peak for it."""
        if not self.peak_flops_per_s or not self.median_s:
            return None
        work = self.cost.matrix_flops or self.cost.vector_flops
        return work / self.median_s / self.peak_flops_per_s
