"""Compiles one kernel in this process: to be called in one that may die of it."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rooftile.compile.amd import read_amd
from rooftile.compile.cache import READER
from rooftile.compile.faults import diagnosed, not_assembled, place_of
from rooftile.compile.kernel import DIVISIBLE, Argument, Call, constant_of
from rooftile.compile.launch import extents
from rooftile.compile.nvidia import read_nvidia
from rooftile.compile.targets import Target
from rooftile.errors import InputError
from rooftile.records.resources import Constant, KernelResources


@dataclass(frozen=True, slots=True)
class Build:
    """One kernel to compile: all that decides about the result, and the call it comes from."""

    kernel: Any
    target: Target
    arguments: Mapping[str, Argument]
    constants: Mapping[str, Constant]
    options: Mapping[str, Constant]
    call: Call | None = None

    def grid(self) -> tuple[int, int, int] | None:
        """Blocks of the call with these constants; None where the call is not known.

        Raises:
            InputError: The grid is a function, and it fails.
        """
        if self.call is None or self.call.grid is None:
            return None
        return extents(self.call.grid, {**self.call.values, **self.constants})

    def key(self) -> str:
        """A hash of the source with all it calls, the compiler and all that decides."""
        import triton
        from triton._C.libtriton import get_cache_invalidating_env_vars

        try:
            source = self.kernel.cache_key
        except RuntimeError as error:  # it refers to what no kernel may
            raise InputError(f"{self.kernel.__name__} does not compile: {error}") from error
        globals_ = sorted(
            (name, repr(value)) for (name, _), (value, _) in self.kernel.used_global_vals.items()
        )
        parts = (
            READER, source, globals_, triton.__version__, self.target,
            sorted(get_cache_invalidating_env_vars().items()),
            {name: str(argument) for name, argument in self.arguments.items()},
            # a function's repr is its name alone, its key is that of its source
            sorted((n, getattr(v, "cache_key", repr(v))) for n, v in self.constants.items()),
            sorted((name, repr(value)) for name, value in self.options.items()),
        )  # fmt: skip
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def plan_build(kernel: Any, target: Target, call: Call, config: Mapping[str, Constant]) -> Build:
    """A kernel's call with a configuration's constants and options in place of its own.

    Args:
        kernel: The JIT function.
        target: What to compile for.
        call: Arguments, and constants and options that the configuration does not name.
        config: Constants of the kernel and compiler options by name.

    Raises:
        InputError: A name is neither, or a constant has no value.
    """
    known = _options(target)
    constants, options = dict(call.constants), dict(call.options)
    names = {param.name for param in kernel.params}
    for name, value in config.items():
        if name in names:
            constants[name] = constant_of(kernel, value)
        elif name in known:
            options[name] = value
        else:
            raise InputError(
                f"{name!r} must be an argument of {kernel.__name__} ({', '.join(sorted(names))})"
                f" or an option of the compiler such as num_warps, num_stages, maxnreg"
            )
    for param in kernel.params:
        if param.is_constexpr and param.name not in constants:
            if not param.has_default:
                raise InputError(
                    f"constant {param.name} of {kernel.__name__} has no value:"
                    f" give {param.name}=..."
                )
            constants[param.name] = param.default
    arguments = {name: arg for name, arg in call.arguments.items() if name not in constants}
    lacking = names - set(arguments) - set(constants)
    if lacking:
        raise InputError(
            f"argument {', '.join(sorted(lacking))} of {kernel.__name__} has no type: give a"
            " signature or a function that calls the kernel"
        )
    return Build(kernel, target, arguments, constants, options, call)


def prepare(targets: Iterable[Target], *, gluon: bool = False) -> None:
    """Do once what every forked compile would do again: imports, and a hash.

    Triton names the files of its own cache by a hash over all of its libraries, 1 s of work; here
    that cache is an empty folder, so the version will do.

    Args:
        targets: All that will be compiled for.
        gluon: Gluon kernels are among them.
    """
    import triton
    import triton.compiler.code_generator  # 0.1 s with Gluon's language

    if gluon:
        import triton.experimental.gluon._runtime
    from triton.backends.compiler import GPUTarget
    from triton.compiler.compiler import make_backend
    from triton.runtime import cache

    version = f"triton {triton.__version__}"
    if hasattr(cache, "triton_key"):
        cache.triton_key = lambda: version
    for target in set(targets):
        make_backend(GPUTarget(target.backend, target.arch, target.warp_size)).hash()


def compile_build(build: Build) -> KernelResources:
    """Compile and read the binary.

    Raises:
        InputError: Triton does not compile it; the message is Triton's, with the user's line.
    """
    return compile_and_read(build)[1]


def compile_and_read(build: Build) -> tuple[Any, KernelResources]:
    """Triton's compiled kernel, and what its binary takes.

    Raises:
        InputError: Triton does not compile it; the message is Triton's, with the user's line.
    """
    import triton
    from triton import knobs

    knobs.nvidia.dump_ptxas_log = True
    knobs.compilation.always_compile = True
    log = io.StringIO()
    begun = time.perf_counter()
    with contextlib.redirect_stdout(log):
        compiled = compiled_kernel(build)
    seconds = time.perf_counter() - begun
    metadata = compiled.metadata
    if build.target.backend == "cuda":
        read = read_nvidia(
            compiled.asm["cubin"], compiled.asm["ptx"], log.getvalue(), int(build.target.arch)
        )
    else:
        read = read_amd(compiled.asm["amdgcn"])
        # the assembly's own limit stops at 1,024, whatever the launch will ask for
        read["threads"] = metadata.num_warps * build.target.warp_size
    return compiled, KernelResources(
        kernel=build.kernel.__name__,
        target=build.target.name,
        compiler=f"triton {triton.__version__}",
        signature={name: str(argument) for name, argument in build.arguments.items()},
        constants={name: plain(value) for name, value in build.constants.items()},
        options={name: plain(value) for name, value in build.options.items()},
        warp_size=build.target.warp_size,
        dynamic_shared_bytes=metadata.shared,
        compile_s=seconds,
        **read,
    )


def compiled_kernel(build: Build) -> Any:
    """Triton's compiled kernel: its stages, binary and metadata.

    Raises:
        InputError: Triton does not compile it; the message is Triton's, with the user's line.
    """
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler.errors import CompilationError
    from triton.runtime.errors import OutOfResources, PTXASError

    kernel, target = build.kernel, build.target
    try:
        return triton.compile(
            _source(build),
            target=GPUTarget(target.backend, target.arch, target.warp_size),
            options=dict(build.options),
        )
    except CompilationError as error:
        raise InputError(place_of(kernel, error)) from error
    except PTXASError as error:
        raise InputError(not_assembled(kernel, target, str(error))) from error
    except OutOfResources as error:
        raise InputError(str(error)) from error
    except (RuntimeError, ValueError, TypeError, AssertionError) as error:
        words = diagnosed(str(error) or type(error).__name__)
        raise InputError(
            f"{kernel.__name__} does not compile for {target.name}: {words}"
        ) from error


def _source(build: Build) -> Any:
    """What Triton calls a source: the kernel with its types, constants and alignments."""
    kernel = build.kernel
    if kernel.is_gluon():
        from triton.experimental.gluon._runtime import GluonASTSource as Source
    else:
        from triton.compiler import ASTSource as Source
    names = [param.name for param in kernel.params]
    signature = {
        name: _type(build.arguments[name]) if name in build.arguments else "constexpr"
        for name in names
    }
    leaves = [
        leaf
        for position, name in enumerate(names)
        if name in build.arguments
        for leaf in _leaves(build.arguments[name], (position,))
    ]
    constants: dict[tuple[int, ...], Any] = {
        (names.index(name),): value for name, value in build.constants.items()
    }
    constants |= {path: leaf.value for path, leaf in leaves if leaf.type == "constexpr"}
    return Source(
        fn=kernel,
        signature=signature,
        constexprs=constants,
        attrs={path: [["tt.divisibility", DIVISIBLE]] for path, leaf in leaves if leaf.divisible},
    )


def _type(argument: Argument) -> Any:
    """Triton's word for a type, a tuple of them for a tuple."""
    return tuple(map(_type, argument.parts)) if argument.type == "tuple" else argument.type


def _leaves(
    argument: Argument, path: tuple[int, ...]
) -> Iterator[tuple[tuple[int, ...], Argument]]:
    """An argument, or all parts of a tuple, with their places."""
    if argument.type != "tuple":
        yield path, argument
    for position, part in enumerate(argument.parts):
        yield from _leaves(part, (*path, position))


def _options(target: Target) -> frozenset[str]:
    """Names of the compiler's options for a target."""
    from triton.backends.compiler import GPUTarget
    from triton.compiler.compiler import make_backend

    backend = make_backend(GPUTarget(target.backend, target.arch, target.warp_size))
    # given, or Triton 3.9 warns of its next default
    return frozenset(vars(backend.parse_options({"enable_fp_fusion": True})))


def plain(value: Any) -> Constant:
    """A constant that JSON can hold: other things by their repr."""
    value = getattr(value, "value", value)
    return value if isinstance(value, bool | int | float | str | None) else repr(value)
