"""Formulas over sizes: read, and found from what launches did."""

from __future__ import annotations

import pytest

from rooftile.errors import InputError
from rooftile.export.formula import divisors_in, evaluate, factors_of, fit, names_in

SIZES = {"rows": 10, "cols": 100}


@pytest.mark.parametrize(
    ("formula", "value"),
    [
        ("7", 7),
        ("-1", -1),
        ("rows", 10),
        ("rows * cols", 1000),
        ("ceil(rows / 4)", 3),
        ("ceil(rows * cols / 128) * 2", 16),
        ("ceil(rows/10)", 1),
    ],
)
def test_a_formula_has_its_value(formula, value):
    """The same values as the Rust host's own test."""
    assert evaluate(formula, SIZES) == value


@pytest.mark.parametrize(
    "formula",
    [
        "",
        "rows +",
        "heads",
        "ceil(rows / 0)",
        "ceil(rows)",
        "rows rows",
        "* rows",
        "- 1",
        "ceil(rows / -2)",
    ],
)
def test_what_is_no_formula_is_refused(formula):
    """With words that show it."""
    with pytest.raises(InputError, match="formula"):
        evaluate(formula, SIZES)


@pytest.mark.parametrize(
    ("wanted", "divisors"),
    [("rows", ()), ("heads * rows", ()), ("0", ()), ("ceil(rows / 16)", (8, 16)),
     ("ceil(rows / 128) * heads", (64, 128)),
     ("ceil(rows / 2) * ceil(heads / 16)", (2, 16, 64))],
)  # fmt: skip
def test_a_formula_is_found_from_its_values(wanted, divisors):
    """Three launches of different sizes tell it from every simpler one."""
    probes = [{"heads": h, "rows": r} for h, r in ((37, 61), (61, 113), (5, 4099))]
    values = [evaluate(wanted, probe) for probe in probes]
    assert evaluate(fit(values, probes, divisors), {"heads": 7, "rows": 1000}) == evaluate(
        wanted, {"heads": 7, "rows": 1000}
    )


def test_a_formula_of_many_ceils_is_refused():
    """One that goes deeper than any does is an error, not the end of the stack."""
    with pytest.raises(InputError, match="at most 16 ceil"):
        evaluate("ceil(" * 10_000 + "rows" + " / 2)" * 10_000, SIZES)


def test_names_factors_and_divisors_are_read():
    """What header and shapes ask of a formula."""
    formula = "ceil(rows * cols / 128) * heads * 2"
    assert names_in(formula) == ["rows", "cols", "heads"]
    assert divisors_in(formula) == [128]
    assert factors_of(formula) == ["ceil(rows * cols / 128)", "heads", "2"]


def test_values_without_a_formula_have_none():
    """A square is no product of different sizes."""
    assert fit([37 * 37, 61 * 61], [{"rows": 37}, {"rows": 61}], (2,)) is None
