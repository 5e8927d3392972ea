"""The interpreter's two guards: bfloat16 as numbers, and no access outside or across programs."""

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl

if not triton.knobs.runtime.interpret:
    pytest.skip("the guards are the interpreter's", allow_module_level=True)

from interpreter.guard import KernelMemoryError


@triton.jit
def _arithmetic(x_ptr, y_ptr, out_ptr, OP: tl.constexpr, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs)
    y = tl.load(y_ptr + offs)
    if OP == "fma":
        z = x * y + x
    elif OP == "where":
        z = tl.where(x > 0, x, 0.0)
    elif OP == "maximum":
        z = tl.maximum(-x, tl.abs(y))
    else:
        z = x.to(tl.float32) * y.to(tl.float32)
    tl.store(out_ptr + offs, z)


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        ("fma", lambda x, y: x * y + x),
        ("where", lambda x, y: x.relu()),
        ("maximum", lambda x, y: torch.maximum(-x, y.abs())),
        ("widened", lambda x, y: (x.float() * y.float()).bfloat16()),
    ],
)
def test_bfloat16_is_torchs(op, expected):
    """bfloat16 arithmetic and rounding are torch's, bit for bit."""
    x, y = torch.randn(2, 1024).bfloat16()
    out = torch.zeros_like(x)
    _arithmetic[(1,)](x, y, out, op, 1024)
    assert torch.equal(out, expected(x, y))


@triton.jit
def _product(a_ptr, b_ptr, c_ptr, N: tl.constexpr):
    at = tl.arange(0, N)[:, None] * N + tl.arange(0, N)[None, :]
    tl.store(c_ptr + at, tl.dot(tl.load(a_ptr + at), tl.load(b_ptr + at)))


def test_bfloat16_product():
    """tl.dot of bfloat16 multiplies the numbers, not their bits."""
    a, b = torch.randn(2, 16, 16).bfloat16()
    c = torch.empty(16, 16)
    _product[(1,)](a, b, c, 16)
    torch.testing.assert_close(c, a.float() @ b.float())


@triton.jit
def _shift(x_ptr, y_ptr, n, KIND: tl.constexpr, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    if KIND == "unmasked":
        tl.store(y_ptr + offs, tl.load(x_ptr + offs), mask=mask)
    elif KIND == "same":
        tl.store(y_ptr + offs % BLOCK, tl.load(x_ptr + offs, mask=mask), mask=mask)
    elif KIND == "in place":
        tl.store(x_ptr + offs, tl.load(x_ptr + offs + 1, mask=offs + 1 < n), mask=mask)
    else:
        tl.store(y_ptr + offs, tl.load(x_ptr + offs, mask=mask), mask=mask)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (
            "unmasked",
            r"load of 28 of 64 active lanes outside.*4 bytes past the end of x_ptr\[100\]",
        ),
        ("same", r"stores y_ptr\[100\] at byte 0, which program number 0 stored: a race"),
        ("in place", r"stores x_ptr\[100\] at byte 256, which another program loaded: a race"),
    ],
)
def test_guard_finds(kind, message):
    """A load past the end, two programs that store one address, a load that another overtakes."""
    with pytest.raises(Exception, match=message) as caught:
        _shift[(2,)](torch.randn(100), torch.empty(100), 100, kind, 64)
    assert isinstance(caught.value, KernelMemoryError) or "KernelMemoryError" in repr(caught.value)


def test_guard_lets_right_kernels_pass():
    """A masked copy runs, and copies."""
    x, y = torch.randn(100), torch.empty(100)
    _shift[(2,)](x, y, 100, "right", 64)
    assert torch.equal(x, y)


@triton.jit
def _last_adds(x_ptr, parts_ptr, arrived_ptr, y_ptr, SEM: tl.constexpr, BLOCK: tl.constexpr):
    """Each program leaves a part; the last to arrive adds them."""
    pid = tl.program_id(0)
    offs = tl.arange(0, BLOCK)
    tl.store(parts_ptr + pid * BLOCK + offs, tl.load(x_ptr + pid * BLOCK + offs) * 2)
    if tl.atomic_add(arrived_ptr, 1, sem=SEM) == tl.num_programs(0) - 1:
        total = tl.zeros((BLOCK,), tl.float32)
        for i in range(tl.num_programs(0)):
            total += tl.load(parts_ptr + i * BLOCK + offs)
        tl.store(y_ptr + offs, total)


def _add_parts(sem):
    x, parts, y = torch.randn(3, 64), torch.empty(3, 64), torch.empty(64)
    _last_adds[(3,)](x, parts, torch.zeros(1, dtype=torch.int32), y, sem, 64)
    return x, y


def test_guard_knows_what_an_atomic_orders():
    """Parts left before an arrival may be read by who arrives last."""
    x, y = _add_parts("acq_rel")
    torch.testing.assert_close(y, 2 * x.sum(0))


@pytest.mark.parametrize("sem", ["relaxed", "acquire", "release"])
def test_guard_finds_an_arrival_that_orders_nothing(sem):
    """Both a release of what was stored and an acquire are needed."""
    with pytest.raises(Exception, match=r"loads parts_ptr.*number 0 stored: a race"):
        _add_parts(sem)


@triton.jit
def _store_late(parts_ptr, arrived_ptr, y_ptr, BLOCK: tl.constexpr):
    """The first program stores after it has arrived."""
    offs = tl.arange(0, BLOCK)
    arrived = tl.atomic_add(arrived_ptr, 1)
    if arrived == 0:
        tl.store(parts_ptr + offs, offs.to(tl.float32))
    else:
        tl.store(y_ptr + offs, tl.load(parts_ptr + offs))


def test_guard_finds_a_store_after_the_arrival():
    """What an atomic hands on ends with it."""
    with pytest.raises(Exception, match=r"loads parts_ptr.*number 0 stored: a race"):
        _store_late[(2,)](torch.empty(64), torch.zeros(1, dtype=torch.int32), torch.empty(64), 64)
