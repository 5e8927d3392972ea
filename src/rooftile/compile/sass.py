"""NVIDIA machine code, read far enough to count what matters.

Since Volta an instruction has 128 bits: the operation in bits 0 to 11, the width of a memory access
in bits 73 to 75, what it waits for and signals from bit 105 on. The operations below and these
places were found with NVIDIA's disassembler on kernels for every target from sm_80 to sm_121, and
``tests/compile/test_sass.py`` compares both again. The disassembler itself takes 0.7 s a kernel.
"""

from __future__ import annotations

from collections import Counter

from rooftile.compile.code import Code, Touch
from rooftile.records.resources import AccessKind

_BYTES = 16
_WIDTHS = (1, 1, 2, 2, 4, 8, 16, 32)

_BRANCHES = (0x947, 0x547)
# EXIT, RET, BRX and its kin, JMP and JMX: nothing follows them
_ENDS = (0x94D, 0x950, 0x949, 0x54A, 0x94A, 0x94C, 0x958, 0x959)
_ALWAYS = 7  # the predicate that is true, not negated
_BARRIER = 0xB1D
_COMMIT = 0x9AF  # LDGDEPBAR: closes a group of copies to shared memory
_WAIT = 0x91A  # DEPBAR: waits until at most so many groups are under way
_COPY = 0xFAE
_TOUCHES: dict[int, AccessKind] = {
    0x981: "load",
    0x986: "store",
    _COPY: "copy to shared",
}
# by the low 9 bits: the others say where the operands come from
_ATOMICS = (0x1A8, 0x1A9, 0x18E)  # ATOMG, its CAS, RED: the width follows from the type
# Types of 64 bits: unsigned, signed, double; 3 is a float before 9.0, signed from 9.0 on
_EIGHT_BYTES = (2, 5, 6)
_EIGHT_BYTES_FROM_90 = (2, 3)
_FLOAT_ATOMICS = (0x1A3, 0x1A6)  # ATOMG and RED from 9.0 on, of one float or several
_FLOAT_WIDTHS = {0: 4, 1: 8, 2: 16, 3: 4, 4: 8, 5: 16, 9: 4, 10: 8, 11: 16, 15: 8}
_BULK: dict[int, AccessKind] = {0x1B4: "copy to shared", 0x1B5: "store", 0x1B6: "atomic"}
_TENSOR_CORE = {
    0x03C: "HMMA",
    0x037: "IMMA",
    0x03F: "DMMA",
    0x07A: "QMMA",
    0x1F0: "HGMMA",
    0x1F1: "IGMMA",
    0x1F3: "QGMMA",
    0x1EA: "UTCMMA",
}


def read_sass(code: bytes, capability: int) -> Code:
    """What a kernel's ``.text`` section holds.

    Args:
        code: Machine code.
        capability: Compute capability times ten, 80 to 121.
    """
    reader = _Reader(capability)
    for at in range(0, len(code), _BYTES):
        reader.read(at, int.from_bytes(code[at : at + _BYTES], "little"))
    return Code(
        touches=tuple(reader.touches),
        jumps=tuple(reader.jumps),
        stops=frozenset(reader.stops),
        tensor_core=dict(sorted(reader.tensor_core.items())),
        barriers=reader.barriers,
        burst_bytes=reader.most,
        code_bytes=len(code),
    )


class _Reader:
    """Goes through the code once, and knows which loads are under way."""

    def __init__(self, capability: int) -> None:
        self.capability = capability
        self.touches: list[Touch] = []
        self.jumps: list[tuple[int, int]] = []
        self.stops: set[int] = set()
        self.tensor_core: Counter[str] = Counter()
        self.barriers = False
        self.most = 0
        self._loads = [0] * 8  # bytes under way by the scoreboard that each load signals
        self._groups: list[int] = []  # bytes of the closed groups of copies
        self._open = 0

    def read(self, at: int, word: int) -> None:
        """One instruction."""
        operation = word & 0xFFF
        waits = word >> 116 & 0x3F
        for board in range(6):
            if waits >> board & 1:
                self._loads[board] = 0
        if operation in _TOUCHES:
            self._touch(at, _TOUCHES[operation], word)
        elif operation in _BRANCHES:
            self.jumps.append((at, at + _BYTES + self._offset(word)))
            # a branch has a second predicate of its own, by kind in one of two places
            second = word >> 24 if operation == 0x547 else word >> 87
            if word >> 12 & 0xF == _ALWAYS and second & 0xF == _ALWAYS:
                self.stops.add(at)
        elif operation in _ENDS:
            if word >> 12 & 0xF == _ALWAYS:
                self.stops.add(at)
        elif operation == _BARRIER:
            self.barriers = True
        elif operation == _COMMIT:
            self._groups.append(self._open)
            self._open = 0
        elif operation == _WAIT and word >> 47 & 1 and not word >> 44 & 7:
            left = word >> 38 & 0x3F
            self._groups = self._groups[len(self._groups) - left :] if left else []
        else:
            self._other(at, word)

    def _touch(self, at: int, kind: AccessKind, word: int) -> None:
        copy = kind == "copy to shared"
        # from 10.0 on a copy's width stands one bit higher
        shift = 74 if copy and self.capability >= 100 else 73
        width = _WIDTHS[word >> shift & 7]
        self.touches.append(Touch(at, kind, width))
        if copy:
            self._open += width
        elif kind == "load":
            self._loads[word >> 110 & 7] += width
        self.most = max(self.most, sum(self._loads) + sum(self._groups) + self._open)

    def _other(self, at: int, word: int) -> None:
        low = word & 0x1FF
        if low in _TENSOR_CORE:
            self.tensor_core[_TENSOR_CORE[low]] += 1
        elif low in _BULK:
            self.touches.append(Touch(at, _BULK[low], 0))
        elif low in _ATOMICS:
            wide = _EIGHT_BYTES if self.capability < 90 else _EIGHT_BYTES_FROM_90
            width = 8 if word >> 73 & 7 in wide else 4
            self.touches.append(Touch(at, "atomic", width))
        elif low in _FLOAT_ATOMICS:
            self.touches.append(Touch(at, "atomic", _FLOAT_WIDTHS.get(word >> 73 & 15, 4)))

    def _offset(self, word: int) -> int:
        """How far a branch goes from the instruction behind it [B]."""
        far = word >> 34 & (1 << 48) - 1
        far -= (far >> 47) << 48
        if self.capability < 90:
            return far * 4
        return (far << 8 | word >> 16 & 0xFF) * 4
