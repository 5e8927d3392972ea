"""``rooftile occupancy``"""

from __future__ import annotations

import re
import sys
from contextlib import suppress
from typing import Annotated

import typer

from rooftile.errors import InputError

Constant = bool | int | float | str | None  # a value of a kernel's constant

Kernel = Annotated[
    str | None,
    typer.Argument(
        help="A Triton or Gluon kernel to compile: file.py:name or package.module:name. "
        "Without one, --threads and --regs say what it takes.",
        metavar="KERNEL",
    ),
]
Arch = Annotated[
    list[str] | None,
    typer.Option(help="sm_80 ... sm_121, gfx90a ... gfx1100; may be repeated.", metavar="NAME"),
]
Sweep = Annotated[
    list[str] | None,
    typer.Option(
        help="Values of a constant or compiler option to try: BLOCK=256,4096; may be repeated.",
        metavar="NAME=V,V",
    ),
]
Const = Annotated[
    list[str] | None,
    typer.Option(help="A constant or compiler option that stays: BLOCK=1024.", metavar="NAME=V"),
]
Signature = Annotated[
    str | None,
    typer.Option(
        help="Types of the run-time arguments: '*bf16:16, *bf16:16, i32'. :16 says divisible.",
        metavar="TYPES",
    ),
]
Call = Annotated[
    str,
    typer.Option(
        help="A function beside the kernel that launches it: the types are taken from there.",
        metavar="NAME",
    ),
]
FeedingGpu = Annotated[
    str | None,
    typer.Option(
        help="Whose bandwidth sets the bytes in flight that are needed.", metavar="NAME|FILE"
    ),
]
Floor = Annotated[
    float | None,
    typer.Option(
        help="Least occupancy of the pick; 50, or 0 for a kernel with tensor-core instructions.",
        metavar="PERCENT",
    ),
]
Threads = Annotated[int | None, typer.Option(help="Threads of a block.", metavar="N")]
Regs = Annotated[int, typer.Option(help="Registers of a thread.", metavar="N")]
Smem = Annotated[int, typer.Option(help="Shared memory of a block in bytes.", metavar="BYTES")]
Simple = Annotated[
    bool, typer.Option("--simple", help="The textbook's formula, and what it leaves out.")
]
NoCache = Annotated[
    bool, typer.Option("--no-cache", help="Compile again, whatever the cache holds.")
]
Html = Annotated[
    str | None, typer.Option(help="Write the sweep as a page with a chart.", metavar="FILE")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, one record a line.")]


def occupancy(
    kernel: Kernel = None,
    arch: Arch = None,
    sweep: Sweep = None,
    const: Const = None,
    signature: Signature = None,
    call: Call = "example",
    gpu: FeedingGpu = None,
    floor: Floor = None,
    threads: Threads = None,
    regs: Regs = 0,
    smem: Smem = 0,
    simple: Simple = False,
    no_cache: NoCache = False,
    html: Html = None,
    as_json: AsJson = False,
) -> None:
    """Say how many blocks are resident and which tile to take.

    With a kernel: compiles it for each architecture without a GPU, reads registers, spills, shared
    memory and loads out of the binary, and picks the largest tile that keeps the occupancy, does
    not spill and loads 16 bytes at once. Without: the hardware's rules on numbers of your own.
    """
    from rooftile.report.output import check_destinations, source_of

    check_destinations((source_of(kernel), gpu), html=html)
    if kernel is None:
        if sweep or const or signature or html:
            raise InputError("kernel must be given for --sweep, --const, --signature and --html")
        _numbers(arch or ["sm_90"], threads, regs, smem, simple, as_json)
        return
    if threads is not None or regs or smem or simple:
        raise InputError("--threads, --regs, --smem and --simple do without a kernel")
    _kernel(
        kernel, arch or ["sm_90"], sweep or [], const or [], signature, call, gpu, floor,
        not no_cache, html, as_json,
    )  # fmt: skip


def _numbers(
    arch: list[str], threads: int | None, regs: int, smem: int, simple: bool, as_json: bool
) -> None:
    """Occupancy of what the user says."""
    from rooftile.api.occupancy import occupancy as reckon
    from rooftile.api.occupancy import simple_occupancy
    from rooftile.report.columns import write_lines
    from rooftile.report.occupancy import occupancy_lines, simple_lines
    from rooftile.report.output import STDOUT, deliver, record_json

    if threads is None:
        raise InputError("--threads must be given, or a kernel: the threads of a block, 1 to 1024")
    for i, target in enumerate(arch):
        exact = None if simple else reckon(
            target=target, threads=threads, registers=regs, shared_bytes=smem
        )  # fmt: skip
        plain = (
            simple_occupancy(target=target, threads=threads, registers=regs, shared_bytes=smem)
            if simple
            else None
        )
        if as_json:
            record = exact or plain
            assert record is not None
            deliver(record_json(record), STDOUT)
            continue
        if i:
            sys.stdout.write("\n")
        lines = occupancy_lines(exact) if exact else []
        write_lines(simple_lines(plain) if plain else lines, sys.stdout)


def _kernel(
    kernel: str, arch: list[str], sweep: list[str], const: list[str], signature: str | None,
    call: str, gpu: str | None, floor: float | None, cache: bool, html: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Occupancy of what the compiler says."""
    from rooftile.api.occupancy import sweep_kernel
    from rooftile.cli.progress import stages
    from rooftile.report.columns import width_of, write_lines
    from rooftile.report.occupancy import sweep_lines
    from rooftile.report.occupancy_html import sweep_page
    from rooftile.report.output import STDOUT, deliver, record_json

    if floor is not None and not 0 <= floor <= 100:
        raise InputError(f"--floor must be 0 to 100 percent, got {floor:g}")
    values, constants = settings(sweep, const)
    with stages() as progress:
        sweeps = sweep_kernel(
            kernel,
            arch,
            values=values,
            constants=constants,
            signature=signature,
            call=call,
            gpu=gpu,
            floor=None if floor is None else floor / 100,
            cache=cache,
            progress=progress,
        )
    rows = [row for result in sweeps for row in result.rows]
    why = {row.error for row in rows if row.resources is None}
    none = all(row.resources is None for row in rows)
    if none and len(why) == 1:
        raise InputError(why.pop())
    if html is not None:
        deliver(sweep_page(sweeps).encode(), html)
        print(f"wrote {html}", file=sys.stderr)
    if as_json:
        deliver(b"".join(record_json(result) for result in sweeps), STDOUT)
    elif html != STDOUT:
        write_lines(sweep_lines(sweeps, width_of(sys.stdout)), sys.stdout)
    if none:
        raise InputError(f"none of the {len(rows)} configurations compiles")


def settings(
    sweep: list[str], const: list[str]
) -> tuple[dict[str, list[Constant]], dict[str, Constant]]:
    """What is tried and what stays, by name; each once."""
    values: dict[str, list[Constant]] = {}
    constants: dict[str, Constant] = {}
    for text in (*sweep, *const):
        name, words = pair(text)
        if name in values or name in constants:
            raise InputError(f"{name} must be given once by --sweep or --const, got it again")
        if len(values) < len(sweep):
            values[name] = list(dict.fromkeys(values_of(words)))
        elif len(values_of(words)) > 1:
            raise InputError(f"--const must be NAME=VALUE, got {text!r}: --sweep tries several")
        else:
            constants[name] = values_of(words)[0]
    return values, constants


def pair(text: str) -> tuple[str, str]:
    """``NAME=VALUES`` apart."""
    name, equals, values = text.partition("=")
    if not name or not equals or not values:
        raise InputError(f"--sweep and --const must be NAME=VALUE, got {text!r}")
    return name, values


def values_of(text: str) -> list[Constant]:
    """Values between commas outside of brackets: numbers, True, False, None, else text."""
    words: dict[str, bool | None] = {"True": True, "False": False, "None": None}
    parts = re.split(r",(?![^()]*\))", text)
    return [words[word] if word in words else _number(word) for word in parts]


def _number(word: str) -> int | float | str:
    """A number if it is one."""
    for kind in (int, float):
        with suppress(ValueError):
            return kind(word)
    return word
