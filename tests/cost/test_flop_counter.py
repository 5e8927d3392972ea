"""Our FLOP beside those of torch's counter, where the counter is right."""

from __future__ import annotations

import pytest
from ops_by_hand import cost_of, tensor

torch = pytest.importorskip("torch")
counter = pytest.importorskip("torch.utils.flop_counter")


def theirs(packet: str, *args: object, **kwargs: object) -> int:
    """What torch's formula for an op says of these shapes."""
    formula = counter.flop_registry[getattr(torch.ops.aten, packet)]
    return int(formula(*args, **kwargs))


@pytest.mark.parametrize(("m", "k", "n"), [(1, 1, 1), (63, 111, 199), (2048, 4096, 1024)])
def test_products(m: int, k: int, n: int):
    """mm, addmm, bmm and baddbmm of odd and round sizes."""
    a, b = (m, k), (k, n)
    inputs = {"self": tensor(*a), "mat2": tensor(*b)}
    assert cost_of("mm", inputs, tensor(m, n)).matrix_flops == theirs("mm", a, b)
    inputs = {"self": tensor(n), "mat1": tensor(*a), "mat2": tensor(*b)}
    assert cost_of("addmm", inputs, tensor(m, n)).matrix_flops == theirs("addmm", (n,), a, b)
    inputs = {"self": tensor(3, *a), "mat2": tensor(3, *b)}
    want = theirs("bmm", (3, *a), (3, *b))
    assert cost_of("bmm", inputs, tensor(3, m, n)).matrix_flops == want
    inputs = {"self": tensor(n), "batch1": tensor(3, *a), "batch2": tensor(3, *b)}
    assert cost_of("baddbmm", inputs, tensor(3, m, n)).matrix_flops == want


@pytest.mark.parametrize("transposed", [False, True])
def test_convolutions(transposed: bool):
    """Forward of both directions, and the backward without groups, mask by mask."""
    x, y = ((2, 6, 9, 7), (2, 8, 11, 9)) if transposed else ((2, 6, 9, 7), (2, 8, 7, 5))
    w = (6, 8, 3, 3) if transposed else (8, 6, 3, 3)
    forward = cost_of(
        "convolution",
        {"input": tensor(*x), "weight": tensor(*w)},
        tensor(*y),
        transposed=transposed,
    )
    want = theirs("convolution", x, w, None, 1, 0, 1, transposed, out_val=y)
    assert forward.matrix_flops == want
    inputs = {"grad_output": tensor(*y), "input": tensor(*x), "weight": tensor(*w)}
    for mask in ((True, False, False), (False, True, False), (True, True, True)):
        ours = cost_of(
            "convolution_backward", inputs, (), transposed=transposed, output_mask=mask
        ).matrix_flops
        rest = (None, 1, 0, 1, transposed, 0, 1, mask)
        assert ours == theirs("convolution_backward", y, x, w, *rest, out_val=(x, w, None))


@pytest.mark.parametrize("kv_heads", [1, 4, 8])
def test_attention(kv_heads: int):
    """Dense forward and backward with grouped heads, lengths and widths that differ."""
    q, k, v, y = (2, 8, 30, 64), (2, kv_heads, 50, 64), (2, kv_heads, 50, 48), (2, 8, 30, 48)
    inputs = {"query": tensor(*q), "key": tensor(*k), "value": tensor(*v)}
    packet = "_scaled_dot_product_flash_attention"
    forward = cost_of("attention", inputs, tensor(*y), is_causal=True)
    assert forward.dense_matrix_flops == theirs(packet, q, k, v)
    saved = {"grad_out": tensor(*y), **inputs}
    backward = cost_of("attention_backward", saved, (), is_causal=True)
    assert backward.dense_matrix_flops == theirs(f"{packet}_backward", y, q, k, v)
