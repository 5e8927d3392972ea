"""One step of a model: forward, and in training the loss, the backward and the optimiser."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from rooftile.capture.recorder import Recorder
from rooftile.errors import InputError, TargetError

Loss = Callable[[Any], Tensor]

# The usual settings of large models; they change no byte and no FLOP.
_OPTIMIZERS: dict[str, Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=1e-2, momentum=0.9, fused=not _sparse(p)),
    "adamw": lambda p: torch.optim.AdamW(p, lr=1e-4, fused=True),
}
OPTIMIZERS = ("none", *_OPTIMIZERS)


def run_inference(model: nn.Module, inputs: Any) -> list[Tensor]:
    """One forward without gradients. Returns the tensors that are still wanted after it."""
    with torch.no_grad():
        return list(tensors(call(model, inputs)))


def run_training(
    recorder: Recorder, model: nn.Module, inputs: Any, loss: Loss | None, optimizer: str
) -> list[Tensor]:
    """One training step. Returns the tensors that are still wanted after it.

    Raises:
        TargetError: Nothing in the output is a loss, or the loss has no gradient.
    """
    with torch.enable_grad():
        output = call(model, inputs)
        value = find_loss(output, loss)
        if not value.requires_grad:
            raise TargetError("the loss depends on no parameter that requires a gradient")
        recorder.phase = "backward"
        value.backward()
    parameters = [p for p in model.parameters() if p.requires_grad]
    wanted = [value, *(p.grad for p in parameters if p.grad is not None)]
    if optimizer != "none":
        recorder.phase = "optimizer"
        update = _OPTIMIZERS[optimizer](parameters)
        recorder.paused = True  # the first step makes the state, which no later one does
        update.step()
        recorder.paused = False
        update.step()
        wanted += [*parameters, *tensors(list(update.state.values()))]
    return wanted


def _sparse(parameters: Iterable[nn.Parameter]) -> bool:
    """Whether a gradient is of an embedding's rows alone: torch's fused update takes none."""
    return any(p.grad is not None and p.grad.is_sparse for p in parameters)


def call(model: nn.Module, inputs: Any) -> Any:
    """Call the model with a tensor, a tuple or list (positional) or a mapping (keywords)."""
    if isinstance(inputs, Mapping):
        return model(**inputs)
    if isinstance(inputs, (tuple, list)):
        return model(*inputs)
    return model(inputs)


def find_loss(output: Any, loss: Loss | None) -> Tensor:
    """What the user's callable makes of the output; else its ``.loss``, else its only scalar.

    A tensor of one element counts as a scalar where no other does.

    Raises:
        TargetError: None of the three gives a scalar.
    """
    if loss is not None:
        value = loss(output)
        if isinstance(value, Tensor) and value.numel() == 1:
            return _scalar(value)
        raise TargetError(f"the target's loss must return a scalar tensor, got {_describe(value)}")
    own = getattr(output, "loss", None)
    if own is None and isinstance(output, Mapping):
        own = output.get("loss")
    if isinstance(own, Tensor) and own.numel() == 1:
        return _scalar(own)
    floating = [t for t in _top_level(output) if t.is_floating_point() and t.numel() == 1]
    scalars = [t for t in floating if t.dim() == 0] or floating
    if len(scalars) == 1:
        return _scalar(scalars[0])
    raise TargetError(
        "no loss to train on: the model's output must be a scalar tensor or have a .loss, or the "
        "target must return (model, inputs, loss) with a callable of the output; the output is "
        + _describe(output)
    )


def _scalar(t: Tensor) -> Tensor:
    return t if t.dim() == 0 else t.reshape(())


def _top_level(output: Any) -> list[Tensor]:
    if isinstance(output, Tensor):
        return [output]
    if isinstance(output, Mapping):
        output = tuple(output.values())
    if isinstance(output, (tuple, list)):
        return [t for t in output if isinstance(t, Tensor)]
    return []


def _describe(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"a tensor of shape {list(value.shape)}"
    if isinstance(value, (tuple, list, Mapping)):
        return f"a {type(value).__name__} of {len(value)}"
    return f"a {type(value).__name__}"


def tensors(value: Any) -> Iterator[Tensor]:
    """Every tensor within nested tuples, lists and mappings."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        for v in value.values():
            yield from tensors(v)
    elif isinstance(value, (tuple, list)):
        for v in value:
            yield from tensors(v)


def check_optimizer(optimizer: str, mode: str) -> None:
    """Refuse an optimiser that is unknown, or one without a training step."""
    if optimizer not in OPTIMIZERS:
        raise InputError(f"optimizer must be one of {', '.join(OPTIMIZERS)}, got {optimizer!r}")
    if optimizer != "none" and mode != "train":
        raise InputError(f"optimizer {optimizer!r} needs mode 'train', got {mode!r}")
