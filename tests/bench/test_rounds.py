"""Warm-up and interleaved rounds."""

from __future__ import annotations

from itertools import count

import pytest

from rooftile.bench.rounds import Settings, describe, interleave, warm_up


class PerCall:
    """A clock with a script of its own for each call."""

    def __init__(self, **scripts):
        self.scripts = {name: iter(script) for name, script in scripts.items()}
        self.order = []

    def seconds(self, call):
        name = call()
        self.order.append(name)
        return next(self.scripts[name])


def calls(*names):
    return {name: (lambda name=name: name) for name in names}


def test_every_round_starts_one_further_on():
    """Nobody is always first, so nobody always meets the coldest clocks."""
    clock = PerCall(a=count(1), b=count(10), c=count(100))
    times = interleave(calls("a", "b", "c"), clock, 3, failures={})
    assert "".join(clock.order) == "abc" + "bca" + "cab"
    assert times == {"a": [1, 2, 3], "b": [10, 11, 12], "c": [100, 101, 102]}


def test_a_call_that_raises_is_out_and_the_others_go_on():
    """Its message is kept, its times before the fault too."""

    def failing():
        raise ValueError("no  such\nshape")

    clock = PerCall(a=count(1))
    failures = {}
    times = interleave({"bad": failing, **calls("a")}, clock, 2, failures=failures)
    assert times == {"bad": [], "a": [1, 2]}
    assert failures == {"bad": "ValueError: no such shape"}


def test_no_round_begins_beyond_the_budget():
    """Long calls run seldom, but never less than the least number of rounds."""
    clock = PerCall(a=iter([4.0] * 99))
    few = interleave(calls("a"), clock, 50, failures={}, budget_s=10.0, least_rounds=2)
    assert len(few["a"]) == 3
    least = interleave(calls("a"), clock, 50, failures={}, budget_s=1.0, least_rounds=5)
    assert len(least["a"]) == 5


def test_the_warm_up_lasts_until_the_median_is_stable():
    """ben-02: a kernel that takes 11.23 ms at first and 8.79 ms once the clocks have risen."""
    slow_start = [11.23e-3] * 5 + [9.9e-3] * 5 + [8.8e-3] * 5 + [8.79e-3] * 99
    warmth = warm_up(calls("a"), PerCall(a=iter(slow_start)), Settings(), {})
    assert (warmth.rounds, warmth.settled) == (20, True)


def test_the_first_listed_is_not_punished():
    """ben-02: what the rise of the clocks costs is over before any round counts."""
    rising = [1.3e-3 - 2e-5 * i for i in range(15)]
    clock = PerCall(**{name: iter([*rising, *[1e-3] * 99]) for name in "ab"})
    both = calls("a", "b")
    warm_up(both, clock, Settings(), {})
    times = interleave(both, clock, 4, failures={})
    assert times["a"] == times["b"] == [1e-3] * 4


def test_a_median_that_never_settles_is_said():
    """The row then carries it; the time is not called stable."""
    wild = (1e-3 * (1 + (i // 5) % 2) for i in count())
    warmth = warm_up(calls("a"), PerCall(a=wild), Settings(most_warmup=20), {})
    assert (warmth.rounds, warmth.settled) == (20, False)


def test_one_unsettled_call_keeps_all_warming():
    """The rounds are common, so all must be stable."""
    clock = PerCall(a=iter([1e-3] * 99), b=iter([2e-3] * 5 + [1.5e-3] * 5 + [1e-3] * 99))
    assert warm_up(calls("a", "b"), clock, Settings(), {}).rounds == 20


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("a\n  b"), "ValueError: a b"),
        (KeyError(), "KeyError"),
        (RuntimeError("x" * 500), "RuntimeError: " + "x" * 283 + "..."),
    ],
)
def test_an_error_is_one_line(error, text):
    """Type and message, as far as a table has room."""
    assert describe(error) == text
