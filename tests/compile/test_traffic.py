"""``rooftile traffic``: binary against formula, from the prompt and from Python."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from compile.conftest import KERNELS, SOFTMAX

import rooftile
from rooftile.errors import InputError
from rooftile.records.io import from_json
from rooftile.records.resources import Traffic

EXAMPLES = Path(__file__).parents[2] / "examples"
ROW = 4096 * 2  # bytes of a row


def test_the_grid_is_that_of_the_call(cli):
    """The example launches 4096 rows of 4096: 32 MiB in and out, once each, on both vendors."""
    done = cli("traffic", EXAMPLES / "softmax_kernel.py:softmax_kernel", "--arch", "sm_90",
               "--arch", "gfx942", "--bytes", 2 * 4096 * ROW, "--json")  # fmt: skip
    assert done.code == 0, done.err
    found = [from_json(line.encode(), Traffic) for line in done.out.splitlines()]
    assert [record.target for record in found] == ["sm_90", "gfx942"]
    for record in found:
        assert (record.blocks, record.loaded_bytes, record.stored_bytes) == (
            4096, 4096 * ROW, 4096 * ROW
        )  # fmt: skip
        assert (record.ratio, record.flags, record.widths) == (1.0, (), (16, 16))


def test_a_row_read_twice_by_two_bytes_is_flagged(cli):
    """Loads of two loops of 4 rounds, 2 bytes at a time since rows begin anywhere."""
    kernel = EXAMPLES / "two_pass_softmax.py:two_pass_kernel"
    done = cli("traffic", kernel, "--bytes", 2 * 4096 * ROW, "--trips", "1=4", "--trips", "2=4")
    assert done.code == 0, done.err
    assert "loads    67.11 MB, at most 2 B of a thread at once" in done.out
    assert "ratio    1.50 of the formula's bytes" in done.out
    assert "look at  moves 1.50 times the formula's bytes" in done.out
    assert "look at  2-byte loads" in done.out
    assert "look at  2-byte stores" in done.out


def test_loops_without_trips_are_per_iteration(cli):
    """What one iteration of all blocks moves, and no ratio."""
    kernel = EXAMPLES / "two_pass_softmax.py:two_pass_kernel"
    done = cli("traffic", kernel, "--bytes", 2 * 4096 * ROW)
    assert "loop 1   8.389 MB loaded and 0 B stored an iteration, in no total" in done.out
    assert "loop 2   8.389 MB loaded and 8.389 MB stored an iteration" in done.out
    assert "ratio    not known" in done.out


def test_a_case_launches_the_kernel_and_says_what_must_move(cli):
    """65,536 rows of 4,096 bf16: 512 MiB in and as many out, by the case's own formula."""
    done = cli("traffic", EXAMPLES / "bench_case.py:_softmax_kernel", "--case", "CASE",
               "--shape", "65536x4096", "--json")  # fmt: skip
    assert done.code == 0, done.err
    found = from_json(done.out.encode(), Traffic)
    assert (found.blocks, found.formula_bytes, found.ratio) == (65536, 2 * 65536 * ROW, 1.0)


def test_a_grid_by_a_function_follows_the_constants(tmp_path):
    """A lambda of the launch gets the constants that are asked for, not those of the call."""
    path = tmp_path / "gridded.py"
    path.write_text(
        "import torch, triton, triton.language as tl\n"
        "@triton.jit\ndef kernel(x_ptr, n, BLOCK: tl.constexpr):\n"
        "    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\n"
        "    tl.store(x_ptr + offs, offs, mask=offs < n)\n"
        "def example():\n"
        "    x = torch.empty(1 << 16, dtype=torch.int32)\n"
        "    kernel[lambda meta: (triton.cdiv(meta['n'], meta['BLOCK']),)](x, 1 << 16, BLOCK=512)\n"
    )
    for block in (512, 2048):
        (found,) = rooftile.traffic(f"{path}:kernel", constants={"BLOCK": block})
        assert (found.blocks, found.stored_bytes) == ((1 << 16) // block, 4 << 16)


def test_a_cluster_s_blocks_are_counted_one_by_one():
    """num_ctas=2 splits a tile over two blocks: the bytes stay, the blocks double."""
    shared = {"signature": SOFTMAX, "grid": (64, 2)}
    constants = {"BLOCK": 4096, "num_warps": 4}
    (one,) = rooftile.traffic(f"{KERNELS}:softmax_kernel", constants=constants, **shared)
    (two,) = rooftile.traffic(
        f"{KERNELS}:softmax_kernel", constants={**constants, "num_ctas": 2}, **shared
    )
    assert (one.blocks, two.blocks) == (128, 256)
    assert one.loaded_bytes == two.loaded_bytes == 128 * ROW


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"signature": SOFTMAX, "constants": {"BLOCK": 64}}, "grid must be given"),
        ({"case": "CASE", "signature": SOFTMAX}, "case and signature exclude each other"),
        ({"shape": (4, 4)}, "shape is a case's"),
        ({"case": "example", "shape": (4, 4)}, "case must be a Case of kernels, example is func"),
        ({"case": "absent", "shape": (4, 4)}, "absent is nothing"),
        ({"trips": {1: 2}}, "trips must give a loop of 1 to 0"),
        ({"formula_bytes": 0}, "formula_bytes must be above 0, got 0"),
    ],
)
def test_what_is_no_launch_is_refused(options, message):
    """By the argument's name."""
    with pytest.raises(InputError, match=message):
        rooftile.traffic(f"{KERNELS}:softmax_kernel", **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--grid", "4x"), "--grid must be whole numbers above 0 parted by x, got '4x'"),
        (("--grid", "0"), "--grid must be whole numbers above 0"),
        (("--trips", "1"), "--trips must be LOOP=N, both whole numbers, got '1'"),
        (("--case", "CASE"), "--shape must be given for --case CASE"),
    ],
)
def test_wrong_options(cli, options, message):
    """One line, exit code 2, before anything is compiled."""
    done = cli("traffic", f"{KERNELS}:softmax_kernel", *options)
    assert (done.code, done.out) == (2, "")
    assert message in done.err


def test_a_case_s_file_is_asked_but_once(tmp_path, monkeypatch):
    """The second time grid and formula come from the cache with the binary's numbers."""
    from rooftile.compile import run as client

    shutil.copy(EXAMPLES / "bench_case.py", tmp_path)
    kernel = f"{tmp_path / 'bench_case.py'}:_softmax_kernel"
    first = rooftile.traffic(kernel, case="CASE", shape=(32768, 8192))
    monkeypatch.setattr(client, "_answers", lambda request: pytest.fail("a server was started"))
    assert rooftile.traffic(kernel, case="CASE", shape=(32768, 8192)) == first
