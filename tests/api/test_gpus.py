"""The public functions about GPUs, as a user meets them."""

from __future__ import annotations

import importlib
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import rooftile
from rooftile.errors import FileFormatError, UnknownDeviceError
from rooftile.records.io import write_record


def test_gpus_lists_all() -> None:
    """All 55 GPUs, each under its id."""
    known = rooftile.gpus()
    assert len(known) == 55
    assert all(rooftile.gpu(gpu.id) is gpu for gpu in known)


def test_gpu_by_driver_name_and_file(tmp_path: Path) -> None:
    """A driver's name, a file of figures and a written record all lead to a GPU."""
    assert rooftile.gpu("NVIDIA H100 PCIe").id == "h100-pcie"
    figures = tmp_path / "mine.json"
    figures.write_text('{"name": "mine", "peaks_tflops": {"bf16": 1}, "bandwidth_gbs": 2}')
    assert rooftile.gpu(figures).bandwidth.value == 2e9
    record = tmp_path / "record.json"
    write_record(record, rooftile.gpu("l4"))
    assert rooftile.gpu(str(record)) == rooftile.gpu("l4")


def test_gpu_that_is_not_there(tmp_path: Path) -> None:
    """A wrong name lists near ones, a truncated file is named."""
    with pytest.raises(UnknownDeviceError, match="h100-sxm, h100-pcie, h100-nvl"):
        rooftile.gpu("H100")
    truncated = tmp_path / "mine.json"
    truncated.write_text('{"name": "mi')
    with pytest.raises(FileFormatError, match=r"mine\.json"):
        rooftile.gpu(truncated)


@pytest.mark.parametrize("name", ["gpu", "gpus", "roofline"])
def test_public_functions_are_not_shadowed(name: str) -> None:
    """Importing every module called roofline leaves rooftile.roofline a function."""
    for module in ("api.roofline", "api.gpus", "cost.roofline", "records.roofline"):
        importlib.import_module(f"rooftile.{module}")
    assert inspect.isfunction(getattr(rooftile, name))


def test_gpus_need_the_standard_library_only() -> None:
    """Looking up GPUs, limits and dtypes loads neither torch nor numpy nor msgspec."""
    code = (
        "import sys, rooftile.spec.devices as d, rooftile.spec.dtypes, rooftile.spec.custom,"
        " rooftile.spec.limits, rooftile.cost.roofline as r;"
        "r.roofline(1, 1, d.device('h100-sxm'), 'bf16');"
        "print([m for m in ('torch', 'numpy', 'msgspec', 'typer', 'rich') if m in sys.modules])"
    )
    source = Path(rooftile.__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": str(source)},
    )
    assert done.stdout.strip() == "[]"
