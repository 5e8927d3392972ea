"""What a kernel takes, out of the assembly that AMD's compiler prints with the binary."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

from rooftile.compile.code import Code, Touch
from rooftile.records.resources import AccessKind

_ACCESS = re.compile(r"\s+(?:global|buffer|flat)_(load|store|atomic)_(\w+)(.*)")
_LABEL = re.compile(r"(\.L\w+):")
_JUMP = re.compile(r"\s+s_(c?)branch\w*\s+(\.L\w+)")
_END = re.compile(r"\s+s_(?:endpgm|setpc_b64)")
_WAIT = re.compile(r"\s+s_wait(?:cnt|_loadcnt)\s+(?:.*vmcnt\((\d+)\)|(0x[0-9a-f]+|\d+))?")
_TENSOR_CORE = re.compile(r"\s+v_(s?mfma[a-z]*|s?wmma)_(\w+)")
_SPILL = re.compile(r"(\d+)-byte Folded (Spill|Reload)")
_WIDTHS = (
    (re.compile(r"dwordx4|b128"), 16),
    (re.compile(r"dwordx3|b96"), 12),
    (re.compile(r"dwordx2|b64"), 8),
    (re.compile(r"short|u16|i16|b16"), 2),
    (re.compile(r"byte|u8|i8|b8"), 1),
)
_DWORD = 4


def read_amd(assembly: str) -> dict[str, Any]:
    """The fields of KernelResources that the assembly holds.

    Args:
        assembly: The whole text, of one kernel.
    """
    code = read_gcn(assembly)
    vgprs = _number(assembly, "vgpr_count")
    spilled = Counter[str]()
    for size, way in _SPILL.findall(assembly):
        spilled[way] += int(size)
    return {
        "threads": _number(assembly, "max_flat_workgroup_size"),
        # the metadata's count is of both kinds
        "registers": _comment(assembly, "NumVgprs", vgprs),
        "accumulation_registers": _number(assembly, "agpr_count"),
        "scalar_registers": _comment(assembly, "TotalNumSgprs", _number(assembly, "sgpr_count")),
        "stack_bytes": _number(assembly, "private_segment_fixed_size"),
        "spill_store_bytes": spilled["Spill"],
        "spill_load_bytes": spilled["Reload"],
        "static_shared_bytes": _number(assembly, "group_segment_fixed_size"),
        "barriers": int(code.barriers),
        "accesses": code.accesses(),
        "load_burst_bytes": code.burst_bytes,
        "tensor_core": code.tensor_core,
        "loops": len(code.loops()),
        "code_bytes": code.code_bytes,
    }


def read_gcn(assembly: str) -> Code:
    """What the instructions of the assembly hold; a place is a line."""
    labels: dict[str, int] = {}
    jumps: list[tuple[int, str]] = []
    stops: set[int] = set()
    touches: list[Touch] = []
    tensor: Counter[str] = Counter()
    loads = _InOrder()
    barriers = False
    for at, line in enumerate(assembly.splitlines()):
        if label := _LABEL.match(line):
            labels[label[1]] = at
        elif jump := _JUMP.match(line):
            jumps.append((at, jump[2]))
            if not jump[1]:
                stops.add(at)
        elif _END.match(line):
            stops.add(at)
        elif access := _ACCESS.match(line):
            if touch := _touch(at, *access.groups()):
                touches.append(touch)
                loads.start(touch)
        elif wait := _WAIT.match(line):
            loads.wait(wait[1], wait[2])
        elif matrix := _TENSOR_CORE.match(line):
            tensor[matrix[1].upper()] += 1
        elif line.strip().startswith("s_barrier"):
            barriers = True
    return Code(
        touches=tuple(touches),
        jumps=tuple((at, labels[label]) for at, label in jumps if label in labels),
        stops=frozenset(stops),
        tensor_core=dict(sorted(tensor.items())),
        barriers=barriers,
        burst_bytes=loads.most,
        code_bytes=_comment(assembly, "codeLenInByte", 0),
    )


class _InOrder:
    """Loads of a wave come back in the order they were sent; a wait says how many may be out."""

    def __init__(self) -> None:
        self.most = 0
        self._out: list[int] = []

    def start(self, touch: Touch) -> None:
        """A load or, on the same counter, a store."""
        self._out.append(touch.width_bytes if touch.kind in ("load", "copy to shared") else 0)
        self.most = max(self.most, sum(self._out))

    def wait(self, left: str | None, bare: str | None) -> None:
        """Until at most so many are out; a wait on other counters changes nothing."""
        count = left if left is not None else bare
        if count is not None:
            keep = int(count, 0)
            self._out = self._out[len(self._out) - keep :] if keep else []


def _touch(at: int, verb: str, what: str, rest: str) -> Touch | None:
    """An access to device memory; None for what is a spill."""
    if _SPILL.search(rest):
        return None
    kind: AccessKind = "load" if verb == "load" else "store" if verb == "store" else "atomic"
    if kind == "load" and ("lds" in what or re.search(r"\blds\b", rest)):
        kind = "copy to shared"
    width = next((size for pattern, size in _WIDTHS if pattern.search(what)), _DWORD)
    return Touch(at, kind, width)


def _number(assembly: str, field: str) -> int:
    """A number of the metadata at the end."""
    found = re.search(rf"\.{field}:\s+(\d+)", assembly)
    return int(found[1]) if found else 0


def _comment(assembly: str, name: str, default: int) -> int:
    """A number that the compiler prints behind the code."""
    found = re.search(rf"^; {name}\s*[:=]\s*(\d+)", assembly, re.MULTILINE)
    return int(found[1]) if found else default
