"""Stand-ins for what a call made again meets: rows at a known alignment, a compiled kernel."""

from __future__ import annotations

import torch


def ones(n_rows=4):
    """Rows of 6 ones that start at a multiple of 128 bytes, as a GPU's allocations do."""
    base = torch.ones(6 * n_rows + 32)
    start = -base.data_ptr() % 128 // 4
    return base[start : start + 6 * n_rows].view(n_rows, 6)


class Compiled:
    """A kernel that notes what it is launched with."""

    function, packed_metadata = "function", "metadata"

    def __init__(self):
        self.launched = []

    def run(self, *args):
        """As Triton's: grid, stream, function, metadata, three for hooks, the parameters."""
        self.launched.append((args[:3], args[3], args[9:]))
