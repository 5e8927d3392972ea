"""Shapes that the row ops are run at: as many rows as make a problem of one size."""

from __future__ import annotations

from collections.abc import Iterable

# bf16: 0.5 GiB a tensor, nine times the L2 of an H200
ELEMENTS = 2**28
# 50,257: the vocabulary of GPT-2; 12,345: odd, between two powers of two
ODD = (50_257, 12_345)
BACKWARD = (512, 1024, 2048, 4096, 8192, 16_384, 32_768, 65_536, *ODD)
FORWARD = (256, *BACKWARD, 131_072, 262_144)
# for a check without a GPU: one block, a row that no block divides, one mostly of padding
SMALL = ((4, 256), (3, 1023), (5, 17))


def rows_of(columns: Iterable[int], elements: int = ELEMENTS) -> tuple[tuple[int, int], ...]:
    """Rows and columns of about so many elements, for each number of columns."""
    return tuple((max(elements // n, 1), n) for n in columns)
