"""Where the data of an audit goes."""

from __future__ import annotations

import estimates
import pytest

from rooftile.errors import InputError
from rooftile.records.io import read_record
from rooftile.report.output import check_destinations, deliver, hand_out_audit

ESTIMATE = estimates.estimate()


def test_files_are_written_and_the_table_printed(tmp_path, capsys):
    """Data to files and stdout, words about it to stderr."""
    json_to, csv_to = tmp_path / "a.json", tmp_path / "a.csv"
    hand_out_audit(ESTIMATE, json_to=str(json_to), csv_to=str(csv_to))
    out, err = capsys.readouterr()
    assert read_record(json_to) == ESTIMATE
    assert csv_to.read_text().startswith("index,op,aten,")
    assert out.startswith("op ")
    assert err == f"wrote {json_to}\nwrote {csv_to}\n"


def test_stdout_has_the_data_alone(capsys):
    """With ``-`` the data takes the place of the table."""
    hand_out_audit(ESTIMATE, csv_to="-", by="op")
    out, err = capsys.readouterr()
    assert out.startswith("group,ops,")
    assert (out.count("\n"), err) == (5, "")


def test_stdout_is_utf8_whatever_the_locale(capfdbinary):
    """A name that the locale cannot print is no error in the data."""
    deliver("é\n".encode(), "-")
    assert capfdbinary.readouterr().out == b"\xc3\xa9\n"


def test_only_one_may_have_stdout():
    """Two kinds of data in one stream are neither."""
    with pytest.raises(InputError, match="--json and --csv"):
        check_destinations(json="-", csv="-")


@pytest.mark.parametrize("name", ["nowhere/a.json", "."])
def test_a_destination_that_cannot_be_is_refused(name, tmp_path):
    """A folder that does not exist, and a folder itself, before anything is computed."""
    with pytest.raises(InputError, match="cannot write"):
        check_destinations(json=None, csv=str(tmp_path / name))


def test_good_destinations_are_let_pass(tmp_path):
    """And nothing is created by asking."""
    check_destinations(json="-", csv=str(tmp_path / "a.csv"))
    assert list(tmp_path.iterdir()) == []
