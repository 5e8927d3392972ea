"""Ops of ours that know shapes only: they stand for a kernel of the GPU in a captured graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

_LIBRARY = torch.library.Library("rooftile_capture", "DEF")
OPS: Any = torch.ops.rooftile_capture


def define(schema: str, fake: Callable[..., Any]) -> None:
    """Define an op by its schema and by what it returns under fake tensors."""
    name = schema.partition("(")[0]
    _LIBRARY.define(schema)
    torch.library.register_fake(f"rooftile_capture::{name}", fake, lib=_LIBRARY)


def batched(name: str, tensors: int) -> None:
    """Give an op that takes any leading dimensions its form under ``torch.vmap``: one call.

    Its first arguments, so many, are tensors or None; the batch becomes their first dimension.
    """

    def call(info: Any, in_dims: tuple[int | None, ...], *args: Any) -> Any:
        front = [
            t if t is None else t.unsqueeze(0) if dim is None else t.movedim(dim, 0)
            for t, dim in zip(args[:tensors], in_dims, strict=False)
        ]
        result = getattr(OPS, name)(*front, *args[tensors:])
        return result, tuple(0 if t.numel() else None for t in result)

    torch.library.register_vmap(f"rooftile_capture::{name}", call, lib=_LIBRARY)


def autograd(name: str, backward: Callable[..., Any], setup: Callable[..., Any]) -> None:
    """Give an op its backward, another op of ours."""
    torch.library.register_autograd(
        f"rooftile_capture::{name}", backward, setup_context=setup, lib=_LIBRARY
    )
