"""The Rust host: built by cargo and tested on a bundle, as ``make rust`` does."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

import rooftile
from rooftile.export.crate import crate_files

CARGO = shutil.which("cargo") or shutil.which("cargo", path=os.path.expanduser("~/.cargo/bin"))
needs_cargo = pytest.mark.skipif(CARGO is None, reason="cargo is not installed")


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
    assert tested.stdout.count("test result: ok") == 3


def test_the_crate_needs_the_standard_library_alone(crate):
    """Neither it nor the stand-in has a dependency, so cargo needs no network."""
    for file in ("Cargo.toml", "standin/Cargo.toml"):
        assert "dependencies" not in (crate / file).read_text()


def test_the_package_holds_the_sources_alone():
    """All that is needed, and nothing that cargo has built beside them."""
    files = crate_files()
    assert {"src/lib.rs", "src/main.rs", "tests/host.rs", "standin/src/lib.rs"} <= set(files)
    assert not [name for name in files if "target" in name.split("/")]
