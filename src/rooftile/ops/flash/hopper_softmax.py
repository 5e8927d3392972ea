"""The running softmax of the Hopper forward.

A row of scores lies in four neighbouring lanes. Its maximum so far is only a reference, so it is
left alone until a score exceeds it by 8 (a weight by 2^8): then alone do the lanes exchange their
maxima and are the sums and the output rescaled. On random data that is never after a tile's first
blocks, and each block saves the output's products, the exchange and its wait: 388 instructions for
460 at 128 columns. Sums of a row stay apart in its lanes until the tile ends.
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

_NEG_INF = gl.constexpr(-float("inf"))


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


@gluon.jit
def lanes(x):
    """[M, N] accumulator -> [M, N / 8, 4, 2]: column group, lane of the row, column of the lane."""
    return gl.reshape(x, [x.shape[0], x.shape[1] // 8, 4, 2])


@gluon.jit
def _raised(x, m):
    """Row maxima (M, 4), the same in a row's four lanes, and the factor of what was summed so far.

    x: the maximum of what each lane holds. In most calls no lane of a warp holds more than m + 8.
    """
    return gl.inline_asm_elementwise(
        "{ .reg .pred p, q; .reg .f32 t, u, x, y; "
        "sub.f32 t, $4, $6; sub.f32 u, $5, $7; max.f32 t, t, u; setp.gt.f32 p, t, 0f41000000; "
        "vote.sync.any.pred p, p, 0xffffffff; "
        "mov.f32 $0, $6; mov.f32 $1, $7; mov.f32 $2, 0f3F800000; mov.f32 $3, 0f3F800000; "
        "@!p bra.uni SAME; "
        "shfl.sync.bfly.b32 t, $4, 1, 31, -1; shfl.sync.bfly.b32 u, $5, 1, 31, -1; "
        "max.f32 x, t, $4; max.f32 y, u, $5; "
        "shfl.sync.bfly.b32 t, x, 2, 31, -1; shfl.sync.bfly.b32 u, y, 2, 31, -1; "
        "max.f32 x, x, t; max.f32 y, y, u; "
        "sub.f32 t, x, $6; setp.gt.f32 p, t, 0f41000000; "
        "sub.f32 u, y, $7; setp.gt.f32 q, u, 0f41000000; "
        "@p mov.f32 $0, x; @q mov.f32 $1, y; sub.f32 t, $6, $0; sub.f32 u, $7, $1; "
        "@p ex2.approx.ftz.f32 $2, t; @q ex2.approx.ftz.f32 $3, u; SAME: }",
        "=&f,=&f,=&f,=&f,f,f,f,f", [x, m], dtype=(gl.float32, gl.float32), is_pure=False, pack=2,
    )  # fmt: skip


@gluon.jit
def nothing(scores):
    """Row maxima and sums, (M, 4), before a tile's first block."""
    norm = gl.sum(gl.sum(lanes(scores), 3), 1) * 0.0
    return norm + _NEG_INF, norm


@gluon.jit
def weigh(scores, m, norm, scale_log2, EMPTY: gl.constexpr, POLY: gl.constexpr):
    """Weights of a block of scores, row maxima and sums with it, and the factor of the output.

    EMPTY: a row may see no key.
    """
    s = lanes(scores)
    m, alpha = _raised(gl.max(gl.max(s, 3), 1) * scale_log2, m)
    base = m
    if EMPTY:
        base = gl.where(m == _NEG_INF, 0.0, m)
    p = exp2(s * scale_log2 - gl.expand_dims(gl.expand_dims(base, 1), 3), POLY)
    norm = norm * alpha + gl.sum(gl.sum(p, 3), 1)
    return gl.convert_layout(gl.reshape(p, scores.shape), scores.type.layout), m, norm, alpha


@gluon.constexpr_function
def _products(count):
    """Inline assembly: a thread's accumulators times their factors, but for a warp of ones."""
    copies = "".join(f"mov.b32 ${i}, ${count + i}; " for i in range(count))
    products = "".join(f"mul.f32 ${i}, ${i}, ${2 * count + i}; " for i in range(count))
    first, second = 2 * count, 2 * count + 2  # of the thread's two rows
    return (
        "{ .reg .pred p, q; "
        f"setp.neu.f32 p, ${first}, 0f3F800000; setp.neu.f32 q, ${second}, 0f3F800000; "
        "or.pred p, p, q; vote.sync.any.pred p, p, 0xffffffff; "
        f"{copies}@!p bra.uni SAME; {products}SAME: }}"
    )


@gluon.constexpr_function
def _registers(count):
    return ",".join(["=&f"] * count + ["f"] * (2 * count))


@gluon.jit
def rescale(acc, alpha):
    """acc times alpha, (M, 4), of each row."""
    COUNT: gl.constexpr = acc.shape[1] // 2  # of a thread
    parts = lanes(acc)
    alpha = gl.convert_layout(alpha, gl.SliceLayout(1, gl.SliceLayout(3, parts.type.layout)))
    alpha = gl.broadcast(gl.expand_dims(gl.expand_dims(alpha, 1), 3), parts)[0]
    return gl.inline_asm_elementwise(
        _products(COUNT), _registers(COUNT),
        [acc, gl.convert_layout(gl.reshape(alpha, acc.shape), acc.type.layout)],
        dtype=gl.float32, is_pure=False, pack=COUNT,
    )  # fmt: skip
