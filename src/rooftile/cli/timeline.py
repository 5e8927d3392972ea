"""``rooftile timeline``"""

from __future__ import annotations

import sys
from typing import Annotated

import typer


def timeline(
    traces: Annotated[
        list[str],
        typer.Argument(
            help="What torch.profiler's export_chrome_trace wrote, gzipped or not; one a rank.",
            metavar="TRACE...",
        ),
    ],
    top: Annotated[int, typer.Option(help="Kernels that are named.", metavar="N", min=0)] = 10,
    as_json: Annotated[
        bool, typer.Option("--json", help="Write one JSON record a line instead.")
    ] = False,
) -> None:
    """Say what a GPU did over a measured trace.

    Busy and idle time, compute, communication and how much of it compute hides, copies and fills.
    What runs side by side counts once; waits on a stream are no work.
    """
    from rooftile.api.timeline import timeline as read
    from rooftile.report.columns import write_lines
    from rooftile.report.output import STDOUT, deliver, record_json
    from rooftile.report.timeline import timeline_lines

    found = [one for trace in traces for one in read(trace, top=top)]
    if as_json:
        deliver(b"".join(record_json(record) for record in found), STDOUT)
        return
    for i, record in enumerate(found):
        if i:
            sys.stdout.write("\n")
        write_lines(timeline_lines(record), sys.stdout)
