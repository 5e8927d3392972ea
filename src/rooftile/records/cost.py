"""The work of one call of one op."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Cost:
    """The work of one call, whatever the device.

    Attributes:
        matrix_flops: FLOP a matrix unit can do, a multiply-add counted 2. Where a mask makes part
            of it needless (causal attention), only what is needed.
        vector_flops: All other FLOP: pointwise, reductions, exponentials (1 each).
        read_bytes: Bytes of the distinct regions read, each once.
        write_bytes: Bytes of the distinct regions written, each once.
        dense_matrix_flops: ``matrix_flops`` without the savings of a mask.
        math: Key of the matrix roof: ``"bf16"``, ``"tf32"``, ``"fp32"``, ``"fp8"``, ...; "" where
            no matrix work is done.
        vector_math: Key of the vector roof: ``"fp32"`` or ``"fp64"``.
        kernels: Kernel launches; 0 for an op that only changes metadata.
        formula: Where the FLOP come from: ``"matmul.addmm"``.
    """

    matrix_flops: int = 0
    vector_flops: int = 0
    read_bytes: int = 0
    write_bytes: int = 0
    dense_matrix_flops: int = 0
    math: str = ""
    vector_math: str = "fp32"
    kernels: int = 1
    formula: str = ""

    @property
    def flops(self) -> int:
        """Matrix and vector FLOP together."""
        return self.matrix_flops + self.vector_flops

    @property
    def bytes(self) -> int:
        """Bytes read and written."""
        return self.read_bytes + self.write_bytes

    @property
    def intensity(self) -> float:
        """Arithmetic intensity [FLOP/B]; 0 where nothing moves."""
        return self.flops / self.bytes if self.bytes else 0.0
