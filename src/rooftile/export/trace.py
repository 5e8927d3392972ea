"""What an op launches for a size, a dtype and a GPU that is not there: recorded, not run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from rooftile.compile.launch import Launch, record_launches
from rooftile.compile.targets import Target
from rooftile.errors import InputError
from rooftile.export.formula import elements, evaluate
from rooftile.export.ops import TENSOR_DTYPES, OpSpec
from rooftile.ops._launch import Planned, planned_for
from rooftile.records.manifest import Form

SMS = 132  # an H100's; a kernel whose grid follows it is found out by a second count


@dataclass(frozen=True)
class Traced:
    """One launch of an op.

    Attributes:
        sizes: Of its tensors.
        launch: What it launched.
        tensors: Address to the name of the tensor there.
    """

    sizes: Mapping[str, int]
    launch: Launch
    tensors: Mapping[int, str]


def trace(
    name: str, spec: OpSpec, dtype: str, sizes: Mapping[str, int], target: Target, form: Form,
    sms: int = SMS,
) -> Traced:  # fmt: skip
    """Call an op on tensors that stand in for a GPU's, and record its launch.

    Args:
        name: Of the op.
        spec: The op.
        dtype: Of every tensor.
        sizes: Value of every size.
        target: What is planned for.
        form: ``any``: the inputs' addresses are multiples of an element's size alone.
        sms: Multiprocessors of that GPU.

    Raises:
        InputError: It launches none or several kernels, or passes what no other program can make.
    """
    inputs = {
        key: _stand_in(
            elements(shape, sizes), TENSOR_DTYPES[spec.dtype_of(key, dtype)][0], form
        ).view([evaluate(extent, sizes) for extent in shape])
        for key, shape in spec.inputs.items()
    }
    with planned_for(Planned(target.name, sms)), torch.no_grad(), _EveryLaunch():
        result, launches = record_launches(lambda: spec.run(inputs), target)
    if len(launches) != 1:
        raise InputError(
            f"op {name!r} cannot be exported for {target.name}: it launches {len(launches)}"
            f" kernels ({', '.join(launch.kernel.__name__ for launch in launches)}), one is wanted"
        )
    refuse_descriptors(launches[0])
    outputs = result if isinstance(result, tuple) else (result,)
    named = {**inputs, **dict(zip(spec.outputs, outputs, strict=True))}
    return Traced(sizes, launches[0], {t.data_ptr(): key for key, t in named.items()})


class _EveryLaunch(TorchFunctionMode):
    """Changes nothing; under a mode an op makes no call again from memory.

    To remember one it asks for the current GPU, which fails where torch is built for one and the
    machine has no driver.
    """

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        return func(*args, **(kwargs or {}))


class DescriptorError(InputError):
    """A launch passes a tensor descriptor that its host must make."""


def refuse_descriptors(launch: Launch) -> None:
    """A tensor descriptor that the host makes is 128 bytes that only the driver can encode.

    Raises:
        DescriptorError: The launch passes one.
    """
    for name, argument in launch.call.arguments.items():
        if argument.type.startswith("tensordesc"):
            raise DescriptorError(
                f"{launch.kernel.__name__} cannot be exported: its argument {name} is a TMA"
                " descriptor made by the host, and a bundle passes addresses and numbers alone;"
                " descriptors that the kernel itself makes can be exported"
            )


def _stand_in(count: int, dtype: torch.dtype, form: Form) -> Tensor:
    """Memory that nothing reads: aligned as PyTorch aligns it, or off by one element."""
    if form != "any":
        return torch.empty(count, dtype=dtype)
    return torch.empty(count + 1, dtype=dtype)[1:]


def same_kernel(one: Launch, other: Launch) -> bool:
    """Whether two launches are of one kernel with the same constants and compiler options."""
    return (
        one.kernel is other.kernel
        and declared_constants(one) == declared_constants(other)
        and dict(one.call.options) == dict(other.call.options)
    )


def declared_constants(launch: Launch) -> dict[str, Any]:
    """The constants that the kernel itself declares, without arguments that Triton folded in."""
    declared = {param.name for param in launch.kernel.params if param.is_constexpr}
    return {name: v for name, v in launch.call.constants.items() if name in declared}
