"""Recurrent layers and scans: FLOP and bytes against counts made by hand."""

from __future__ import annotations

import pytest
from ops_by_hand import cost_of, op, tensor

from rooftile.cost.formulas.recurrent import rnn_matrix_flops
from rooftile.cost.graph import price
from rooftile.errors import InputError
from rooftile.records.tensor import Tensor


def layer(gates: int, width: int, hidden: int, first: int = 0) -> dict[str, Tensor]:
    """Weights and biases of one layer and direction."""
    shapes = (
        (gates * hidden, width),
        (gates * hidden, hidden),
        (gates * hidden,),
        (gates * hidden,),
    )
    return {f"params.{first + i}": tensor(*shape) for i, shape in enumerate(shapes)}


def test_lstm():
    """LSTM(32, 32), 10 steps of batch 2: 327,680 FLOP, and 30 an element of the state."""
    inputs = {"input": tensor(10, 2, 32), "hx.0": tensor(1, 2, 32), **layer(4, 32, 32)}
    cost = cost_of("rnn", inputs, tensor(10, 2, 32), mode="lstm", hidden_size=32, num_layers=1)
    assert cost.matrix_flops == 327_680 == rnn_matrix_flops("lstm", 20, 32, 32)
    assert cost.vector_flops == 20 * 32 * (18 + 4 * 3)
    assert cost.read_bytes == (640 + 64 + 2 * 4096 + 256) * 4


def test_a_deep_layer_of_two_directions():
    """GRU(8, 16), 2 layers, both ways: the second layer's input is 32 wide."""
    inputs: dict[str, Tensor] = {"input": tensor(5, 3, 8)}
    for i, width in enumerate((8, 8, 32, 32)):
        inputs |= layer(3, width, 16, first=4 * i)
    cost = cost_of("rnn", inputs, tensor(5, 3, 32), mode="gru", hidden_size=16, num_layers=2)
    want = 2 * 15 * 48 * 2 * ((8 + 16) + (32 + 16))
    assert cost.matrix_flops == want
    assert rnn_matrix_flops("gru", 15, 8, 16, num_layers=2, bidirectional=True) == want
    assert cost.vector_flops == 15 * 4 * 16 * (14 + 3 * 3)


def test_a_projection_is_one_more_product():
    """LSTM(8, 16) projected to 4: the state that comes back is 4 wide."""
    inputs = {
        "input": tensor(6, 8),
        "params.0": tensor(64, 8),
        "params.1": tensor(64, 4),
        "params.2": tensor(4, 16),
    }
    cost = cost_of("rnn", inputs, tensor(6, 4), mode="lstm", hidden_size=16)
    assert cost.matrix_flops == 2 * 6 * (64 * 12 + 64)
    assert cost.matrix_flops == rnn_matrix_flops("lstm", 6, 8, 16, proj_size=4)
    assert cost.vector_flops == 6 * 16 * (18 + 4)


def test_backward_is_twice_the_forward():
    """One product for the input's gradient, one for the weight's."""
    inputs = {"input": tensor(10, 2, 32), **layer(1, 32, 32)}
    forward = cost_of("rnn", inputs, tensor(10, 2, 32), mode="rnn_tanh", hidden_size=32)
    backward = cost_of("rnn_backward", inputs, (), mode="rnn_tanh", hidden_size=32)
    assert backward.matrix_flops == 2 * forward.matrix_flops
    assert backward.vector_flops == 2 * forward.vector_flops


@pytest.mark.parametrize(
    ("mask", "matrix", "vector", "read"),
    [
        ((True, True, True, True), 4, 30 + 30, 2 * 4096 + 640),
        ((True, True, True, False), 2, 22 + 22, 2 * 4096),  # frozen: no weight gradient
        ((False, False, False, True), 3, 30 + 30, 4096 + 640),  # on data: none for the input
        ((False, True, True, False), 1, 22 + 22, 4096),
    ],
)
def test_a_recurrent_layer_s_gradients_by_mask(mask, matrix, vector, read):
    """LSTM(32, 32): each of its two products of 20 x 128 x 32 where a gradient needs it."""
    inputs = {"grad_out": tensor(10, 2, 32), "input": tensor(10, 2, 32), **layer(4, 32, 32)}
    cost = cost_of("rnn_backward", inputs, tensor(1), mode="lstm", output_mask=mask)
    assert cost.matrix_flops == matrix * 2 * 20 * 128 * 32
    assert cost.vector_flops == vector * 20 * 32
    assert cost.read_bytes == (640 + read) * 4  # no gradient comes of a bias


def test_frozen_layers_of_two_directions():
    """Two layers both ways on data: the first layer's two products towards it are left out."""
    inputs: dict[str, Tensor] = {"input": tensor(5, 3, 8)}
    for i, width in enumerate((8, 8, 32, 32)):
        inputs |= layer(3, width, 16, first=4 * i)
    options = {"mode": "gru", "bidirectional": True}
    whole, frozen, on_data = (
        cost_of("rnn_backward", inputs, tensor(1), output_mask=m, **options).matrix_flops
        for m in (
            (True, True, True, True),
            (True, True, True, False),
            (False, True, True, True),
        )
    )
    assert whole == 2 * frozen == 4 * 15 * 48 * 2 * (8 + 16 + 32 + 16)
    assert whole - on_data == 2 * 15 * 48 * 2 * 8


def test_torch_s_layer_of_one_direction():
    """mkldnn_rnn_layer names its weights by number and its mode by cuDNN's."""
    weights = {f"weight{i}": t for i, t in enumerate(layer(4, 32, 32).values())}
    inputs = {"input": tensor(10, 2, 32), **weights, "hx_": tensor(2, 32)}
    cost = cost_of("rnn", inputs, tensor(10, 2, 32), mode=2, hidden_size=32)
    assert cost.matrix_flops == 327_680


def test_torch_s_composite_layer_has_its_mode_in_its_name():
    """aten::gru as an exported program holds it."""
    inputs = {"input": tensor(10, 2, 32), "hx": tensor(1, 2, 32), **layer(3, 32, 32)}
    assert cost_of("gru", inputs, tensor(10, 2, 32)).matrix_flops == 2 * 20 * 96 * 64


def test_one_step_s_gates_are_vector_work():
    """The fused LSTM cell after its products: 18 FLOP and 4 sums of three."""
    inputs = {
        "input_gates": tensor(2, 128),
        "hidden_gates": tensor(2, 128),
        "cx": tensor(2, 32),
        "input_bias": tensor(128),
        "hidden_bias": tensor(128),
    }
    cost = cost_of("lstm_gates", inputs, (tensor(2, 32), tensor(2, 32)))
    assert (cost.matrix_flops, cost.vector_flops) == (0, 64 * 30)


def test_a_recurrent_layer_without_weights_is_an_error():
    """A mode that is none, and no weights."""
    with pytest.raises(InputError, match="mode must be one of"):
        price(op("rnn", {"input": tensor(2, 2), **layer(4, 2, 2)}, tensor(2, 2), mode="liquid"))
    with pytest.raises(InputError, match="must have weights"):
        price(op("rnn", {"input": tensor(2, 2)}, tensor(2, 2), mode="lstm"))


def scan(**extra: Tensor) -> dict[str, Tensor]:
    """A scan of batch 1, 1536 channels, 16 states, 128 steps."""
    shapes = {"u": (1, 1536, 128), "delta": (1, 1536, 128), "A": (1536, 16)}
    shapes |= {"B": (1, 16, 128), "C": (1, 16, 128)}
    return {role: tensor(*shape) for role, shape in shapes.items()} | extra


def test_selective_scan():
    """9 FLOP a step of a channel and state; skip, bias, softplus and gate beside it."""
    bare = cost_of("selective_scan", scan(), tensor(1, 1536, 128))
    steps = 1536 * 128
    assert (bare.matrix_flops, bare.vector_flops) == (0, 9 * steps * 16)
    full = scan(D=tensor(1536), z=tensor(1, 1536, 128), delta_bias=tensor(1536))
    cost = cost_of("selective_scan", full, tensor(1, 1536, 128), delta_softplus=True)
    assert cost.vector_flops == 9 * steps * 16 + steps * (2 + 1 + 4 + 6)
    assert cost.bytes == (4 * steps + 1536 * 16 + 2 * 16 * 128 + 2 * 1536) * 4


def test_selective_scan_backward_is_three_times_the_forward():
    """The scan again, and two passes of gradients."""
    forward = cost_of("selective_scan", scan(), tensor(1, 1536, 128))
    saved = {"grad_out": tensor(1, 1536, 128), **scan()}
    backward = cost_of("selective_scan_backward", saved, ())
    assert backward.vector_flops == 3 * forward.vector_flops


def test_causal_convolution():
    """4 taps, bias and SiLU: 8 + 1 + 5 FLOP an element, no matrix work."""
    inputs = {"x": tensor(1, 1536, 128), "weight": tensor(1536, 4), "bias": tensor(1536)}
    cost = cost_of("causal_conv1d", inputs, tensor(1, 1536, 128), activation="silu")
    assert (cost.matrix_flops, cost.vector_flops) == (0, 14 * 1536 * 128)
    plain = cost_of("causal_conv1d", inputs, tensor(1, 1536, 128), activation="")
    assert plain.vector_flops == 9 * 1536 * 128
    saved = {"grad_out": tensor(1, 1536, 128), **inputs}
    backward = cost_of("causal_conv1d_backward", saved, (), activation="")
    assert backward.vector_flops == 17 * 1536 * 128


def test_wkv():
    """23 FLOP a step and channel, 2 a channel for its decay; the backward three times as much."""
    channels = {"time_decay": tensor(32), "time_first": tensor(32)}
    inputs = {**channels, "key": tensor(2, 16, 32), "value": tensor(2, 16, 32)}
    forward = cost_of("wkv", inputs, (tensor(2, 16, 32), tensor(0)))
    assert forward.vector_flops == 23 * 2 * 16 * 32 + 2 * 32
    assert forward.bytes == (3 * 2 * 16 * 32 + 2 * 32) * 4
    saved = {"grad_out": tensor(2, 16, 32), **inputs, "out": tensor(2, 16, 32)}
    results = (tensor(32), tensor(32), tensor(2, 16, 32), tensor(2, 16, 32))
    backward = cost_of("wkv_backward", saved, results)
    assert backward.vector_flops == 3 * forward.vector_flops
