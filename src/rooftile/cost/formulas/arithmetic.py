"""Real FLOP of one addition or product of numbers of a tensor's dtype.

A complex addition is 2 real ones; a complex product 4 products and 2 additions; a quotient the
product with the conjugate, the squared modulus (3) and 2 divisions.
"""

from __future__ import annotations

from rooftile.records.tensor import Tensor


def is_complex(tensor: Tensor) -> bool:
    """The tensor holds complex numbers."""
    return tensor.dtype.startswith("complex")


def addition(tensor: Tensor) -> int:
    """FLOP of a sum or a difference of two elements."""
    return 2 if is_complex(tensor) else 1


def product(tensor: Tensor) -> int:
    """FLOP of a product of two elements."""
    return 6 if is_complex(tensor) else 1


def quotient(tensor: Tensor) -> int:
    """FLOP of a quotient of two elements."""
    return 11 if is_complex(tensor) else 1


def multiply_add(tensor: Tensor) -> int:
    """FLOP of a product added to a sum."""
    return product(tensor) + addition(tensor)
