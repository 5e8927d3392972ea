"""What a compiled kernel moves beside what it must: ``rooftile.traffic(...)``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from rooftile.errors import InputError

if TYPE_CHECKING:
    from rooftile.records.resources import Constant, KernelResources, Traffic


def kernel_traffic(
    kernel: KernelResources,
    blocks: int,
    *,
    trips: Mapping[int, int] | None = None,
    formula_bytes: float | None = None,
) -> Traffic:
    """What a grid of a compiled kernel can move, by its binary, beside a formula's bytes.

    Args:
        kernel: A compiled kernel.
        blocks: Blocks of the grid; clusters where ``num_ctas`` is above 1.
        trips: Loop number, from 1 in the order of the code, to how often its body runs; a loop
            without one is given per iteration.
        formula_bytes: What must move [B].

    Returns:
        Bytes loaded and stored, their ratio to the formula's, and flags: rows read twice, 2-byte
        loads, spills.

    Raises:
        InputError: ``blocks`` is not positive, or there is no such loop.
    """
    from rooftile.plan.kernel_traffic import traffic as reckon

    return reckon(kernel, blocks, trips=trips, formula_bytes=formula_bytes)


def traffic(
    kernel: Any,
    targets: Sequence[str] = ("sm_90",),
    *,
    grid: Sequence[int] | None = None,
    formula_bytes: float | None = None,
    case: str | None = None,
    shape: Sequence[int] = (),
    dtype: str = "bfloat16",
    trips: Mapping[int, int] | None = None,
    constants: Mapping[str, Constant] | None = None,
    signature: str | None = None,
    call: str = "example",
    cache: bool = True,
    progress: Callable[[str], None] | None = None,
) -> tuple[Traffic, ...]:
    """Compile a kernel and set the bytes that its loads and stores can move beside a formula's.

    ``rooftile.traffic("bench_case.py:_softmax_kernel", case="CASE", shape=(65536, 4096))``

    Args:
        kernel: As for ``rooftile.compile_kernel``.
        targets: Architectures; each gets a Traffic of its own.
        grid: Blocks in x, y and z; None: those of the call that the types are taken from.
        formula_bytes: What must move [B]; None: what the case says, where there is one.
        case: Name of a bench case beside the kernel: its function launches the kernel, its cost is
            the formula. Takes the place of ``call``.
        shape: One shape of the case.
        dtype: Of the case's inputs.
        trips: Loop number, from 1 in the order of the code, to how often its body runs.
        constants: The kernel's constants and compiler options.
        signature: As for ``rooftile.compile_kernel``.
        call: Likewise.
        cache: Read and write the cache on disk.
        progress: Told what is being done.

    Returns:
        One Traffic a target.

    Raises:
        InputError: The kernel does not compile, there is no grid, no such case, shape or loop.
        MissingDependencyError: Triton is not installed.
    """
    from rooftile.api.occupancy import kernel_target
    from rooftile.compile.run import compile_launches
    from rooftile.compile.targets import target_of
    from rooftile.plan.kernel_traffic import traffic as reckon

    if case is not None and signature is not None:
        raise InputError("case and signature exclude each other: a case launches the kernel itself")
    if case is None and shape:
        raise InputError("shape is a case's: give a case, or leave it out")
    names = [target_of(target).name for target in targets]
    beside = None if case is None else {"name": case, "shape": list(shape), "dtype": dtype}
    answers = compile_launches(
        kernel_target(kernel), names, constants or {},
        signature=signature, call=call, case=beside, cache=cache, progress=progress,
    )  # fmt: skip
    found = []
    for answer in answers:
        if isinstance(answer.outcome, str):
            raise InputError(answer.outcome)
        blocks = grid or answer.grid
        if blocks is None:
            raise InputError("grid must be given: a signature says nothing of the launch")
        must = answer.formula_bytes if formula_bytes is None else formula_bytes
        found.append(reckon(answer.outcome, prod(blocks), trips=trips, formula_bytes=must))
    return tuple(found)
