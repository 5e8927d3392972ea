"""Kernels that work on rows, and how rows are addressed."""
