"""The Hopper attention kernels against float64; they run on such a GPU alone."""

from __future__ import annotations

import pytest
import torch

from rooftile.ops.flash import hopper_bwd, hopper_fwd

on_hopper = pytest.mark.skipif(
    not torch.cuda.is_available() or torch.cuda.get_device_capability() != (9, 0),
    reason="needs a GPU of compute capability 9.0: Gluon's wgmma and TMA are not interpreted",
)
# batch, heads, key heads, queries, keys, columns, left, right; of those with 160 heads a persistent
# block takes several tiles
CASES = [
    (2, 4, 4, 512, 512, 128, None, None),
    (2, 3, 3, 333, 417, 128, None, None),
    (1, 2, 1, 1, 1, 128, None, None),
    (1, 6, 2, 511, 511, 128, None, 0),
    (2, 4, 2, 301, 514, 128, None, 213),
    (1, 4, 2, 500, 203, 128, None, -297),
    (1, 2, 2, 513, 600, 128, 70, 33),
    (2, 3, 3, 333, 417, 64, None, None),
    (1, 4, 2, 500, 203, 64, None, -297),
    (1, 4, 2, 700, 700, 64, 100, 0),
    (1, 4, 2, 700, 700, 64, 600, 100),
    (1, 4, 2, 1500, 1700, 64, None, 300),
    (2, 3, 1, 901, 1333, 64, None, None),
    (1, 4, 2, 2100, 1700, 64, 900, 300),
    (1, 2, 2, 300, 200, 96, None, None),
    (2, 3, 3, 333, 417, 256, None, None),
    (1, 6, 2, 511, 511, 256, None, 0),
    (1, 4, 2, 500, 203, 256, None, -297),
    (1, 4, 2, 700, 700, 256, 100, 0),
    (4, 40, 40, 640, 640, 64, None, None),
    (4, 40, 20, 500, 600, 64, None, 100),
    (4, 40, 40, 640, 640, 64, None, 0),
    (4, 40, 20, 1000, 1400, 64, None, 400),
    (4, 40, 40, 640, 640, 128, None, 0),
    (4, 40, 20, 500, 600, 128, 200, 100),
    (4, 40, 40, 400, 300, 256, None, 0),
]


def _reference(q, k, v, do, scale, left, right):
    q, k, v = (t.double().detach().requires_grad_() for t in (q, k, v))
    group = q.shape[1] // k.shape[1]
    s = q @ k.repeat_interleave(group, 1).transpose(-1, -2) * scale
    i = torch.arange(q.shape[2], device=q.device)[:, None]
    j = torch.arange(k.shape[2], device=q.device)[None]
    seen = torch.ones_like(s[0, 0], dtype=torch.bool)
    if right is not None:
        seen = seen & (j <= i + right)
    if left is not None:
        seen = seen & (j >= i - left)
    lse = torch.logsumexp(s.masked_fill(~seen, float("-inf")), -1)
    base = torch.where(lse == float("-inf"), 0.0, lse)[..., None]
    o = torch.where(seen, torch.exp(s - base), 0.0) @ v.repeat_interleave(group, 1)
    o.backward(do.double())
    return o.detach(), lse.detach(), (q.grad, k.grad, v.grad)


def _inputs(case, dtype, value_columns=None):
    batch, heads, kv_heads, n_q, n_k, columns, left, right = case
    wide = value_columns or columns
    q, k, v, do = (
        torch.randn(batch, n, h, d, device="cuda", dtype=dtype).transpose(1, 2)
        for n, h, d in (
            (n_q, heads, columns), (n_k, kv_heads, columns), (n_k, kv_heads, wide),
            (n_q, heads, wide),
        )
    )  # fmt: skip
    return q, k, v, do, columns**-0.5, left, right


def _error(x, y):
    # of one key alone the gradient is 0, and what is left is the rounding of float32 sums
    return float((x.double() - y).norm() / y.norm().clamp_min(1e-2))


def _compare(inputs, bound, deterministic):
    q, k, v, do, scale, left, right = inputs
    o = torch.full_like(do, float("nan"))
    lse = torch.full(q.shape[:3], float("nan"), device="cuda")
    hopper_fwd.attention_fwd(q, k, v, o, lse, scale=scale, left=left, right=right)
    right_o, right_lse, gradients = _reference(q, k, v, do, scale, left, right)
    assert _error(o, right_o) < bound
    torch.testing.assert_close(lse.double(), right_lse, atol=1e-5, rtol=1e-5)
    found = [torch.full_like(t, float("nan")) for t in (q, k, v)]
    hopper_bwd.attention_bwd(
        q, k, v, o, lse, do, *found,
        scale=scale, left=left, right=right, deterministic=deterministic,
    )  # fmt: skip
    assert all(_error(x, y) < 2 * bound for x, y in zip(found, gradients, strict=True))


@on_hopper
@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_output_and_gradients(case, dtype, deterministic):
    """Output, log-sum-exp and gradients are float64's to the dtype's rounding, in BSHD strides."""
    bound = 5e-3 if dtype == torch.bfloat16 else 7e-4
    _compare(_inputs(case, dtype), bound, deterministic)


@on_hopper
@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("columns", [(128, 64), (64, 128), (192, 128), (40, 56)], ids=str)
def test_values_of_another_width(columns, deterministic):
    """Values may be narrower or wider than keys: both fill the wider one's tile."""
    case = (1, 4, 2, 333, 417, columns[0], None, 84)
    _compare(_inputs(case, torch.bfloat16, columns[1]), 5e-3, deterministic)


@on_hopper
@pytest.mark.parametrize("columns", [64, 128, 256])
def test_fifty_forwards_are_bit_equal(columns):
    """Output and log-sum-exp have the same bits each time."""
    q, k, v, _, scale, left, right = _inputs(
        (2, 8, 4, 900, 900, columns, None, 0), torch.bfloat16
    )  # fmt: skip
    first: list[torch.Tensor] = []
    for _ in range(50):
        o, lse = torch.empty_like(q), torch.empty(q.shape[:3], device="cuda")
        hopper_fwd.attention_fwd(q, k, v, o, lse, scale=scale, left=left, right=right)
        first = first or [o, lse]
        assert torch.equal(o, first[0])
        assert torch.equal(lse, first[1])


@on_hopper
@pytest.mark.parametrize("columns", [64, 128, 256])
@pytest.mark.parametrize("right", [None, 0])
def test_fifty_backwards_are_bit_equal(columns, right):
    """With ``deterministic`` every gradient has the same bits each time."""
    q, k, v, do, scale, left, _ = _inputs((2, 8, 4, 900, 900, columns, None, right), torch.bfloat16)
    o, lse = torch.empty_like(q), torch.empty(q.shape[:3], device="cuda")
    hopper_fwd.attention_fwd(q, k, v, o, lse, scale=scale, left=left, right=right)
    first: list[torch.Tensor] = []
    for _ in range(50):
        found = [torch.empty_like(t) for t in (q, k, v)]
        hopper_bwd.attention_bwd(
            q, k, v, o, lse, do, *found, scale=scale, left=left, right=right, deterministic=True
        )
        first = first or found
        assert all(torch.equal(x, y) for x, y in zip(found, first, strict=True))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda t: t.float(), "float32"),
        (lambda t: t[..., ::2], "stride 2"),
        (lambda t: t[..., 1:], "multiple of 16 bytes"),
        (lambda t: t.expand(2, -1, -1, -1), "stride 0"),
        (lambda t: t[:, :, :0], "empty"),
    ],
)
def test_the_reason_is_named(change, reason):
    """What the copy engine cannot read is named, for the plan."""
    t = torch.zeros(1, 2, 64, 256, dtype=torch.bfloat16)
    assert hopper_fwd.shapes_reason(t, t, t, 1.0) is None
    assert reason in hopper_fwd.shapes_reason(change(t), t, t, 1.0)
    assert "scale" in hopper_fwd.shapes_reason(t, t, t, 0.0)
