"""Arguments and options, each with its help. A command names those it has."""

from __future__ import annotations

from typing import Annotated

import typer

Target = Annotated[
    str,
    typer.Argument(
        help="file.py:callable or package.module:callable (returns model and example inputs), "
        "a .pt2 file, or a transformers config.json.",
        metavar="TARGET",
    ),
]
Gpu = Annotated[
    str | None,
    typer.Option(
        help="A GPU of `rooftile gpus`, or a JSON file of one's own.", metavar="NAME|FILE"
    ),
]
Gpus = Annotated[
    str | None,
    typer.Option(
        help="A GPU of `rooftile gpus`, or a JSON file of one's own. Several, parted by commas: "
        "where the verdict flips.",
        metavar="NAME|FILE[,...]",
    ),
]
Mode = Annotated[
    str, typer.Option(help="A forward, or a whole training step.", metavar="infer|train")
]
DType = Annotated[str | None, typer.Option(help="bf16, fp16, fp32, tf32, fp8, ...", metavar="NAME")]
WeightDType = Annotated[
    str | None, typer.Option("--dtype", help="bf16, fp16, fp32 or fp64.", metavar="NAME")
]
Batch = Annotated[int | None, typer.Option(help="Batch size.", metavar="N")]
Seq = Annotated[int | None, typer.Option(help="Tokens in a sequence.", metavar="N")]
Optimizer = Annotated[
    str, typer.Option(help="Whose update ends a training step.", metavar="none|sgd|adamw")
]
PeakTflops = Annotated[
    float | None,
    typer.Option(help="Dense peak in TFLOP/s instead of the GPU's own.", metavar="N"),
]
BandwidthGbs = Annotated[
    float | None,
    typer.Option(help="Memory bandwidth in GB/s (1e9) instead of the GPU's own.", metavar="N"),
]
Top = Annotated[
    int | None, typer.Option(help="Only the N rows with the longest least time.", metavar="N")
]
By = Annotated[str | None, typer.Option(help="One row a group of ops.", metavar="op|module|line")]
JsonTo = Annotated[
    str | None, typer.Option("--json", help="Write the estimate as JSON.", metavar="FILE|-")
]
CsvTo = Annotated[
    str | None, typer.Option("--csv", help="Write the table as CSV.", metavar="FILE|-")
]
PlanTo = Annotated[
    str | None,
    typer.Option("--plan", help="Write groups and verdicts as JSON.", metavar="FILE|-"),
]
Hot = Annotated[
    float, typer.Option(help="Share of the step from which an op is hot.", metavar="SHARE")
]
CheckInductor = Annotated[
    bool,
    typer.Option("--check-inductor", help="Ask torch.compile where it differs (a minute)."),
]
HtmlTo = Annotated[
    str | None, typer.Option("--html", help="Write a report for a browser.", metavar="FILE|-")
]
TraceTo = Annotated[
    str | None,
    typer.Option("--trace", help="Write the predicted timeline for Perfetto.", metavar="FILE|-"),
]
SarifTo = Annotated[
    str | None,
    typer.Option("--sarif", help="Write findings on your lines as SARIF.", metavar="FILE|-"),
]
RecordFile = Annotated[str, typer.Argument(help="A JSON file that an audit wrote.", metavar="FILE")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Flops = Annotated[str, typer.Option(help="The work: 12288, 1.5e9, '137 GFLOP'.", metavar="N")]
Bytes = Annotated[
    str, typer.Option("--bytes", help="What moves: 32768, 3.2G, '192 MiB'.", metavar="N")
]
Vector = Annotated[
    bool, typer.Option("--vector", help="Pointwise work or a reduction, no matrix product.")
]
TimeUs = Annotated[
    float | None, typer.Option(help="A measured time in us to set against it.", metavar="N")
]
GpuName = Annotated[
    str | None,
    typer.Argument(help="One GPU: its id, its driver's name, or a JSON file.", metavar="NAME"),
]
Record = Annotated[
    str, typer.Argument(help="estimate, graph, device or roofline.", metavar="RECORD")
]
