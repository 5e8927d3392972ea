"""Compiles a kernel for a target without a GPU and reads what it takes out of the binary."""
