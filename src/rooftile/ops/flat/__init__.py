"""Pointwise kernels, and how tensors are cut into chunks for them."""
