"""A clock that counts instead of ticking, and a small case of one's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch

from rooftile.bench.case import Case
from rooftile.bench.clock import Call
from rooftile.bench.environment import environment
from rooftile.bench.rounds import Settings
from rooftile.cost.formulas.softmax import softmax_backward, softmax_forward
from rooftile.records.measurement import Environment


class ScriptedClock:
    """Runs each call and gives times from a list, the last of them for ever."""

    timer = "script"
    cache = "cold"

    def __init__(self, *seconds: float) -> None:
        self.script = list(seconds) or [1e-3]
        self.calls: list[Call] = []
        self.written: dict[Call, int] = {}

    def writes(self, call: Call, n_bytes: int) -> None:
        self.written[call] = n_bytes

    def seconds(self, call: Call) -> float:
        call()
        self.calls.append(call)
        return self.script.pop(0) if len(self.script) > 1 else self.script[0]

    def host_seconds(self, call: Call, calls: int) -> float:
        return 7e-6

    def peak_bytes(self, call: Call) -> int | None:
        return 4096


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Tiny tensors gain nothing from more, and wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def clock() -> type[ScriptedClock]:
    return ScriptedClock


@pytest.fixture
def surroundings() -> Environment:
    return environment("cpu")


@pytest.fixture
def quick() -> Settings:
    return Settings(rounds=3, warmup_batch=1, most_warmup=2, host_calls=1)


def softmax_case(**changes: object) -> Case:
    """A softmax of 3 x 5, right unless it is changed."""
    parts: dict[str, object] = {
        "op": "softmax",
        "dims": ("M", "N"),
        "inputs": lambda d, dtype, device: (
            torch.randn(d["M"], d["N"], dtype=dtype, device=device, requires_grad=True),
        ),
        "function": lambda x: torch.softmax(x, -1),
        "reference": lambda x: torch.softmax(x, -1),
        "costs": {
            "forward": lambda d, size: softmax_forward(d["M"], d["N"], size),
            "backward": lambda d, size: softmax_backward(d["M"], d["N"], size),
        },
        "shapes": {"forward": ((3, 5),), "backward": ((3, 5),)},
        "small": ((3, 5),),
    }
    return Case(**{**parts, **changes})


@pytest.fixture
def case() -> Callable[..., Case]:
    return softmax_case
