"""Which driver takes which PTX and which binary.

Source: CUDA's release notes; each toolkit's PTX version as Triton itself derives it. A driver takes
the binaries of every toolkit of its own major version (minor version compatibility).
"""

from __future__ import annotations

from rooftile.errors import InputError

# first toolkit that knows an architecture
_FIRST = {80: "11.0", 86: "11.1", 87: "11.4", 89: "11.8", 90: "11.8", 100: "12.8", 101: "12.8",
          103: "12.9", 110: "13.0", 120: "12.8", 121: "12.9"}  # fmt: skip
LEAST_PTX, MOST_PTX = 70, 99


def ptx_driver(version: str) -> str:
    """The CUDA version whose driver is the first to read a PTX version.

    Args:
        version: ``"8.7"``.

    Raises:
        InputError: There is no such version.
    """
    major, minor = _parts(version)
    if major == 7:
        return f"11.{minor}"
    if major == 8:  # CUDA 12.6 brought no PTX of its own
        return f"12.{minor}" if minor <= 5 else f"12.{minor + 1}"
    if major == 9:
        return f"13.{minor}"
    raise InputError(f"PTX version must be 7.0 to 9.9, got {version!r}")


def binary_driver(assembler: str, arch: int) -> str:
    """The CUDA version whose driver is the first to load a CUBIN.

    Args:
        assembler: Version of the ptxas that made it: ``"12.8"``.
        arch: Compute capability times ten.
    """
    first = _FIRST.get(arch, f"{_parts(assembler)[0]}.{_parts(assembler)[1]}")
    return max(f"{_parts(assembler)[0]}.0", first, key=_parts)


def check_ptx_version(version: int | None) -> None:
    """PTX versions are given as Triton has them: 84 for 8.4.

    Raises:
        InputError: It is none.
    """
    if version is not None and not LEAST_PTX <= version <= MOST_PTX:
        raise InputError(
            f"ptx-version must be {LEAST_PTX} to {MOST_PTX} (84 for PTX 8.4, which a driver for"
            f" CUDA 12.4 reads), got {version}"
        )


def _parts(version: str) -> tuple[int, int]:
    major, _, minor = version.partition(".")
    return int(major), int(minor)
