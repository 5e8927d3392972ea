"""What a bundle of exported kernels holds: all that a launch without Python must know.

Sizes are whole numbers with a name, ``rows``, ``cols``. A formula over them is a product of
factors, each a whole number, a size or ``ceil(F / N)``: ``"rows"``, ``"ceil(rows / 4) * heads"``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rooftile.records.resources import Constant

SCHEMA_VERSION = 1

Role = Literal["tensor", "size", "stride", "scalar", "fixed", "scratch", "profile_scratch"]
Form = Literal["aligned", "uneven", "any"]


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a kernel, in the order of the launch.

    Attributes:
        name: As in the kernel's source; the compiler's own begin with two underscores.
        type: Triton's word: ``"*bf16"``, ``"i32"``, ``"fp32"``. ``fp32`` takes 4 bytes.
        bytes: Size [B].
        offset: Place in the parameter buffer [B], as the binary has it.
        role: ``tensor``: the address of one; ``size`` and ``stride``: a whole number; ``scalar``: a
            number that the caller may set; ``fixed``: this very value, ``formula`` or else
            ``default``; ``scratch`` and
            ``profile_scratch``: memory that the launcher provides, null where its size is 0.
        divisible_by: What the build takes for granted: the value, or the address in bytes, is a
            multiple of it.
        tensor: Which tensor; "" for other roles.
        formula: A whole number over the sizes; for a stride that of contiguous tensors [elements],
            which the caller may replace; "" where there is none.
        default: A scalar's value where the caller sets none; None: it must be set.
    """

    name: str
    type: str
    bytes: int
    offset: int
    role: Role
    divisible_by: int = 1
    tensor: str = ""
    formula: str = ""
    default: float | None = None


@dataclass(frozen=True, slots=True)
class Size:
    """A size and where the kernel holds.

    Attributes:
        name: ``"cols"``.
        least: Smallest value.
        most: Largest value; None: as far as the parameters' types reach.
        multiple_of: It must be a multiple of this.
    """

    name: str
    least: int = 1
    most: int | None = None
    multiple_of: int = 1


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """A tensor that a kernel reads or writes.

    Attributes:
        name: ``"x"``.
        direction: Whether it is read or written.
        dtype: ``"bfloat16"``.
        shape: Formulas over the sizes, outermost first.
        below: For whole numbers the size under which they lie, from 0 on; "" for others.
    """

    name: str
    direction: Literal["input", "output"]
    dtype: str
    shape: tuple[str, ...]
    below: str = ""


@dataclass(frozen=True, slots=True)
class BundleFile:
    """A file of the bundle.

    Attributes:
        path: Relative to the bundle's folder.
        bytes: Size [B].
        sha256: Of its content, in hexadecimal.
    """

    path: str
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Scratch:
    """Device memory that a launch must provide.

    Attributes:
        bytes_per_block: For each block of the grid, those of a cluster counted each [B].
        alignment: Of its address [B].
    """

    bytes_per_block: int = 0
    alignment: int = 1


@dataclass(frozen=True, slots=True)
class ExportedKernel:
    """One kernel for one architecture.

    Attributes:
        symbol: The entry's name in the binary, and of nothing else in the bundle.
        op: What it computes: ``"softmax"``; the kernel's name for a user's own.
        dtype: Of the tensors; "" for a user's own.
        form: ``aligned``: as the op launches it for contiguous rows, addresses that are multiples
            of 16 bytes, sizes that the kernel cuts into blocks in whole ones; ``uneven``: the same
            without whole blocks; ``any``: no such assumption.
        target: ``"sm_90"``, ``"gfx942"``.
        parameters: All of them, those that the compiler adds included.
        sizes: What the formulas are over.
        tensors: What the pointers mean; empty for a user's own kernel.
        grid: Blocks (clusters where ``cluster`` is over 1) in x, y and z as formulas; empty: the
            caller gives it.
        threads: Of a block, all in x.
        cluster: Blocks of a cluster, in x.
        dynamic_shared_bytes: What the launch must ask for [B].
        static_shared_bytes: What the binary has of itself [B].
        registers: Of a thread.
        scratch: Memory for descriptors that the kernel makes.
        profile_scratch: Memory for instrumentation.
        cooperative: It needs a cooperative launch.
        dependent_launch: It needs programmatic dependent launch.
        constants: Values compiled in, those of arguments that were 1 or None included.
        options: Of the compiler.
        ptx_version: ``"8.8"``; "" where there is no PTX.
        ptx_target: ``"sm_90a"``; one that ends in ``a`` runs on that architecture alone.
        ptx_driver: Oldest driver whose compiler reads the PTX, as the CUDA version it reports.
        binary_driver: Oldest driver that loads the binary.
        binary: The CUBIN or HSACO; None where the PTX alone is meant for use.
        ptx: The PTX; None for AMD.
        absolute_tolerance: Most that an element may differ from the exact result.
        relative_tolerance: The same by the element's size.
    """

    symbol: str
    op: str
    dtype: str
    form: Form
    target: str
    parameters: tuple[Parameter, ...]
    sizes: tuple[Size, ...]
    tensors: tuple[TensorSpec, ...]
    grid: tuple[str, ...]
    threads: int
    cluster: int
    dynamic_shared_bytes: int
    static_shared_bytes: int
    registers: int
    scratch: Scratch
    profile_scratch: Scratch
    cooperative: bool
    dependent_launch: bool
    constants: dict[str, Constant]
    options: dict[str, Constant]
    ptx_version: str
    ptx_target: str
    ptx_driver: str
    binary_driver: str
    binary: BundleFile | None
    ptx: BundleFile | None
    absolute_tolerance: float | None = None
    relative_tolerance: float | None = None


@dataclass(frozen=True, slots=True)
class Golden:
    """An op's result on one input, to check a launch by.

    Attributes:
        op: Which op.
        dtype: Which dtype.
        sizes: Values of the sizes.
        inputs: Tensor to file: its elements in row-major order, little endian.
        outputs: Tensor to file: the exact result in float32.
    """

    op: str
    dtype: str
    sizes: dict[str, int]
    inputs: dict[str, BundleFile]
    outputs: dict[str, BundleFile]


@dataclass(frozen=True, slots=True)
class Manifest:
    """A bundle.

    Attributes:
        tools: What made it, by name: ``rooftile``, ``triton``, ``ptxas``, ``torch``.
        kernels: Sorted by symbol.
        golden: Inputs with their results, sorted by op, dtype and sizes.
        notes: What the bundle does not hold and why, one sentence each.
        kind: Tells this record's JSON from others.
    """

    tools: dict[str, str]
    kernels: tuple[ExportedKernel, ...]
    golden: tuple[Golden, ...] = ()
    notes: tuple[str, ...] = ()
    kind: Literal["rooftile.manifest"] = "rooftile.manifest"
    schema_version: int = SCHEMA_VERSION
