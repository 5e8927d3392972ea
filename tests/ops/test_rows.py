"""How rows are addressed: strides, 64-bit offsets, the width of an access; and where ops run."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
import triton
import triton.language as tl

from rooftile.ops.rows.address import Rows, collapse, row_offset, rows_of, vectors


@triton.jit
def _offset_kernel(out_ptr, first, stride):
    row = tl.program_id(0).to(tl.int64) + first
    tl.store(out_ptr + tl.program_id(0), row_offset(row, 1, stride, 0))


def test_offsets_beyond_int32(device):
    """Row 65,536 of stride 32,768 starts at 2^31; int32 would wrap to -2^31 (sm-06)."""
    out = torch.zeros(1, dtype=torch.int64, device=device)
    _offset_kernel[(1,)](out, 65536, 32768)
    assert out.item() == 2**31


@pytest.mark.parametrize(
    ("view", "dim", "expected"),
    [
        (lambda t: t, 3, Rows(1, 5, 0, 1)),
        (lambda t: t[..., :4], 3, Rows(1, 5, 0, 1)),
        (lambda t: t[:, :, 1], 2, Rows(1, 20, 0, 1)),
        (lambda t: t[:, 1], 2, Rows(4, 60, 5, 1)),
        (lambda t: t, 1, Rows(20, 60, 1, 20)),
        (lambda t: t[:, :1].expand(-1, 7, -1, -1), 3, None),
        (lambda t: t[:1, :1].expand(6, 7, -1, -1), 3, Rows(4, 0, 5, 1)),
        (lambda t: t.repeat(2, 1, 1, 1)[::2, ::2, ::2], 3, None),
    ],
)
def test_collapse(view, dim, expected):
    """Leading dimensions become at most two strides, or None."""
    assert collapse(view(torch.empty(2, 3, 4, 5)), dim) == expected


def test_only_three_strides_are_copied():
    """Any layout of up to two strides is read where it lies."""
    t = torch.randn(4, 6, 4, 5)
    assert rows_of(t[:, 1], 2)[0].data_ptr() == t[:, 1].data_ptr()
    x, rows = rows_of(t[::2, ::2, ::2], 3)
    assert rows == Rows(1, 5, 0, 1)
    assert torch.equal(x, t[::2, ::2, ::2])


def aligned(n_rows, n_cols, dtype=torch.bfloat16):
    """A matrix that starts at a multiple of 128 bytes, and its rows."""
    line = 128 // dtype.itemsize
    base = torch.empty(n_rows * n_cols + line, dtype=dtype)
    start = -(base.data_ptr() // dtype.itemsize) % line
    t = base[start : start + n_rows * n_cols].view(n_rows, n_cols)
    assert t.data_ptr() % 128 == 0
    return t, Rows(1, n_cols, 0, 1)


@pytest.mark.parametrize(
    ("n_cols", "dtype", "expected"),
    [
        (4096, torch.bfloat16, (8, 0, False)),
        (1000, torch.bfloat16, (8, 0, False)),
        (1000, torch.float32, (4, 0, False)),
        (101, torch.bfloat16, (8, 8, True)),
        (1001, torch.bfloat16, (8, 16, True)),
        (50257, torch.bfloat16, (8, 16, True)),
        (50257, torch.float32, (4, 8, True)),
        (12, torch.bfloat16, (4, 0, False)),
        (7, torch.bfloat16, (1, 0, False)),
    ],
)
def test_width_of_contiguous_rows(n_cols, dtype, expected):
    """16 bytes where a row is long enough; heads end at 32 bytes where rows start anywhere."""
    assert vectors(n_cols, dtype.itemsize, aligned(8, n_cols, dtype)) == expected


def test_width_of_other_rows():
    """Padded rows end in a tail; rows that start differently, or are columns, move narrower."""
    t, _ = aligned(8, 1024)
    padded = (t[:, :1001], Rows(1, 1024, 0, 1))
    assert vectors(1001, 2, padded) == (8, 0, True)
    assert vectors(1001, 2, padded, aligned(8, 1001)) == (1, 0, False)
    assert vectors(1000, 2, (t[:, 4:1004], Rows(1, 1024, 0, 1))) == (4, 0, False)
    assert vectors(8, 2, (t.t(), Rows(1, 1, 0, 1024))) == (1, 0, False)


def test_cpu_without_the_interpreter_is_explained():
    """A kernel cannot run on CPU tensors; the message says what can."""
    code = (
        "import torch\nfrom rooftile.errors import InputError\nfrom rooftile.ops import softmax\n"
        "try:\n    softmax(torch.ones(2, 2), 1)\nexcept InputError as e:\n    print(e)\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True, text=True, env={"PYTHONPATH": ":".join(sys.path)},
    )  # fmt: skip
    assert "must be on a GPU, got cpu" in run.stdout, run.stderr
    assert "TRITON_INTERPRET=1" in run.stdout
