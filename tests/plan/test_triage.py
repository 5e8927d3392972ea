"""The decision table: total, named, and right where the answer is known."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import get_args

import pytest

from rooftile.errors import InputError
from rooftile.plan.triage import RULES, Case, cases, triage, why_not
from rooftile.records.plan import Action

ACTIONS = set(get_args(Action))
ALL = list(cases())

# bound, library, compiler, hot, expressible -> the rule's name: every one of the 80
EXPECTED = {
    "free": "free",
    "hot": {
        "compute": {
            (True, True): "compute, in a library",
            (True, False): "compute, in a library",
            (False, True): "compute, fused",
            (False, False): ("compute, covered by nothing", "compute, no tiles"),
        },
        "memory": {
            (True, True): "memory, fused",
            (True, False): "memory, in a library",
            (False, True): "memory, fused",
            (False, False): ("memory, covered by nothing", "memory, nothing to save"),
        },
        "launch": {
            (True, True): "launch, fused",
            (True, False): "launch, in a library",
            (False, True): "launch, fused",
            (False, False): ("launch, covered by nothing", "launch, nothing to save"),
        },
        "unpriced": {
            (True, True): "hot, unpriced, in a library",
            (True, False): "hot, unpriced, in a library",
            (False, True): "hot, unpriced, fused",
            (False, False): ("hot, unpriced", "hot, unpriced"),
        },
    },
    "cold": {
        (True, True): "cold, in a library",
        (True, False): "cold, in a library",
        (False, True): "cold, fused for nothing",
        (False, False): "cold",
    },
}


def expected(case: Case) -> str:
    """The rule of a case, read off the table above."""
    if case.bound == "free":
        return EXPECTED["free"]
    if not case.hot:
        return EXPECTED["cold"][case.library, case.compiler]
    found = EXPECTED["hot"][case.bound][case.library, case.compiler]
    return found if isinstance(found, str) else found[0 if case.expressible else 1]


def test_every_combination_is_a_case():
    """Five bounds, four yes-or-no questions."""
    assert len(ALL) == len(set(ALL)) == 5 * 2**4


@pytest.mark.parametrize("case", ALL, ids=str)
def test_every_case_has_its_rule(case):
    """Its name, a sentence, and why not each of the other three actions."""
    rule = triage(case)
    assert rule.name == expected(case)
    assert re.fullmatch(r"[A-Z].*\.", rule.reason)
    assert set(why_not(case)) == ACTIONS - {rule.action}
    assert all(why_not(case).values())


def test_every_rule_is_used_and_has_its_own_name():
    """No row of the table is out of reach, no two are called the same."""
    assert {triage(case) for case in ALL} == set(RULES)
    assert len({rule.name for rule in RULES}) == len(RULES)


@pytest.mark.parametrize(
    ("case", "action"),
    [
        (Case("compute", True, False, True, True), "USE LIBRARY"),  # a dense product
        (Case("memory", False, True, True, True), "AUTO-FUSE"),  # a layer norm written out
        (Case("memory", False, False, True, True), "HAND-WRITE"),  # a novel fused mask
        (Case("memory", False, False, False, False), "LEAVE IT"),  # a reshape at start-up
        (Case("compute", False, False, True, True), "HAND-WRITE"),  # hot, and no library has it
    ],
)
def test_the_known_answers(case, action):
    """What a kernel engineer would say."""
    assert triage(case).action == action


def test_compute_bound_and_covered_by_nothing_is_never_called_a_librarys():
    """It has an answer of its own, whatever else is known."""
    for case in ALL:
        if case.bound == "compute" and case.hot and not case.library and not case.compiler:
            assert "covered by nothing" in triage(case).reason + triage(case).name
            assert why_not(case)["USE LIBRARY"] == "no library's call does it"


def test_heat_alone_turns_an_answer():
    """The same kernel off the hot path is left."""
    for case in ALL:
        assert triage(replace(case, hot=False)).action == "LEAVE IT"


@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan")])
def test_a_threshold_is_a_share(share):
    """From 0 to 1."""
    from tapes import Tape

    tape = Tape()
    with pytest.raises(InputError, match="hot_share must be from 0 to 1"):
        tape.plan(tape.op("relu", tape.input(8)), hot_share=share)
