"""How many distinct bytes a set of tensors covers.

A tensor is a strided region of a storage. Traffic is counted once per byte however many tensors
name it: ``z + z`` reads z once, ``x + x.t()`` reads x once, the three slices of one fused QKV
projection are disjoint, an expanded dimension is its storage, an overlapping window is what it
spans.

Every region is brought to one form first: a run of contiguous bytes, repeated along dimensions of
growing step. Dimensions of step 0 and of length 1 vanish; a dimension whose step is at most the run
lengthens the run; one that continues another joins it. The form is exact, so equal regions have
equal forms. Where regions of one storage interleave, they are compared form against form and, when
that does not decide it, run by run. Above ``RUN_LIMIT`` runs the answer is an upper bound: the sum
of the regions, but never more than the span from the first byte to the last.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from math import prod
from typing import NamedTuple

from rooftile.records.tensor import Tensor
from rooftile.spec.dtypes import itemsize

# Explicit runs cost about 0.3 us each; this many keep one odd union under 5 ms.
RUN_LIMIT = 16_384


_itemsize = lru_cache(maxsize=None)(itemsize)


class _Region(NamedTuple):
    """Bytes ``start + i * step + j * step' + ... + [0, run)`` within a storage.

    Attributes:
        start: First byte.
        run: Contiguous bytes at each place; 0 where the region is empty.
        dims: Step [B] and count of each dimension, steps ascending, each above the run.
    """

    start: int
    run: int
    dims: tuple[tuple[int, int], ...]

    @property
    def end(self) -> int:
        """One past the last byte."""
        return self.start + self.run + sum(step * (count - 1) for step, count in self.dims)

    @property
    def runs(self) -> int:
        """Places at which the run stands."""
        return prod(count for _, count in self.dims)


def region_bytes(tensors: Iterable[Tensor]) -> int:
    """Distinct bytes that the tensors cover together.

    Args:
        tensors: Regions of any storages, in any order, repeated or not.

    Returns:
        Bytes, each counted once. Exact, but for interleaved regions of one storage with more than
        ``RUN_LIMIT`` runs that share no outer dimension: there an upper bound.

    Raises:
        InputError: A dtype is unknown.
    """
    by_storage: dict[int, list[Tensor]] = {}
    for tensor in tensors:
        by_storage.setdefault(tensor.storage, []).append(tensor)
    total = 0
    for group in by_storage.values():
        if len(group) == 1:
            alone = group[0]
            total += _size_alone(alone.shape, alone.stride, alone.dtype)
        else:
            total += _union([_place(tensor) for tensor in group])
    return total


@lru_cache(maxsize=65_536)
def _size_alone(shape: tuple[int, ...], stride: tuple[int, ...], dtype: str) -> int:
    return _size(_form(shape, stride, dtype))


def _place(tensor: Tensor) -> _Region:
    form = _form(tensor.shape, tensor.stride, tensor.dtype)
    return form._replace(start=form.start + tensor.offset * _itemsize(tensor.dtype))


@lru_cache(maxsize=65_536)
def _form(shape: tuple[int, ...], stride: tuple[int, ...], dtype: str) -> _Region:
    """The region's form, as if its first element stood at byte 0."""
    run = _itemsize(dtype)
    if 0 in shape:
        return _Region(0, 0, ())
    start = 0
    steps = []
    for count, step in zip(shape, stride, strict=True):
        if count == 1 or step == 0:
            continue
        start += min(step * (count - 1) * run, 0)
        steps.append((abs(step) * run, count))
    dims: list[tuple[int, int]] = []
    for step, count in sorted(steps):
        if not dims and step <= run:
            run += step * (count - 1)
        elif dims and step % dims[-1][0] == 0 and step // dims[-1][0] <= dims[-1][1]:
            inner, length = dims[-1]
            dims[-1] = (inner, length + (count - 1) * (step // inner))
        else:
            dims.append((step, count))
    return _Region(start, run, tuple(dims))


def _size(region: _Region) -> int:
    span = size = region.run
    for step, count in region.dims:
        if step < span:
            return _overlapping((region,))
        span += step * (count - 1)
        size *= count
    return size


def _union(regions: list[_Region]) -> int:
    """Bytes of regions of one storage: those whose spans touch are looked at together."""
    ordered = sorted({region for region in regions if region.run})
    total = 0
    cluster: list[_Region] = []
    end = 0
    for region in ordered:
        if cluster and region.start >= end:
            total += _cluster(cluster)
            cluster = []
        end = max(end, region.end) if cluster else region.end
        cluster.append(region)
    return total + (_cluster(cluster) if cluster else 0)


def _cluster(regions: list[_Region]) -> int:
    dense = [region for region in regions if not region.dims]
    left = tuple(
        region
        for region in regions
        if not any(d != region and d.start <= region.start and region.end <= d.end for d in dense)
    )
    if len(left) == 1:
        return _size(left[0])
    first = min(region.start for region in left)
    return _overlapping(tuple(region._replace(start=region.start - first) for region in left))


@lru_cache(maxsize=4_096)
def _overlapping(regions: tuple[_Region, ...]) -> int:
    """Bytes of regions whose spans overlap; the first byte of all is byte 0."""
    shared = regions[0].dims[-1:]
    if len(regions) > 1 and shared and all(region.dims[-1:] == shared for region in regions):
        inner = [region._replace(dims=region.dims[:-1]) for region in regions]
        step, count = shared[0]
        if max(region.end for region in inner) - min(r.start for r in inner) <= step:
            return count * _union(inner)
    if sum(region.runs for region in regions) <= RUN_LIMIT:
        return _run_by_run(regions)
    span = max(region.end for region in regions) - min(region.start for region in regions)
    return min(sum(region.run * region.runs for region in regions), span)


def _run_by_run(regions: tuple[_Region, ...]) -> int:
    runs: list[tuple[int, int]] = []
    for region in regions:
        starts = [region.start]
        for step, count in region.dims:
            starts = [start + i * step for i in range(count) for start in starts]
        runs += [(start, start + region.run) for start in starts]
    total = 0
    covered = min(region.start for region in regions)
    for start, end in sorted(runs):
        if end > covered:
            total += end - max(start, covered)
            covered = end
    return total
