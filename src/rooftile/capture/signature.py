"""What an op's schema says about its arguments, read once an op."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from rooftile.capture.aten import ATEN
from rooftile.capture.fused import REPLACED

# Ops of these namespaces ask for metadata: nothing runs on a GPU.
_METADATA_NAMESPACES = {"prim", "profiler"}
_METADATA_OPS = {
    "sym_size", "sym_stride", "sym_numel", "sym_storage_offset", "is_same_size", "detach", "alias",
    "_indices", "_values", "_nnz",
}  # fmt: skip
# In-place ops that fill their first argument without reading it.
FILLS = {
    "copy_", "fill_", "zero_", "normal_", "uniform_", "bernoulli_", "random_", "exponential_",
    "geometric_", "cauchy_", "log_normal_", "index_copy_", "scatter_", "index_fill_",
    "_index_put_impl_", "index_put_", "set_", "resize_", "_foreach_copy_", "_foreach_zero_",
}  # fmt: skip
ACCUMULATING = {"index_put_", "_index_put_impl_"}
# float32 work that runs in TF32 where torch's switch allows it
_MATMULS = {"mm", "bmm", "addmm", "baddbmm", "addbmm", "linear", "matmul"}
_CONVOLUTIONS = {"convolution", "convolution_backward", "_convolution", "cudnn_convolution"}


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument: its name, whether the op changes it, whether it is an ``out=``."""

    name: str
    writes: bool
    is_out: bool


@dataclass(frozen=True, slots=True)
class Signature:
    """What recording an op takes.

    Attributes:
        aten: Torch's full name, ``"aten.addmm.default"``.
        base: Without namespace and overload, ``"addmm"``.
        overload: With the overload, ``"lstm.input"``.
        name: Our name for it.
        positional: Its arguments in order.
        by_name: The same by name.
        writes: It changes an argument.
        skip: It launches nothing and is no view: not recorded.
        composite: Torch runs it as other ops.
        tf32: ``"matmul"`` or ``"convolution"`` where a switch of torch's decides about TF32.
    """

    aten: str
    base: str
    overload: str
    name: str
    positional: tuple[Argument, ...]
    by_name: dict[str, Argument]
    writes: bool
    skip: bool
    composite: bool
    tf32: str


def signature_of(func: Any) -> Signature:
    """Read an op's schema."""
    schema = getattr(func, "_schema", None)
    if schema is None:  # a higher-order op: no schema, its arguments are named by position
        name = str(func)
        arguments = tuple(Argument(f"arg{i}", False, False) for i in range(32))
        return Signature(
            name, name, "", ATEN.get(name, name), arguments, {}, False, False, False, ""
        )
    namespace, _, base = schema.name.partition("::")
    ours = namespace in ("aten", "rooftile_capture")
    name = ATEN.get(base, base) if ours else ATEN.get(schema.name, schema.name)
    # the schema marks the gradients as written for the sake of a gradient scaler that none uses
    unchanged = ("grads",) if base.startswith("_fused_") else ()
    arguments = tuple(
        Argument(
            name=a.name,
            writes=a.alias_info is not None and a.alias_info.is_write and a.name not in unchanged,
            is_out=a.is_out,
        )
        for a in schema.arguments
    )
    tf32 = "matmul" if base in _MATMULS else "convolution" if base in _CONVOLUTIONS else ""
    return Signature(
        aten=str(func),
        base=base,
        overload=f"{base}.{schema.overload_name}",
        name=name,
        positional=arguments,
        by_name={a.name: a for a in arguments},
        writes=any(a.writes for a in arguments),
        skip=namespace in _METADATA_NAMESPACES or base in _METADATA_OPS,
        composite=namespace == "aten" and _comes_apart(func, base),
        tf32=tf32,
    )


def _comes_apart(func: Any, base: str) -> bool:
    """Whether torch runs the op as others; one with a kernel of its own as well stays whole."""
    replaced = base in REPLACED or f"{base}.{func._schema.overload_name}" in REPLACED
    own_kernel = torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CPU")
    return func._can_decompose() and (replaced or not own_kernel)
