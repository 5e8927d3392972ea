"""Which of Rooftile's ops does an op's work, alone or together with its neighbours."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from rooftile.plan import kinds
from rooftile.plan.cover import sdpa_call
from rooftile.plan.flow import Flow
from rooftile.plan.fusion import Fused
from rooftile.plan.grouping import Group
from rooftile.plan.match import Match, Name, float_dtype, is_number
from rooftile.plan.patterns import matches
from rooftile.records.graph import Op
from rooftile.records.tensor import Tensor

PACKAGE = "rooftile.ops"

_MAX_HEAD_DIM = 256
# What may happen to scores before their softmax: scaled, bounded, masked.
_SCORE_STAGES = {"mul": "s", "div": "s", "tanh": "t", "add": "m", "where": "m", "masked_fill": "m"}
_AROUND_SCORES = frozenset(("softmax", "safe_softmax", "copy", "dropout"))


def rooftile_ops(fused: Fused) -> dict[int, Match]:
    """The op of ``rooftile.ops`` that does the work of each op; ops without one are left out.

    The function that takes most ops has them; a gradient belongs to the function that all of its
    line's forward ops belong to, since the op brings its own backward.
    """
    flow = Flow(fused.estimate.graph.ops, fused.links)
    found = [match for group in fused.groups() for match in _attention(group, fused)]
    for index in fused.shapes:
        found += matches(flow, fused.op(index))
    chosen: dict[int, Match] = {}
    for match in sorted(found, key=lambda match: -len(match.ops)):
        if not any(i in chosen for i in match.ops):
            chosen.update(dict.fromkeys(match.ops, match))
    return {**chosen, **_gradients(fused, chosen)}


def names_of(ops: Iterable[int], known: Mapping[int, Match]) -> tuple[str, ...]:
    """The ops of ``rooftile.ops`` that share in a group's work, the first to run first."""
    return tuple(dict.fromkeys(f"{PACKAGE}.{known[i].name}" for i in sorted(ops) if i in known))


def whole_of(ops: Iterable[int], known: Mapping[int, Match]) -> bool:
    """Whether one of them does all of a group's work."""
    taken = [known.get(i) for i in ops]
    return bool(taken) and taken[0] is not None and all(match is taken[0] for match in taken)


def _attention(group: Group, fused: Fused) -> Iterable[Match]:
    """Attention written out, with scores that one of ours knows how to change."""
    if group.kind != "attention":
        return
    ops = [fused.op(i) for i in sorted(group.ops)]
    query = ops[0].operand("self") or ops[0].operand("batch1")
    if query is None or not float_dtype(query) or max(_widths(query, ops[-1])) > _MAX_HEAD_DIM:
        return
    if sdpa_call(group, fused):
        yield Match("scaled_dot_product_attention", frozenset(group.ops))
    elif _soft_capped(ops):
        yield Match("attention", frozenset(group.ops))


def _widths(query: Tensor, last: Op) -> tuple[int, int]:
    """Of a head of the queries and of the values."""
    return query.shape[-1], last.writes[0].shape[-1]


def _soft_capped(ops: list[Op]) -> bool:
    """Whether scores are scaled, put through tanh, scaled again, and then masked or not."""
    stages = []
    for op in ops:
        if op.name in ("mul", "div") and not is_number(op.attrs.get("other")):
            return False
        if op.name not in kinds.PRODUCTS and op.name not in _AROUND_SCORES:
            stages.append(_SCORE_STAGES.get(op.name, "?"))
    return re.fullmatch("s*ts*m*", "".join(stages)) is not None


def _gradients(fused: Fused, chosen: Mapping[int, Match]) -> dict[int, Match]:
    """Ops of the backward whose line is one function's in the forward."""
    lines = _lines_of_one(fused, chosen)
    members: dict[tuple[str, Name], list[int]] = {}
    for index in fused.shapes:
        op = fused.op(index)
        if op.phase == "backward" and (name := lines.get((op.module, op.line))):
            members.setdefault((op.module, name), []).append(index)
    found: dict[int, Match] = {}
    for (_, name), indices in members.items():
        found.update(dict.fromkeys(indices, Match(name, frozenset(indices))))
    return found


def _lines_of_one(fused: Fused, chosen: Mapping[int, Match]) -> dict[tuple[str, str], Name]:
    """Module and line to the function that all its ops of the forward belong to.

    A view belongs to those that read it: its gradient is a kernel.
    """
    readers: dict[Tensor, Name] = {}
    for index, match in chosen.items():
        readers.update(dict.fromkeys(fused.op(index).reads, match.name))
    lines: dict[tuple[str, str], set[Name | None]] = {}
    for op in fused.estimate.graph.ops:
        if op.phase != "forward" or not op.line:
            continue
        if op.index in fused.shapes:
            found = chosen.get(op.index)
            lines.setdefault((op.module, op.line), set()).add(found.name if found else None)
        elif op.outputs and op.outputs[0] in readers:
            lines.setdefault((op.module, op.line), set()).add(readers[op.outputs[0]])
    alone = ((place, next(iter(names))) for place, names in lines.items() if len(names) == 1)
    return {place: name for place, name in alone if name is not None}
