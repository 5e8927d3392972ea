"""``rooftile roofline``"""

from __future__ import annotations

import sys

from rooftile.cli import options


def roofline(
    flops: options.Flops,
    bytes_: options.Bytes,
    gpu: options.Gpu = None,
    dtype: options.DType = None,
    peak_tflops: options.PeakTflops = None,
    bandwidth_gbs: options.BandwidthGbs = None,
    vector: options.Vector = False,
    time_us: options.TimeUs = None,
    as_json: options.AsJson = False,
) -> None:
    """Place FLOP and bytes under a GPU's roofline.

    Prints intensity, ridge, attainable FLOP/s, bound and least time.
    """
    from rooftile.api.roofline import roofline as place
    from rooftile.report.columns import write_lines
    from rooftile.report.output import STDOUT, deliver, record_json
    from rooftile.report.roofline import roofline_lines

    point = place(
        flops,
        bytes_,
        gpu=gpu,
        dtype=dtype,
        peak_tflops=peak_tflops,
        bandwidth_gbs=bandwidth_gbs,
        vector=vector,
        time_s=None if time_us is None else time_us * 1e-6,
    )
    if as_json:
        deliver(record_json(point), STDOUT)
    else:
        write_lines(roofline_lines(point), sys.stdout)
