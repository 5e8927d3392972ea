"""``rooftile gpus``"""

from __future__ import annotations

import sys

from rooftile.cli import options


def gpus(name: options.GpuName = None, as_json: options.AsJson = False) -> None:
    """List the known GPUs, or show one.

    One GPU is shown with the source of every figure and its memory hierarchy.
    With --json, one GPU a line.
    """
    from rooftile.api.gpus import gpu as known
    from rooftile.api.gpus import gpus as all_known
    from rooftile.report.columns import width_of, write_lines
    from rooftile.report.gpus import gpu_lines, list_lines
    from rooftile.report.output import STDOUT, deliver, record_json

    devices = all_known() if name is None else (known(name),)
    if as_json:
        deliver(b"".join(record_json(device) for device in devices), STDOUT)
        return
    width = width_of(sys.stdout)
    lines = list_lines(devices, width) if name is None else gpu_lines(devices[0], width)
    write_lines(lines, sys.stdout)
