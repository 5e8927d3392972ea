"""What installing Rooftile asks of a machine, and what works on one that lacks things."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PLATFORMS = {
    "mac": {"sys_platform": "darwin", "platform_system": "Darwin", "platform_machine": "arm64"},
    "windows": {"sys_platform": "win32", "platform_system": "Windows", "platform_machine": "AMD64"},
    "linux": {"sys_platform": "linux", "platform_system": "Linux", "platform_machine": "x86_64"},
    "arm": {"sys_platform": "linux", "platform_system": "Linux", "platform_machine": "aarch64"},
}
# Imports of these names fail as if the package were not there
BLOCK = """
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {blocked!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Blocker())
"""


def wanted(requirements: list[str], platform: str) -> set[str]:
    """Names of the packages that pip would install on a platform."""
    environment = {**PLATFORMS[platform], "extra": ""}
    parsed = [Requirement(text) for text in requirements]
    return {r.name for r in parsed if r.marker is None or r.marker.evaluate(environment)}


def without(*blocked: str, code: str) -> subprocess.CompletedProcess[str]:
    """Run code in a Python where some packages cannot be imported and no GPU is visible."""
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "CUDA_VISIBLE_DEVICES": ""}
    whole = BLOCK.format(blocked=set(blocked)) + code
    return subprocess.run([sys.executable, "-c", whole], capture_output=True, text=True, env=env)


@pytest.mark.parametrize("platform", PLATFORMS)
def test_triton_is_asked_for_on_linux_alone(platform):
    """inst-01: no wheel exists elsewhere, and asking for it would make all of it uninstallable."""
    assert "triton" not in wanted(PROJECT["dependencies"], platform)
    extra = wanted(PROJECT["optional-dependencies"]["torch"], platform)
    assert ("triton" in extra) == (platform in ("linux", "arm"))


@pytest.mark.parametrize("platform", PLATFORMS)
def test_the_base_needs_no_torch(platform):
    """inst-01: the base installs and analyses everywhere."""
    base = wanted(PROJECT["dependencies"], platform)
    assert base == {"msgspec", "typer", "rich", "jinja2", "plotly", "pyyaml"}


def test_counting_works_without_torch_and_triton():
    """inst-01, inst-02: roofline and GPUs need neither, nor a GPU's driver."""
    code = (
        "import rooftile\n"
        "point = rooftile.roofline(12288, 32768, peak_tflops=990, bandwidth_gbs=3350)\n"
        "print(point.intensity, point.bound, len(rooftile.gpus()))"
    )
    done = without("torch", "triton", "numpy", code=code)
    assert done.stdout.split() == ["0.375", "memory", "55"], done.stderr


def test_a_missing_torch_is_said_and_how_to_get_it():
    """An audit without torch: one line on stderr, exit code 2, no traceback."""
    target = str(ROOT / "examples" / "gpt.py:gpt2_small")
    code = f"from rooftile.cli import run\nsys.exit(run(['audit', {target!r}]))"
    done = without("torch", "triton", code=code)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("error: ")
    assert "pip install 'rooftile[torch]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_import_and_capture_touch_no_device():
    """inst-02: importing all that an audit needs does not ask for a GPU's driver."""
    code = (
        "import rooftile, rooftile.capture.target, torch\n"
        "assert not torch.cuda.is_initialized()\nprint('imported')"
    )
    done = without("triton", code=code)
    assert done.stdout == "imported\n", done.stderr


PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/*.md")])
SOURCES = sorted([*ROOT.glob("src/**/*.py"), *ROOT.glob("benchmarks/*.py")])


def installs(text: str) -> list[str]:
    """What a text says to install."""
    return re.findall(r"""\binstall (?:-\S+ )*['"]?([\w.]*(?:\[[\w,]+\])?)['"]?""", text)


def test_pages_install_from_the_clone():
    """Rooftile is on no index: ``rooftile[hf]`` on a page would find nothing, ``.[hf]`` does."""
    found = {page.name: names for page in PAGES if (names := pip_lines(page))}
    assert {"README.md", "export.md"} <= set(found)
    for page, names in found.items():
        for name in names:
            extra = re.fullmatch(r"\.\[(\w+)\]", name)
            assert extra, f"{page}: {name}"
            assert extra[1] in PROJECT["optional-dependencies"], f"{page}: {name}"


def pip_lines(page: Path) -> list[str]:
    """What the lines of a page with ``pip install`` install."""
    lines = [line for line in page.read_text().splitlines() if "pip install" in line]
    return [name for line in lines for name in installs(line.split("pip ")[1])]


def test_messages_name_extras_that_exist():
    """pip takes ``rooftile[torch]`` from the copy that is installed, which is the one that asks."""
    text = "".join(source.read_text() for source in SOURCES)
    extras = re.findall(r"'rooftile\[(\w+)\]'", text)
    assert {"torch", "hf", "plot"} <= set(extras)
    assert set(extras) <= set(PROJECT["optional-dependencies"])


def test_an_install_line_is_found():
    """The two tests above can fail."""
    assert installs("install 'rooftile[hf]'") == ["rooftile[hf]"]
    assert installs("install -e .[hf]") == [".[hf]"]


def test_readme_audits_a_config_with_what_it_installs():
    """A config.json needs transformers, which the extra ``hf`` brings."""
    shown = (ROOT / "README.md").read_text().split("```console\n")[1].split("```")[0]
    first, second = shown.splitlines()
    assert first == "$ pip install '.[hf]'"
    assert "config.json" in second
    assert "transformers" in wanted(PROJECT["optional-dependencies"]["hf"], "linux")
