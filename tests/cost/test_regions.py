"""Distinct bytes of tensor regions: the named cases, and every small case against a set."""

from __future__ import annotations

import itertools
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ops_by_hand import strided, tensor

from rooftile.cost.regions import RUN_LIMIT, region_bytes
from rooftile.errors import InputError
from rooftile.records.tensor import Tensor


def test_nothing_is_no_bytes():
    """No tensor, and a tensor without elements, cover nothing."""
    assert region_bytes([]) == 0
    assert region_bytes([tensor(0, 4096)]) == 0


def test_a_scalar_is_one_element():
    """A tensor without dimensions is one element of its dtype."""
    assert region_bytes([tensor(dtype="float64")]) == 8


def test_a_dense_tensor_is_its_elements():
    """A contiguous tensor, a transposed one and one in channels-last cover what they hold."""
    x = tensor(3, 5, 7, dtype="bfloat16")
    assert region_bytes([x]) == 210
    assert region_bytes([strided(x, (7, 5, 3), (1, 7, 35))]) == 210


def test_the_same_tensor_twice_counts_once():
    """z + z reads z once."""
    z = tensor(1024, 1024)
    assert region_bytes([z, z]) == 4_194_304


def test_a_tensor_and_its_transpose_count_once():
    """x + x.t() reads x once, though shapes and strides differ."""
    x = tensor(256, 256)
    assert region_bytes([x, strided(x, (256, 256), (1, 256))]) == 262_144


def test_a_tensor_and_a_slice_of_it_count_as_the_tensor():
    """x and x[:, :64] together are x."""
    x = tensor(1024, 1024)
    part = strided(x, (1024, 64), (1024, 1))
    assert region_bytes([x, part]) == region_bytes([part, x]) == 4_194_304
    assert region_bytes([part]) == 262_144


def test_slices_of_a_fused_projection_are_disjoint():
    """q, k and v of one fused QKV result cover it exactly, however many rows there are."""
    rows, width = 1_000_000, 384
    qkv = tensor(rows, 3 * width, dtype="bfloat16")
    parts = [strided(qkv, (rows, width), (3 * width, 1), i * width) for i in range(3)]
    assert region_bytes(parts[:1]) == rows * width * 2
    assert region_bytes(parts) == rows * 3 * width * 2
    assert region_bytes([parts[0], parts[2]]) == rows * 2 * width * 2


def test_overlapping_slices_count_their_union():
    """x[:, :64] and x[:, 32:96] cover 96 columns."""
    x = tensor(1_000_000, 128)
    left = strided(x, (1_000_000, 64), (128, 1))
    right = strided(x, (1_000_000, 64), (128, 1), 32)
    assert region_bytes([left, right]) == 1_000_000 * 96 * 4


def test_interleaved_slices_count_their_union():
    """x[::2] and x[1::2] are x; x[::2] and x[::3] are two thirds of it."""
    x = tensor(600)
    even, odd = strided(x, (300,), (2,)), strided(x, (300,), (2,), 1)
    third = strided(x, (200,), (3,))
    assert region_bytes([even]) == 1200
    assert region_bytes([even, odd]) == 2400
    assert region_bytes([even, third]) == 400 * 4


def test_rows_and_columns_that_cross_count_once():
    """The first rows and the first columns of a matrix share a corner."""
    x = tensor(100, 100)
    rows, columns = strided(x, (10, 100), (100, 1)), strided(x, (100, 10), (100, 1))
    assert region_bytes([rows, columns]) == (1000 + 1000 - 100) * 4


def test_an_expanded_dimension_is_its_storage():
    """x of 1 x 4096 expanded to 4096 rows is 16,384 bytes."""
    x = tensor(1, 4096)
    assert region_bytes([strided(x, (4096, 4096), (0, 1))]) == 16_384


def test_overlapping_windows_are_what_they_span():
    """unfold(0, 3, 1) of 10 elements names 24 and covers 10; with step 2 and size 2, all 10."""
    x = tensor(10)
    assert region_bytes([strided(x, (8, 3), (1, 1))]) == 40
    assert region_bytes([strided(x, (5, 2), (2, 1))]) == 40
    assert region_bytes([strided(x, (3, 2), (4, 1))]) == 24


def test_windows_over_a_strided_dimension_are_exact():
    """unfold of every second element: windows of 3 with step 1 over 0, 2, 4, ... 18."""
    x = tensor(20)
    assert region_bytes([strided(x, (8, 3), (2, 2))]) == 40


def test_strides_without_a_common_divisor_are_counted_run_by_run():
    """Steps of 2 and 3 from 0: {0, 2, 4, 6} + {0, 3} is 8 places without 1 and 8."""
    x = tensor(10)
    assert region_bytes([strided(x, (4, 2), (2, 3))]) == 8 * 4


def test_views_of_another_dtype_share_bytes():
    """A float32 storage seen as bfloat16 is the same bytes."""
    x = tensor(100)
    seen = Tensor((200,), "bfloat16", (1,), x.storage)
    assert region_bytes([x, seen]) == 400
    assert region_bytes([seen]) == 400


def test_packed_values_take_the_bytes_of_their_element():
    """float4 holds two values in an element of one byte; int4 takes a byte as torch stores it."""
    assert region_bytes([tensor(64, 32, dtype="float4_e2m1fn_x2")]) == 2048
    assert region_bytes([tensor(3, dtype="int4")]) == 3


def test_parts_of_a_cache_before_and_after_the_new_place_are_disjoint():
    """cache[:, :, :5] and cache[:, :, 5:6] of 8 heads are 6 places a head."""
    cache = tensor(1, 8, 4096, 128, dtype="bfloat16")
    old = strided(cache, (1, 8, 5, 128), cache.stride)
    new = strided(cache, (1, 8, 1, 128), cache.stride, 5 * 128)
    assert region_bytes([old, new]) == 8 * 6 * 128 * 2


def test_different_storages_add_up():
    """Equal tensors of two storages are two tensors."""
    assert region_bytes([tensor(100), tensor(100)]) == 800


def test_beyond_the_limit_of_runs_the_answer_is_a_bound():
    """Too many crossing runs: never more than the sum, never more than the span."""
    n = 2 * RUN_LIMIT
    x = tensor(n, 8)
    even = strided(x, (n // 2, 4), (16, 1))
    third = strided(x, (n // 3, 4), (24, 1))
    alone = region_bytes([even]) + region_bytes([third])
    assert region_bytes([even, third]) == min(alone, n * 8 * 4)
    # true: every sixth row is in both
    assert alone > (n // 2 + n // 3 - n // 6) * 4 * 4


def test_an_unknown_dtype_is_an_error():
    """A dtype without a size has no bytes to count."""
    with pytest.raises(InputError, match="float31"):
        region_bytes([tensor(3, dtype="float31")])


@st.composite
def _strided_tensor(draw: st.DrawFn) -> Tensor:
    rank = draw(st.integers(0, 4))
    shape = tuple(draw(st.integers(0 if rank == 1 else 1, 5)) for _ in range(rank))
    stride = tuple(draw(st.integers(0, 12)) for _ in range(rank))
    dtype = draw(st.sampled_from(("int8", "bfloat16", "float32")))
    return Tensor(shape, dtype, stride, draw(st.integers(0, 1)), draw(st.integers(0, 9)))


_SIZES = {"int8": 1, "bfloat16": 2, "float32": 4}


def _addressed(tensors: list[Tensor]) -> int:
    touched: set[tuple[int, int]] = set()
    for t in tensors:
        size = _SIZES[t.dtype]
        for index in itertools.product(*map(range, t.shape)):
            place = t.offset + sum(i * s for i, s in zip(index, t.stride, strict=True))
            touched.update((t.storage, place * size + byte) for byte in range(size))
    return len(touched)


@given(st.lists(_strided_tensor(), max_size=4))
@settings(max_examples=500, deadline=None)
def test_bytes_equal_the_set_of_addressed_bytes(tensors: list[Tensor]):
    """Whatever small strided tensors meet, the count is that of the set of their bytes."""
    assert region_bytes(tensors) == _addressed(tensors)


def test_a_graphs_worth_of_tensors_is_fast():
    """8,000 ops of three tensors each take well under 0.3 s."""
    x = tensor(2048, 4096, dtype="bfloat16")
    sets = [[tensor(2048, 4096, dtype="bfloat16"), x, tensor(4096)] for _ in range(8_000)]
    began = time.process_time()
    total = sum(region_bytes(s) for s in sets)
    assert time.process_time() - began < 0.3
    assert total == 8_000 * (2 * 2048 * 4096 * 2 + 4096 * 4)
