"""The smaller commands, and what holds for all of them."""

from __future__ import annotations

import json

import jsonschema
import pytest
import typer.main

from rooftile import __version__
from rooftile.cli.app import app
from rooftile.records.device import Device
from rooftile.records.io import from_json
from rooftile.records.roofline import Roofline

COMMANDS = typer.main.get_command(app).commands


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(name, cli):
    """One line in the list that is not cut off, and a help of every option."""
    listed = cli("--help").out
    line = next(line for line in listed.splitlines() if line.split()[:1] == [name])
    assert line.endswith(".")
    assert "..." not in line
    for parameter in COMMANDS[name].params:
        assert parameter.help, f"{name} {parameter.name}"


def test_version(cli):
    """The package's own."""
    assert cli("--version").out == f"rooftile {__version__}\n"


def test_no_command_shows_the_help(cli):
    """Usage is an error: exit code 2."""
    result = cli()
    assert result.code == 2
    assert "audit" in result.out + result.err


@pytest.mark.parametrize("args", [["bogus"], ["audit", "--bogus"], ["roofline", "--flops", "1"]])
def test_wrong_usage_is_exit_code_2(args, cli):
    """An unknown command or option, a missing one: on stderr."""
    result = cli(*args)
    assert (result.code, result.out) == (2, "")
    assert result.err


def test_roofline_of_the_lesson(cli):
    """A softmax row of 4096 floats on 990 TFLOP/s and 3,350 GB/s."""
    result = cli(
        "roofline",
        "--flops",
        12288,
        "--bytes",
        32768,
        "--peak-tflops",
        990,
        "--bandwidth-gbs",
        3350,
    )
    words = dict(line.split(maxsplit=1) for line in result.out.splitlines())
    assert (result.code, result.err) == (0, "")
    assert words["intensity"] == "0.375 FLOP/byte"
    assert words["ridge"] == "295.5 FLOP/byte"
    assert words["attainable"] == "1.256 TFLOP/s, 0.13 % of the peak"
    assert words["bound"].startswith("memory")


def test_roofline_of_a_matmul(cli):
    """4096 cubed in fp32, each matrix moved once: 682.7 FLOP/byte, all of the peak."""
    result = cli(
        "roofline", "--flops", 2 * 4096**3, "--bytes", 3 * 4096**2 * 4,
        "--peak-tflops", 990, "--bandwidth-gbs", 3350, "--json",
    )  # fmt: skip
    point = from_json(result.out.encode(), Roofline)
    assert point.intensity == pytest.approx(682.6667, rel=1e-6)
    assert (point.bound, point.fraction_of_peak) == ("compute", 1.0)


def test_roofline_reads_prefixes_and_sets_a_time_against_it(cli):
    """roof-01: 480 TFLOP/s on an H100 are 48.5 % of its dense bf16 peak, not 24.3 %."""
    result = cli(
        "roofline", "--flops", "480 GFLOP", "--bytes", "1 MiB", "--gpu", "h100-sxm",
        "--dtype", "bf16", "--time-us", 1000,
    )  # fmt: skip
    assert "480 TFLOP/s, 48.5 % of the peak" in result.out


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--flops", "x", "--bytes", "1", "--gpu", "h100-sxm", "--dtype", "bf16"], "flops must be"),
        (["--flops", "1", "--bytes", "-1", "--gpu", "h100-sxm", "--dtype", "bf16"], "bytes must"),
        (["--flops", "1", "--bytes", "1"], "gpu must be given"),
        (["--flops", "1", "--bytes", "1", "--gpu", "h100-sxm"], "dtype must be given"),
        (["--flops", "1", "--bytes", "1", "--gpu", "z100", "--dtype", "bf16"], "z100"),
        (["--flops", "1", "--bytes", "1", "--gpu", "t4", "--dtype", "bf16"], "bf16"),
    ],
)
def test_a_wrong_roofline_is_refused(options, words, cli):
    """Exit code 2 and one line on stderr."""
    result = cli("roofline", *options)
    assert (result.code, result.out) == (2, "")
    assert words in result.err


def test_gpus_lists_all_of_them(cli):
    """55 lines below the header."""
    result = cli("gpus")
    assert result.out.count("\n") == 56
    assert "h100-sxm " in result.out


@pytest.mark.parametrize("name", ["h100-sxm", "NVIDIA H100 80GB HBM3", "H100-SXM"])
def test_gpus_shows_one_with_its_sources(name, cli):
    """By id or by its driver's name: figures, memory hierarchy, confidence."""
    out = cli("gpus", name).out
    assert out.startswith("id ")
    for words in ("h100-sxm", "peak bf16, dense", "989.4 TFLOP/s", "registers", "shared memory",
                  "L2", "HBM", "confidence"):  # fmt: skip
        assert words in out


def test_gpus_json_is_one_record_a_line(cli, tmp_path):
    """And such a record is a GPU that --gpu takes."""
    lines = cli("gpus", "--json").out.splitlines()
    assert len(lines) == 55
    devices = [from_json(line.encode(), Device) for line in lines]
    path = tmp_path / "mine.json"
    path.write_text(lines[0])
    assert from_json(cli("gpus", path, "--json").out.encode(), Device) == devices[0]


def test_an_unknown_gpu_lists_near_ones(cli):
    """Exit code 2."""
    result = cli("gpus", "h300")
    assert (result.code, result.out) == (2, "")
    assert "h200-sxm" in result.err


@pytest.mark.parametrize("record", ["estimate", "graph", "device", "roofline"])
def test_schema_prints_a_json_schema(record, cli):
    """A valid one, which names the record's kind."""
    schema = json.loads(cli("schema", record).out)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert f"rooftile.{record}" in json.dumps(schema)


def test_schema_describes_what_is_printed(cli):
    """The JSON of a GPU satisfies it."""
    schema = json.loads(cli("schema", "device").out)
    jsonschema.validate(json.loads(cli("gpus", "mi300x", "--json").out), schema)


def test_an_unknown_schema_is_refused(cli):
    """With the names there are."""
    result = cli("schema", "nothing")
    assert result.code == 2
    assert "estimate, graph, device, roofline" in result.err
