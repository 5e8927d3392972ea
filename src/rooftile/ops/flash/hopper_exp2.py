"""Exponentials of the Hopper forward."""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl


@gluon.jit
def exp2(x, POLY: gl.constexpr):
    """2^x; with POLY one in four by a polynomial of degree 4, relative error 3e-6 (for x <= 0).

    The special-function unit makes 16 exponentials a clock: at 64 columns that takes as long as the
    matrix products.
    """
    if POLY == 0:
        y = gl.exp2(x)
    else:
        y = gl.inline_asm_elementwise(
            "{ .reg .f32 t, f, p; .reg .b32 i; ex2.approx.ftz.f32 $0, $4; ex2.approx.ftz.f32 $1, "
            "$5; ex2.approx.ftz.f32 $2, $6; max.ftz.f32 f, $7, 0fC2FE0000; add.rm.ftz.f32 t, f, "
            "0f4B400000; sub.ftz.f32 p, t, 0f4B400000; sub.ftz.f32 f, f, p; "
            "fma.rn.ftz.f32 p, f, 0f3C5DBE49, 0f3D550A00; fma.rn.ftz.f32 p, p, f, 0f3E773CC6; "
            "fma.rn.ftz.f32 p, p, f, 0f3F3168B3; fma.rn.ftz.f32 p, p, f, 0f3F800016; "
            "mov.b32 i, t; shl.b32 i, i, 23; mov.b32 $3, p; add.s32 i, i, $3; mov.b32 $3, i; }",
            "=f,=f,=f,=f,f,f,f,f", [x], dtype=gl.float32, is_pure=True, pack=4,
        )  # fmt: skip
    return y
