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


def autograd(name: str, backward: Callable[..., Any], setup: Callable[..., Any]) -> None:
    """Give an op its backward, another op of ours."""
    torch.library.register_autograd(
        f"rooftile_capture::{name}", backward, setup_context=setup, lib=_LIBRARY
    )
