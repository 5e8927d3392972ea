"""Ops that take operands of one dtype. Torch's fake kernels do not look; its real ones refuse.

Where a type would be promoted (pointwise work, ``cat``, losses of differences) nothing is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor

_CONVOLUTION = ("input", "weight", "bias")
_NORM = ("input", "weight", "bias")
_BATCH_NORM = (*_NORM, "running_mean", "running_var")
_PUT = ("self", "values")
_SOURCE = ("self", "source")

# aten op -> its operands of one dtype
ONE_DTYPE: dict[str, tuple[str, ...]] = {
    "mm": ("self", "mat2"),
    "bmm": ("self", "mat2"),
    "mv": ("self", "vec"),
    "dot": ("self", "tensor"),
    "vdot": ("self", "other"),
    "addmm": ("self", "mat1", "mat2"),
    "addmv": ("self", "mat", "vec"),
    "addbmm": ("self", "batch1", "batch2"),
    "baddbmm": ("self", "batch1", "batch2"),
    "_grouped_mm": ("self", "mat2"),
    "convolution": _CONVOLUTION,
    "_convolution": _CONVOLUTION,
    "nll_loss_forward": ("self", "weight"),
    "nll_loss2d_forward": ("self", "weight"),
    "binary_cross_entropy": ("self", "target"),
    "grid_sampler_2d": ("input", "grid"),
    "grid_sampler_3d": ("input", "grid"),
    "index_put": _PUT,
    "index_put_": _PUT,
    "_index_put_impl_": _PUT,
    "index_add": _SOURCE,
    "index_add_": _SOURCE,
    "index_copy": _SOURCE,
    "index_copy_": _SOURCE,
    "index_reduce": _SOURCE,
    "index_reduce_": _SOURCE,
    "put_": _SOURCE,
    "linalg_cross": ("self", "other"),
    "_cdist_forward": ("x1", "x2"),
    "_embedding_bag": ("weight", "per_sample_weights"),
    "_embedding_bag_forward_only": ("weight", "per_sample_weights"),
}
# The first is the input; the others are of its dtype or, beside a 16-bit one, of float32.
WITH_FLOAT32: dict[str, tuple[str, ...]] = {
    "native_layer_norm": _NORM,
    "native_group_norm": _NORM,
    "native_batch_norm": _BATCH_NORM,
    "_native_batch_norm_legit": _BATCH_NORM,
}


def refuse_mixed(
    func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], place: Callable[[], tuple[str, str]]
) -> None:
    """Raise what torch would for operands whose dtypes do not go together.

    Args:
        func: The op.
        args: Its positional arguments.
        kwargs: Its arguments by name.
        place: Says the module and the line that are running.

    Raises:
        RuntimeError: As torch's own kernels raise it; the message says where and which dtypes.
    """
    roles = _roles(func)
    if not roles:
        return
    dtypes = {}
    for position, name in roles:
        value = args[position] if position < len(args) else kwargs.get(name)
        if isinstance(value, Tensor):
            dtypes[name] = value.dtype
    if len(set(dtypes.values())) < 2 or _beside_16_bits(func, dtypes):
        return
    module, line = place()
    where = f" at {line}" if line else ""
    where += f" (module {module})" if module else ""
    shown = ", ".join(f"{name} {_name(dtype)}" for name, dtype in dtypes.items())
    raise RuntimeError(
        f"{func._schema.name.partition('::')[2]}{where} takes operands of one dtype, got {shown}: "
        "torch refuses to run it; convert one of them, or run it under torch.autocast"
    )


@cache
def _roles(func: Any) -> tuple[tuple[int, str], ...]:
    """The operands whose dtypes must go together: their places and names."""
    schema = getattr(func, "_schema", None)
    if schema is None:  # a higher-order op
        return ()
    namespace, _, base = schema.name.partition("::")
    if namespace not in ("aten", "rooftile_capture"):
        return ()
    names = ONE_DTYPE.get(base) or WITH_FLOAT32.get(base, ())
    if "out_dtype" in {a.name for a in schema.arguments} and len(names) == 3:
        names = names[1:]  # what is added is of the result's dtype
    return tuple((i, a.name) for i, a in enumerate(schema.arguments) if a.name in names)


def _beside_16_bits(func: Any, dtypes: dict[str, torch.dtype]) -> bool:
    """Whether a norm of a 16-bit input has its parameters in float32."""
    if func._schema.name.partition("::")[2] not in WITH_FLOAT32:
        return False
    own, *others = dtypes.values()
    alike = dtypes.get("weight") == dtypes.get("bias", dtypes.get("weight"))
    return own.itemsize == 2 and alike and set(others) <= {own, torch.float32}


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
