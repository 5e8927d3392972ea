"""The Rust host: built by cargo and tested on a bundle, as ``make rust`` does."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from export.conftest import KERNELS

import rooftile
from rooftile.export.crate import crate_files

CARGO = shutil.which("cargo") or shutil.which("cargo", path=os.path.expanduser("~/.cargo/bin"))
# rustup's cargo without a chosen toolchain is none
_WORKS = (
    CARGO is not None and not subprocess.run([CARGO, "--version"], capture_output=True).returncode
)
needs_cargo = pytest.mark.skipif(not _WORKS, reason="no cargo that runs is installed")


@pytest.fixture(scope="module")
def crate(tmp_path_factory) -> Path:
    """The crate as a user gets it."""
    out = tmp_path_factory.mktemp("rust") / "host"
    rooftile.write_rust_host(out)
    return out


def cargo(crate: Path, bundle: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run cargo without a network."""
    assert CARGO is not None
    env = {
        **os.environ,
        "PATH": f"{Path(CARGO).parent}{os.pathsep}{os.environ['PATH']}",
        "ROOFTILE_TEST_BUNDLE": str(bundle),
        "CARGO_TARGET_DIR": str(crate / "target"),
    }
    return subprocess.run(
        [CARGO, *arguments, "--offline"], cwd=crate, env=env, capture_output=True, text=True
    )


@needs_cargo
def test_the_host_builds_and_passes_its_tests(crate, bundle):
    """No warning, and every test of the crate with the stand-in driver."""
    built = cargo(crate, bundle, "build", "--workspace")
    assert built.returncode == 0, built.stderr
    assert "warning" not in built.stderr
    tested = cargo(crate, bundle, "test", "--lib", "--bins", "--tests")
    assert tested.returncode == 0, tested.stdout + tested.stderr
    assert tested.stdout.count("test result: ok") == 5


@needs_cargo
def test_the_example_launches_a_kernel_of_ones_own(crate, bundle, tmp_path):
    """``file.py:kernel`` to a launch from Rust: y = x / 2 with the stand-in driver."""
    rooftile.export_bundle(
        f"{KERNELS}:scale", arch=["sm_90"], out=tmp_path / "scale",
        signature="*bf16:16, *bf16:16, i32:16, fp32", constants={"BLOCK": 1024},
        grid="ceil(n / BLOCK)",
    )  # fmt: skip
    built = cargo(crate, bundle, "build", "--workspace", "--all-targets")
    assert built.returncode == 0, built.stderr
    built = crate / "target" / "debug"
    program = [built / "examples" / "scale", tmp_path / "scale", built / "librooftile_standin.so"]
    ran = subprocess.run(program, capture_output=True, text=True)
    assert ran.stdout == "scale_sm90: 0 of 1048576 elements are wrong\n", ran.stderr
    wrong = subprocess.run(
        program, capture_output=True, text=True, env={**os.environ, "STANDIN_WRONG": "1"}
    )
    assert (wrong.returncode, wrong.stderr) == (9, "y must be x / 2\n")


@needs_cargo
def test_a_reader_that_stops_early_ends_it_quietly(crate, bundle):
    """``rooftile-host inspect bundle | head`` is no panic."""
    assert cargo(crate, bundle, "build").returncode == 0
    host = str(crate / "target" / "debug" / "rooftile-host")
    closed, pipe = os.pipe()
    os.close(closed)
    run = subprocess.run([host, "inspect", str(bundle)], stdout=pipe, stderr=subprocess.PIPE)
    os.close(pipe)
    assert (run.returncode, run.stderr) == (-signal.SIGPIPE, b"")


def test_the_crate_needs_the_standard_library_alone(crate):
    """Neither it nor the stand-in has a dependency, so cargo needs no network."""
    for file in ("Cargo.toml", "standin/Cargo.toml"):
        assert "dependencies" not in (crate / file).read_text()


def test_the_package_holds_the_sources_alone():
    """All that is needed, and nothing that cargo has built beside them."""
    files = crate_files()
    assert {"src/lib.rs", "src/main.rs", "tests/program.rs", "standin/src/lib.rs"} <= set(files)
    assert not [name for name in files if "target" in name.split("/")]


needs_cc = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")


def compile_c(source: Path, bundle: Path, out: Path) -> subprocess.CompletedProcess[str]:
    """Compile a program with the bundle's header, warnings being errors."""
    flags = ["-std=gnu99", "-Wall", "-Wextra", "-Werror", "-Wno-unused-function"]
    command = ["cc", *flags, "-I", str(bundle), str(source), "-o", str(out), "-ldl", "-lm"]
    return subprocess.run(command, capture_output=True, text=True)


@needs_cc
@needs_cargo
def test_the_c_example_launches_softmax(crate, bundle, tmp_path):
    """With the stand-in driver: right rows, and an error for a GPU that the bundle has not."""
    program = tmp_path / "example"
    compiled = compile_c(crate / "c" / "example.c", bundle, program)
    assert compiled.returncode == 0, compiled.stderr
    built = cargo(crate, bundle, "build", "--workspace")
    assert built.returncode == 0, built.stderr
    standin = crate / "target" / "debug" / "librooftile_standin.so"
    ran = subprocess.run([program, bundle, standin], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == (
        "softmax_fwd_bf16_n4096_sm90: 64 blocks of 128 threads, row 0 sums to 1.0000\n"
    )
    env = {**os.environ, "STANDIN_CAPABILITY": "120"}
    ran = subprocess.run([program, bundle, standin], capture_output=True, text=True, env=env)
    assert (ran.returncode, ran.stderr) == (5, "the bundle has no softmax for sm_120\n")


@needs_cc
def test_the_header_counts_no_further_than_64_bits(bundle, tmp_path):
    """A product past them stays at their end, where no parameter and no grid takes it."""
    source = tmp_path / "count.c"
    source.write_text("""
#include "bundle.h"
int main(void)
{
    const int64_t large = (int64_t)1 << 40;
    printf("%d %d %d\\n", rooftile_times(large, large) == INT64_MAX,
           rooftile_times(large, 1 << 20) == (int64_t)1 << 60,
           rooftile_times(rooftile_ceil(rooftile_times(large, large), 7), 2) == INT64_MAX);
    printf("%d %d %d\\n", (int)rooftile_ceil(10, 4), (int)rooftile_ceil(8, 4),
           (int)rooftile_times(-3, 5));
    return 0;
}
""")
    compiled = compile_c(source, bundle, tmp_path / "count")
    assert compiled.returncode == 0, compiled.stderr
    ran = subprocess.run([tmp_path / "count"], capture_output=True, text=True)
    assert ran.stdout == "1 1 1\n3 2 -15\n"


@needs_cc
def test_the_header_refuses_what_does_not_fit(bundle, tmp_path):
    """Sizes outside of the range, addresses that are not aligned, numbers of over 32 bits."""
    source = tmp_path / "pack.c"
    source.write_text("""
#include "bundle.h"
int main(void)
{
    const rooftile_kernel *k = &softmax_fwd_bf16_n4096_sm90;
    const int64_t good[] = {4, 4096}, few[] = {4, 1024}, odd[] = {4, 4090};
    const int64_t many[] = {(int64_t)1 << 33, 4096};
    const uint64_t aligned[] = {256, 512}, off[] = {260, 512};
    rooftile_launch launch;
    char why[200];
    if (rooftile_pack(k, good, aligned, 0, 0, &launch, why)) return 1;
    printf("%u %llu %llu\\n", launch.grid[0], (unsigned long long)launch.values[3],
           (unsigned long long)launch.values[4]);
    if (!rooftile_pack(k, few, aligned, 0, 0, &launch, why)) return 2;
    puts(why);
    if (!rooftile_pack(k, odd, aligned, 0, 0, &launch, why)) return 3;
    puts(why);
    if (!rooftile_pack(k, good, off, 0, 0, &launch, why)) return 4;
    puts(why);
    if (!rooftile_pack(k, many, aligned, 0, 0, &launch, why)) return 5;
    puts(why);
    return 0;
}
""")
    compiled = compile_c(source, bundle, tmp_path / "pack")
    assert compiled.returncode == 0, compiled.stderr
    ran = subprocess.run([tmp_path / "pack"], capture_output=True, text=True)
    assert ran.returncode == 0
    said = ran.stdout.splitlines()
    assert said[0] == "4 4096 4096"
    assert "cols must be 2064 to 4096 (0: any) by 16, got 1024" in said[1]
    assert "got 4090" in said[2]
    assert "x_ptr must be a multiple of 16, got 260" in said[3]
    assert "the grid is more than a GPU takes" in said[4]
