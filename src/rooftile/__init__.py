"""Rooftile finds the memory wall in a PyTorch model and says what to do about it."""

from __future__ import annotations

__version__ = "0.1.0"
