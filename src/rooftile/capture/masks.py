"""A transformers model asks its masks whether they hide anything; under fake tensors it does not.

The library takes fake tensors for the sign of a compiler, and builds a full mask rather than look.
Then attention is no longer causal by its flag, and the key-value heads are repeated: not what a GPU
runs. While a capture runs the library may look wherever the values are known.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from rooftile.capture.notes import note
from rooftile.capture.values import Values

_LIBRARY = "transformers"


@contextmanager
def readable_masks(values: Values) -> Iterator[None]:
    """Let the library read masks and positions whose values are known, while it lasts."""
    replaced: list[tuple[Any, str, Any]] = []
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] != _LIBRARY:
            continue
        for attribute, stand_in in _STAND_INS.items():
            original = vars(module).get(attribute)
            if callable(original):
                replaced.append((module, attribute, original))
                setattr(module, attribute, stand_in(original, values))
    try:
        yield
    finally:
        for module, attribute, original in replaced:
            setattr(module, attribute, original)


def _is_tracing(original: Callable[..., bool], values: Values) -> Callable[..., bool]:
    def is_tracing(tensor: Any = None) -> bool:
        known = isinstance(tensor, Tensor) and values.of(tensor) is not None
        return False if known else original(tensor)

    return is_tracing


def _packed_indices(original: Callable[..., Any], values: Values) -> Callable[..., Any]:
    def find_packed_sequence_indices(position_ids: Tensor) -> Any:
        """None for one sequence a row: found out beside, since nothing of it is the model's."""
        known = values.of(position_ids)
        if known is None:
            note("positions are not known: one sequence a row, none packed")
            return None
        with _disable_current_modes():
            packed = original(known) is not None
        return original(position_ids) if packed else None

    return find_packed_sequence_indices


_STAND_INS: dict[str, Callable[[Callable[..., Any], Values], Callable[..., Any]]] = {
    "is_tracing": _is_tracing,
    "find_packed_sequence_indices": _packed_indices,
}
