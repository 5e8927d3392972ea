"""Writes kernels as a bundle that programs in Rust or C launch without Python."""
