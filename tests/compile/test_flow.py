"""Loops by control flow, on graphs drawn by hand."""

from __future__ import annotations

from rooftile.compile.flow import find_loops


def spans(jumps, stops, end=100):
    """First and last place of each loop."""
    return [(loop.start, loop.spans[-1][1]) for loop in find_loops(jumps, stops, end)]


def test_a_jump_back_to_where_all_pass_is_a_loop():
    """From 20 to 10, with whatever else is in between."""
    assert spans([(20, 10), (12, 18)], {90}) == [(10, 21)]


def test_code_behind_the_end_that_jumps_back_is_none():
    """12 goes on to 80 where a barrier is waited for, which returns to 13; its own wait is one."""
    assert spans([(12, 80), (82, 80), (84, 13)], {50, 84}) == [(80, 83)]


def test_what_waits_within_a_loop_is_a_part_of_it():
    """The same inside of a loop from 10 to 40: places behind the end belong to it."""
    outer, wait = find_loops([(40, 10), (12, 80), (82, 80), (84, 13)], {50, 84}, 100)
    assert (outer.start, outer.holds(30), outer.holds(84), outer.holds(45)) == (10, True, True,
                                                                                False)  # fmt: skip
    assert wait.start == 80


def test_loops_in_a_loop_are_apart():
    """Two of one, and they come behind it."""
    assert spans([(20, 12), (40, 30), (50, 10)], {90}) == [(10, 51), (12, 21), (30, 41)]


def test_a_loop_entered_in_its_middle():
    """As compilers turn them: 5 jumps to the test at 20, which goes to the body at 10."""
    assert spans([(5, 20), (22, 10)], {5, 90}) == [(10, 23)]


def test_two_ways_back_are_one_loop():
    """``continue`` makes no loop of its own."""
    assert spans([(15, 10), (20, 10)], {90}) == [(10, 21)]


def test_straight_code_has_none():
    """Nor does a trap behind the end count for what is before it."""
    assert spans([(5, 20)], {90, 95}) == []
    assert spans([(95, 95)], {90, 95}) == [(95, 96)]
