"""CUDA C++ compiled while the program runs (NVRTC), and launched through the driver alone.

Both are loaded by ctypes: nothing is built, and no header or compiler is needed beside the library
that torch's own wheels bring.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rooftile.errors import MissingDependencyError, RooftileError

_MAX_DYNAMIC = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES


def compile_cuda(source: str, arch: str, defines: Mapping[str, int]) -> bytes:
    """CUDA C++ as a CUBIN.

    Args:
        source: The text; it includes nothing.
        arch: ``"sm_90"``.
        defines: Macro to value.

    Raises:
        MissingDependencyError: There is no NVRTC.
        RooftileError: It does not compile; the message is the compiler's.
    """
    nvrtc = _nvrtc()
    words = [f"--gpu-architecture={arch}", "--std=c++17"]
    words += [f"-D{name}={value}" for name, value in defines.items()]
    options = (ctypes.c_char_p * len(words))(*(word.encode() for word in words))
    program = ctypes.c_void_p()
    made = nvrtc.nvrtcCreateProgram(
        ctypes.byref(program), source.encode(), b"kernel.cu", 0, None, None
    )
    _require(made, "NVRTC makes no program")
    try:
        code = nvrtc.nvrtcCompileProgram(program, len(words), options)
        if code:
            log = _text_of(nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog, program)
            raise RooftileError(f"CUDA C++ does not compile for {arch}: {log.decode().strip()}")
        return _text_of(nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN, program)
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))


class CudaKernel:
    """A kernel out of a CUBIN, in the context that torch uses of the current device.

    Args:
        cubin: Made by ``compile_cuda``.
        name: The kernel's, declared ``extern "C"``.
        shared_bytes: Dynamic shared memory of a block.
    """

    def __init__(self, cubin: bytes, name: str, shared_bytes: int) -> None:
        torch.cuda.current_stream()  # torch makes the context
        self._driver = ctypes.CDLL("libcuda.so.1")
        self._module, self._function = ctypes.c_void_p(), ctypes.c_void_p()
        self._shared_bytes = shared_bytes
        driver = self._driver
        _require(driver.cuModuleLoadData(ctypes.byref(self._module), cubin), "cuModuleLoadData")
        found = driver.cuModuleGetFunction(
            ctypes.byref(self._function), self._module, name.encode()
        )
        _require(found, f"cuModuleGetFunction of {name}")
        allowed = driver.cuFuncSetAttribute(self._function, _MAX_DYNAMIC, shared_bytes)
        _require(allowed, f"cuFuncSetAttribute of {shared_bytes} bytes of shared memory")

    def launch(self, grid: Sequence[int], threads: int, *arguments: Tensor | int | float) -> None:
        """Launch on torch's current stream: tensors as pointers, int as 32 bits, float as float32.

        Raises:
            RooftileError: The driver refuses; the message has its code.
        """
        values: list[Any] = [_argument(one) for one in arguments]
        pointers = (ctypes.c_void_p * len(values))(
            *(ctypes.cast(ctypes.byref(value), ctypes.c_void_p) for value in values)
        )
        x, y, z = (*grid, 1, 1)[:3]
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        code = self._driver.cuLaunchKernel(
            self._function, x, y, z, threads, 1, 1, self._shared_bytes, stream, pointers, None
        )
        _require(code, "cuLaunchKernel")


def _argument(value: Tensor | int | float) -> Any:
    if isinstance(value, Tensor):
        return ctypes.c_void_p(value.data_ptr())
    return ctypes.c_float(value) if isinstance(value, float) else ctypes.c_int(value)


@lru_cache(maxsize=1)
def _nvrtc() -> Any:
    """The library: that of torch's wheels, else the system's."""
    places = _libraries()
    for path in (*places, Path("libnvrtc.so")):  # the last by the system's own search
        try:
            for beside in path.parent.glob("libnvrtc-builtins.so.*") if path in places else ():
                ctypes.CDLL(str(beside))  # NVRTC asks for it by its bare name, now known
            return ctypes.CDLL(str(path))
        except OSError:
            continue  # the next place; where there is none, the error below says so
    raise MissingDependencyError(
        "CUDA C++ needs libnvrtc, which comes with torch's CUDA wheels; looked at "
        f"{', '.join(map(str, places)) or 'the system alone'}"
    )


def _libraries() -> list[Path]:
    """Where pip and the toolkit put it, that of torch's CUDA first."""
    folders = [Path(place) / "nvidia" for place in sys.path]
    found = [path for folder in folders for path in folder.glob("*/lib/libnvrtc.so.*")]
    home = Path(os.environ.get("CUDA_HOME", "/usr/local/cuda"))
    found += [path for lib in ("lib64", "lib") for path in (home / lib).glob("libnvrtc.so*")]
    major = (torch.version.cuda or "").split(".")[0]  # a driver takes no newer CUBIN than it knows
    return sorted(found, key=lambda path: not path.name.endswith(f".so.{major}"))


def _text_of(size_of: Any, read: Any, program: ctypes.c_void_p) -> bytes:
    """What NVRTC hands out in two steps: its length, then itself."""
    size = ctypes.c_size_t()
    _require(size_of(program, ctypes.byref(size)), "NVRTC says no size")
    buffer = ctypes.create_string_buffer(size.value)
    _require(read(program, buffer), "NVRTC hands out nothing")
    return buffer.raw


def _require(code: int, what: str) -> None:
    if code:
        raise RooftileError(f"{what}: error {code}")
