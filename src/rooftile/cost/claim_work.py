"""The least that a published benchmark's call has to do: FLOP, traffic, memory held."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import prod

from rooftile.cost.formulas.attention import Mask, attention_forward
from rooftile.cost.formulas.matmul import matmul_forward
from rooftile.cost.formulas.normalization import layer_norm_forward, rms_norm_forward
from rooftile.cost.formulas.softmax import softmax_forward
from rooftile.errors import InputError
from rooftile.records.claim import Claim
from rooftile.records.cost import Cost
from rooftile.records.device import Device
from rooftile.spec.dtypes import dtype as known_dtype
from rooftile.spec.dtypes import itemsize, math_key


@dataclass(frozen=True, slots=True)
class Work:
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


def product_math(device: Device, dtype: str) -> str:
    """The fastest roof that a dtype's products may have: float32 may have run as TF32."""
    key = math_key(dtype)
    return "tf32" if key == "fp32" and "tf32" in device.peaks else key


def _attention(claim: Claim, item: int, math: str, causal: bool) -> Work:
    s = claim.shape
    length, v_dim = s.get("k_len", s["seq"]), s.get("v_dim", s["dim"])
    out = s["batch"] * s["heads"] * s["seq"] * v_dim * item
    whole = attention_forward(
        s["batch"], s["heads"], s["seq"], length, s["dim"], item, kv_heads=s.get("kv_heads"),
        v_dim=v_dim, mask=Mask(causal=causal, bottom_right=True), lse=False, math=math,
    )  # fmt: skip
    if not claim.unfused:
        return Work((whole,), out, out)
    many = s["batch"] * s["heads"]
    scores = many * s["seq"] * length * item
    kernels = (
        matmul_forward(s["seq"], length, s["dim"], item, batch=many, math=math),
        softmax_forward(many * s["seq"], length, item),
        matmul_forward(s["seq"], v_dim, length, item, batch=many, math=math),
    )
    return Work(kernels, out, out + scores)


def least_work(claim: Claim, device: Device, dtype: str, causal: bool | None) -> Work:
    """The least that a claim's call does, read in a dtype and with or without a mask.

    Raises:
        InputError: A product is claimed in a dtype that has none.
    """
    values = known_dtype(dtype).values
    if claim.op in ("attention", "matmul") and not math_key(dtype):
        raise InputError(f"dtype of {claim.op} must be one that products are made in, got {dtype}")
    work = _work(claim, itemsize(dtype), product_math(device, dtype), causal)
    return work if values == 1 else _packed(work, values)


def _packed(work: Work, values: int) -> Work:
    """The same with several values in an element: the sizes of a claim are of values."""
    kernels = tuple(
        replace(
            cost,
            read_bytes=-(-cost.read_bytes // values),
            write_bytes=-(-cost.write_bytes // values),
        )
        for cost in work.kernels
    )
    return Work(kernels, -(-work.output_bytes // values), -(-work.held_bytes // values))


def _work(claim: Claim, item: int, math: str, causal: bool | None) -> Work:
    s = claim.shape
    if claim.op == "attention":
        return _attention(claim, item, math, bool(causal))
    if claim.op == "matmul":
        cost = matmul_forward(s["m"], s["n"], s["k"], item, batch=s.get("batch", 1), math=math)
        return Work((cost,), cost.write_bytes, cost.write_bytes)
    if claim.op == "copy":
        size = s["elements"] * item
        return Work((Cost(read_bytes=size, write_bytes=size),), size, size)
    rows: dict[str, Callable[[int, int, int], Cost]] = {
        "softmax": softmax_forward,
        "rms_norm": rms_norm_forward,
        "layer_norm": layer_norm_forward,
    }
    cost = rows[claim.op](s["rows"], s["cols"], item)
    size = prod((s["rows"], s["cols"], item))
    return Work((cost,), size, size)
