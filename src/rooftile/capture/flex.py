"""flex_attention as one op, forward and backward, as torch.compile makes one kernel of it.

Uncompiled, and without a GPU, torch writes the whole score matrix, and has no backward. What its
score function and its mask compute for one pair is listed by name; the formulas do the rest.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from rooftile.capture.define import OPS, autograd, define
from rooftile.capture.flex_mask import Pairs, visible_pairs
from rooftile.capture.notes import note
from rooftile.capture.recorder import Recorder
from rooftile.capture.signature import signature_of

_MODULE = "torch.nn.attention.flex_attention"
# torch's block size where no block mask was given
_NO_BLOCKS = 1 << 30


def _flex_fake(query: Tensor, key: Tensor, value: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    """The output in the order of the queries' dimensions in memory."""
    shape, keep = (*query.shape[:-1], value.shape[-1]), rest[-1]
    order = sorted(range(query.dim()), key=lambda d: query.stride(d), reverse=True)
    out = query.new_empty([shape[d] for d in order])
    lse = query.new_empty(query.shape[:-1] if keep else (0,), dtype=torch.float32)
    return out.permute([order.index(d) for d in range(query.dim())]), lse


def _flex_backward_fake(
    grad_out: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    blocks: list[Tensor],
    buffers: list[Tensor],
    *rest: Any,
) -> list[Tensor]:
    learnt = [b for b, wanted in zip(buffers, rest[-1], strict=True) if wanted]
    return [torch.empty_like(t) for t in (query, key, value, *learnt)]


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.set_materialize_grads(False)  # no zeros for what nobody differentiates
    query, key, value, blocks, buffers, *options, _ = inputs
    ctx.blocks = len(blocks)
    ctx.learnt = [b.requires_grad for b in buffers]
    ctx.options = options
    ctx.save_for_backward(query, key, value, *output, *blocks, *buffers)


def _backward(ctx: Any, grad_out: Tensor, grad_lse: Tensor) -> tuple[Any, ...]:
    query, key, value, out, lse, *rest = ctx.saved_tensors
    blocks, buffers = rest[: ctx.blocks], rest[ctx.blocks :]
    dq, dk, dv, *learnt = OPS.flex_attention_backward(
        grad_out, query, key, value, blocks, buffers, out, lse, *ctx.options, ctx.learnt
    )
    made = iter(learnt)
    dbuffers = [next(made) if wanted else None for wanted in ctx.learnt]
    return dq, dk, dv, [None] * ctx.blocks, dbuffers, *([None] * (len(ctx.options) + 1))


_WORK = "float scale, int pairs, int asked, str score_ops, str score_grad_ops, str mask_ops"
define(
    "flex_attention(Tensor query, Tensor key, Tensor value, Tensor[] blocks, Tensor[] buffers, "
    f"{_WORK}, bool keep) -> (Tensor, Tensor)",
    _flex_fake,
)
define(
    "flex_attention_backward(Tensor grad_out, Tensor query, Tensor key, Tensor value, "
    f"Tensor[] blocks, Tensor[] buffers, Tensor out, Tensor logsumexp, {_WORK}, bool[] learnt) "
    "-> Tensor[]",
    _flex_backward_fake,
)
autograd("flex_attention", _backward, _setup)


@dataclass(frozen=True, slots=True)
class _Listed:
    """What a function of one pair computes: names of ops, and tensors that it reads."""

    ops: tuple[str, ...]
    grad_ops: tuple[str, ...]
    tensors: tuple[Tensor, ...]


class _Listing(TorchDispatchMode):
    """Lists ops by our names, and the tensors that they did not make."""

    def __init__(self, given: tuple[Tensor, ...]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.names: list[str] = []
        self.foreign: dict[int, Tensor] = {}
        self._own = {id(t): t for t in given}  # kept: an id stays that tensor's

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        signature = signature_of(func)
        for tensor in _flat((args, kwargs or {})):
            if id(tensor) not in self._own:
                self.foreign[id(tensor)] = tensor
        result = func(*args, **(kwargs or {}))
        self._own |= {id(t): t for t in _flat(result)}
        if not signature.skip and signature.name != "view":
            self.names.append(signature.name)
        return result


def _flat(value: Any) -> list[Tensor]:
    return [t for t in torch.utils._pytree.tree_leaves(value) if isinstance(t, Tensor)]


class Flex:
    """Stands in for the higher-order op while a capture runs."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._values = recorder.values
        self._counted: dict[tuple[Any, ...], Pairs | None] = {}
        self._listed: dict[tuple[int, int, bool], tuple[Any, _Listed]] = {}

    def __call__(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        score_mod: Callable[..., Tensor],
        block_mask: tuple[Any, ...],
        scale: float,
        kernel_options: dict[str, Any],
        score_mod_other_buffers: tuple[Any, ...] = (),
        mask_mod_other_buffers: tuple[Any, ...] = (),
    ) -> tuple[Tensor, Tensor, Tensor]:
        """One op; what it returns beside is empty where nobody asked for it."""
        score = self._list(score_mod, score_mod_other_buffers, True)
        blocks, mask, pairs = self._mask(block_mask, mask_mod_other_buffers, query, key)
        keep = torch.is_grad_enabled() or bool(kernel_options.get("OUTPUT_LOGSUMEXP"))
        counts = (-1, 0) if pairs is None else (pairs.visible, pairs.asked)
        out, lse = OPS.flex_attention(
            query, key, value, blocks, [*score.tensors, *mask.tensors], scale, *counts,
            " ".join(score.ops), " ".join(score.grad_ops), " ".join(mask.ops), keep,
        )  # fmt: skip
        return out, lse, query.new_empty(0, dtype=torch.float32)

    def _mask(
        self, block_mask: tuple[Any, ...], buffers: tuple[Any, ...], query: Tensor, key: Tensor
    ) -> tuple[list[Tensor], _Listed, Pairs | None]:
        """The mask's own tensors, what it computes a pair, and how many pairs it leaves."""
        height, _, mask_mod = block_mask[-3:]
        if height >= _NO_BLOCKS:
            return [], _Listed((), (), ()), None
        listed = self._list(mask_mod, buffers, False)
        pairs = self._pairs(block_mask, buffers, query, key)
        if pairs is None:
            note("flex_attention: its mask is in values that a capture has not: all pairs counted")
        return [t for t in block_mask[2:6] if t is not None], listed, pairs

    def _pairs(
        self, block_mask: tuple[Any, ...], buffers: tuple[Any, ...], query: Tensor, key: Tensor
    ) -> Pairs | None:
        *_, height, width, mask_mod = block_mask
        told_apart = tuple(block_mask[2].shape[:2])
        sizes = (*told_apart, query.shape[-2], key.shape[-2], height, width)
        place = (mask_mod, *sizes)
        if place not in self._counted:
            batch, heads, queries, keys, *_ = sizes
            self._counted[place] = visible_pairs(
                _with(mask_mod, buffers), self._values, batch=batch, heads=heads,
                queries=queries, keys=keys, block=(height, width),
            )  # fmt: skip
        found = self._counted[place]
        if found is None:
            return None
        repeats = query.shape[0] // told_apart[0] * (query.shape[1] // told_apart[1])
        return Pairs(found.visible * repeats, found.asked * repeats)

    def _list(self, function: Any, buffers: tuple[Any, ...], scores: bool) -> _Listed:
        """What a function computes for one pair, and for its gradient."""
        key = (id(function), id(buffers), torch.is_grad_enabled())
        if key not in self._listed:
            before, self._recorder.paused = self._recorder.paused, True
            try:
                listed = _list(_with(function, buffers), scores)
            finally:
                self._recorder.paused = before
            self._listed[key] = ((function, buffers), listed)
        return self._listed[key][1]


def _with(function: Callable[..., Tensor], buffers: tuple[Any, ...]) -> Callable[..., Tensor]:
    """An exported function takes what it reads behind its own arguments."""
    return (lambda *indices: function(*indices, *buffers)) if buffers else function


def _list(function: Callable[..., Tensor], scores: bool) -> _Listed:
    indices = tuple(torch.zeros(1, dtype=torch.int64) for _ in range(4))
    given = (torch.zeros(1, requires_grad=torch.is_grad_enabled()), *indices)
    given = given if scores else indices
    listing = _Listing(given)
    with listing:
        out = function(*given)
    foreign = tuple(listing.foreign.values())
    names = tuple(listing.names)
    learnt = tuple(t for t in foreign if t.requires_grad)
    if not (scores and torch.is_grad_enabled() and out.requires_grad) or not names:
        return _Listed(names, (), foreign)
    ones = torch.ones_like(out)
    backward = _Listing((ones,))
    with backward:
        torch.autograd.grad(out, (given[0], *learnt), ones, allow_unused=True)
    return _Listed(names, tuple(backward.names), foreign)


@contextmanager
def flex_allowed(recorder: Recorder) -> Iterator[None]:
    """Let torch's checks of flex_attention pass that a GPU would pass, while it lasts."""
    module: Any = sys.modules.get(_MODULE)
    if module is None:
        yield
        return
    empty = module._create_empty_block_mask

    def unrecorded(*args: Any) -> Any:
        before, recorder.paused = recorder.paused, True  # a constant of the compiled kernel
        try:
            return empty(*args)
        finally:
            recorder.paused = before

    stand_ins = {
        "_validate_device": lambda *tensors: None,
        "setup_compilation_env": lambda: nullcontext("eager"),
        "_create_empty_block_mask": unrecorded,
        "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG": True,  # the op itself, and no word of advice
    }
    originals = {name: getattr(module, name) for name in stand_ins}
    try:
        vars(module).update(stand_ins)
        yield
    finally:
        vars(module).update(originals)
