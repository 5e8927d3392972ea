"""Accumulators that start at a value for each column: -lse and -delta of the Hopper backward.

A block of 64 values lies in memory with each pair of columns twice, as the two rows of a lane need
it, so that a lane fills its registers 16 bytes at a time, without a move.
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl


@gluon.jit
def column_start(twice, s_l: gl.constexpr):
    """[128] in shared memory, each pair of columns twice -> [64, 64] accumulator."""
    load_l: gl.constexpr = gl.DistributedLinearLayout(
        reg_bases=[[1], [2], [16], [32], [64]], lane_bases=[[4], [8], [0], [0], [0]],
        warp_bases=[[0], [0]], block_bases=[], shape=[128],
    )  # fmt: skip
    x = gl.reshape(twice.load(load_l), [8, 4, 2, 2])  # column group, lane, row, pair
    x = gl.permute(x, (2, 0, 1, 3))
    # warp, upper or lower row, row of eight, then as above
    full = gl.reshape(gl.zeros([64, 64], gl.float32, s_l), [4, 2, 8, 8, 4, 2])
    x = gl.convert_layout(x, gl.SliceLayout(1, gl.SliceLayout(0, full.type.layout)))
    x = gl.broadcast(gl.expand_dims(gl.expand_dims(x, 1), 0), full)[0]
    return gl.convert_layout(gl.reshape(x, [64, 64]), s_l)


@gluon.jit
def twice_at(row):
    """Where the first of a row's two values lies; the second lies two further on."""
    return row // 8 * 16 + row // 2 % 4 * 4 + row % 2
