"""One case at one shape: rows for whoever ran, with the ceilings of the same rounds."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from jobs import job, rows_of

from rooftile.bench import gate
from rooftile.bench.case import Peer
from rooftile.bench.run import ceilings_of, check_only, run
from rooftile.errors import InputError
from rooftile.records.cost import Cost


def test_each_provider_has_a_row_beside_the_copy(case, clock, surroundings, quick):
    """Own, peer and copy from the same rounds; 150 B read and written are 60 + 60."""
    # a warm-up of two rounds of three, then the rounds: own 2 ms, eager 4 ms, copy 1 ms
    script = [1.0] * 6 + [2e-3, 4e-3, 1e-3] + [4e-3, 1e-3, 2e-3] + [1e-3, 2e-3, 4e-3]
    found = run(job(case()), clock(*script, 9.0), surroundings, quick)
    own, _, copy = found
    assert [row.provider for row in found] == ["rooftile", "eager", "copy"]
    assert [row.median_s for row in found] == [2e-3, 4e-3, 1e-3]
    assert (own.cost.read_bytes, own.cost.write_bytes) == (60, 60)
    assert own.ratio_to_copy == 0.5
    assert (own.best_peer, own.ratio_to_best_peer) == ("eager", 2.0)
    assert (own.host_s, own.peak_bytes, own.settled, own.warmup_rounds) == (7e-6, 4096, True, 2)
    assert (own.cache, own.timer) == ("cold", "script")
    assert own.check is not None
    assert own.check.passed
    assert copy.check is None


def test_the_clock_is_told_what_each_call_writes(case, clock, surroundings, quick):
    """15 float32 are 60 bytes for own and peer, a copy writes half of 120, a product all it is."""
    ticking = clock()
    run(job(case(), matmul_n=4, ceilings=("copy", "matmul")), ticking, surroundings, quick)
    assert list(ticking.written.values()) == [60, 60, 60, 64]


def test_printed_numbers_agree(case, clock, surroundings, quick):
    """ben-04: FLOP/s and B/s are those of one call's FLOP and bytes over the median of one call."""
    own = run(job(case()), clock(2.294e-3), surroundings, quick)[0]
    assert own.flops_per_s == own.cost.flops / 2.294e-3 == 5 * 15 / 2.294e-3
    assert own.bytes_per_s == 120 / 2.294e-3


def test_a_wrong_result_is_never_timed(case, clock, surroundings, quick):
    """A fast wrong provider has a message and no seconds; the right ones are timed."""
    ticking = clock()
    found = rows_of(run(job(case(function=lambda x: x * 0)), ticking, surroundings, quick))
    own = found["rooftile"]
    assert own.seconds == ()
    assert own.error.startswith("wrong result, not timed: result 0: error")
    assert own.check is not None
    assert not own.check.passed
    assert found["eager"].timed
    assert len(ticking.calls) == (2 + 3) * 2


def test_a_peer_that_refuses_a_shape_is_recorded(case, clock, surroundings, quick):
    """With its message; so is one that is not installed, and both keep nobody from running."""

    def refuse(x):
        raise RuntimeError("feature dimension 262144 exceeds maximum 65536")

    def absent():
        raise ModuleNotFoundError("No module named 'quack'")

    peers = {"liger": Peer(lambda: refuse), "quack": Peer(absent)}
    against = ("eager", "liger", "quack")
    found = rows_of(run(job(case(peers=peers), against=against), clock(), surroundings, quick))
    assert found["liger"].error == "RuntimeError: feature dimension 262144 exceeds maximum 65536"
    assert found["quack"].error.startswith("is not installed: ModuleNotFoundError")
    assert found["rooftile"].timed
    assert found["rooftile"].best_peer == "eager"


def test_a_peer_that_fails_on_being_loaded_is_recorded(case, clock, surroundings, quick):
    """A library may raise anything when it is imported; the others run."""

    def broken():
        raise TypeError("epilogue fn depends on a ContextVar")

    found = rows_of(
        run(
            job(case(peers={"quack": Peer(broken)}), against=("quack", "eager")),
            clock(), surroundings, quick,
        )
    )  # fmt: skip
    assert found["quack"].error == "TypeError: epilogue fn depends on a ContextVar"
    assert found["rooftile"].timed
    assert found["eager"].timed


def test_a_peer_may_write_into_its_inputs(case, clock, surroundings, quick):
    """Every provider has inputs of its own, so the next one's result is still right."""

    def spoiling(x):
        y = torch.softmax(x, -1)
        x.data.zero_()
        return y

    found = run(
        job(case(peers={"liger": Peer(lambda: spoiling)}), against=("liger", "eager")),
        clock(), surroundings, quick,
    )  # fmt: skip
    assert [row.error for row in found] == [""] * 4


def test_an_adapted_peer_gets_what_it_wants(case, clock, surroundings, quick):
    """Its inputs are changed outside the timed call, and the gate still holds it to float64."""
    seen = []

    def function(x):
        seen.append(x.dtype)
        return torch.softmax(x, -1).float()

    peer = Peer(lambda: function, lambda inputs: tuple(t.double() for t in inputs))
    found = run(job(case(peers={"liger": peer}), against=("liger",)), clock(), surroundings, quick)
    assert rows_of(found)["liger"].timed
    assert set(seen) == {torch.float64}


def test_the_backward_leaves_one_gradient(case, clock, surroundings, quick):
    """ben-04: however many rounds ran, nothing was added up; the graph is kept between them."""
    held = []

    class Softmax(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            y = torch.softmax(x, -1)
            ctx.save_for_backward(y)
            held.append(0)
            return y

        @staticmethod
        def backward(ctx, dy):
            (y,) = ctx.saved_tensors
            held[-1] += 1
            return y * (dy - (dy * y).sum(-1, keepdim=True))

    found = run(
        job(case(function=Softmax.apply), "backward", against=()), clock(), surroundings, quick
    )
    assert found[0].timed
    assert held == [1 + 2 + 3]  # one forward; the check, the warm-up, the rounds


def test_both_passes_are_timed_together(case, clock, surroundings, quick):
    """With forward_backward each call runs the forward anew, so in-place backwards are fair."""
    forwards = []

    def function(x):
        forwards.append(x.requires_grad)
        return torch.softmax(x, -1)

    costs = {"forward_backward": lambda d, size: Cost(vector_flops=1, read_bytes=1)}
    both = case(function=function, costs=costs, shapes={"forward_backward": ((3, 5),)})
    found = run(job(both, "forward_backward", against=()), clock(), surroundings, quick)
    assert found[0].error == ""
    assert forwards == [True] * (1 + 2 + 3)


def test_matrix_work_is_set_beside_a_matmul(case, clock, surroundings, quick):
    """2 * 16**3 FLOP in the same time: half of them are half the speed."""
    costs = {"forward": lambda d, size: Cost(matrix_flops=16**3, read_bytes=1, math="fp32")}
    matrix = case(costs=costs)
    assert ceilings_of(matrix, "forward") == ("copy", "matmul")
    assert ceilings_of(case(), "forward") == ("copy",)
    found = rows_of(run(job(matrix, ceilings=("copy", "matmul")), clock(1e-3), surroundings, quick))
    assert found["rooftile"].ratio_to_matmul == 0.5
    assert found["matmul"].ratio_to_matmul == 1.0
    assert found["copy"].cost == Cost(read_bytes=1)  # a copy multiplies nothing


@pytest.mark.parametrize("direction", ["backward", "forward_backward"])
def test_a_call_keeps_no_gradients(direction, case, clock, surroundings, quick, monkeypatch):
    """Else the next call's peak memory would be told without them."""
    kept = []

    class Looking(clock):
        def peak_bytes(self, call):
            kept.append(leaves[-1].grad is None)
            call()
            kept.append(leaves[-1].grad is None)

    leaves = []
    own_inputs = gate.own_inputs
    monkeypatch.setattr(
        gate, "own_inputs", lambda *given: leaves.extend(own_inputs(*given)) or tuple(leaves[-1:])
    )
    both = case().costs["backward"]
    found = run(
        job(case(costs={direction: both}, shapes={direction: ((3, 5),)}), direction, against=()),
        Looking(), surroundings, quick,
    )  # fmt: skip
    assert found[0].timed
    assert kept == [True, True]


def test_a_fault_in_the_rounds_keeps_the_others(case, clock, surroundings, quick):
    """A provider that fails after its first call has a message; no best peer is made of it."""
    calls = []

    def failing(x):
        calls.append(1)
        if len(calls) > 2:
            raise RuntimeError("out of memory")
        return torch.softmax(x, -1)

    faulty = case(peers={"liger": Peer(lambda: failing)})
    found = rows_of(run(job(faulty, against=("liger",)), clock(), surroundings, quick))
    assert found["liger"].error == "RuntimeError: out of memory"
    assert found["rooftile"].timed
    assert found["rooftile"].best_peer == ""


def test_a_check_alone_takes_no_time(case, surroundings):
    """Without a GPU: right or wrong, and no seconds."""
    good, wrong = (
        check_only(job(case(function=function), against=()), surroundings)[0]
        for function in (lambda x: torch.softmax(x, -1), lambda x: x)
    )
    assert (good.error, good.seconds) == ("", ())
    assert wrong.error.startswith("wrong result")


def test_the_stages_name_the_provider(case, clock, surroundings, quick):
    """A crash can be laid at the door of whoever had begun."""
    heard = []
    run(job(case()), clock(), surroundings, quick, lambda who, what: heard.append((who, what)))
    assert heard == [
        ("reference", "float64"),
        ("rooftile", "first call"),
        ("eager", "first call"),
        ("all", "warm-up"),
        ("all", "rounds"),
        ("rooftile", "host time and memory"),
        ("eager", "host time and memory"),
    ]


@pytest.mark.parametrize("shape", [(3,), (3, 0), (3, 5, 1)])
def test_a_shape_that_does_not_fit_is_refused(case, shape):
    """The message has the dimensions."""
    with pytest.raises(InputError, match=r"shape of softmax must be M x N, each at least 1"):
        case().sizes(shape)
    with pytest.raises(InputError, match="shapes of forward of softmax"):
        replace(case(), shapes={"forward": (shape,)})
