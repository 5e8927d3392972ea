"""Attention: FLOP and bytes against counts made by hand."""

from __future__ import annotations

import itertools

import pytest
from ops_by_hand import cost_of, op, strided, tensor

from rooftile.cost.formulas.attention import Mask, attention_backward, attention_forward
from rooftile.cost.graph import price
from rooftile.errors import InputError


def qkv(b: int, h: int, s: int, d: int, dtype: str = "bfloat16") -> dict[str, object]:
    """Query, key and value of one shape, [batch, heads, sequence, width]."""
    return {role: tensor(b, h, s, d, dtype=dtype) for role in ("query", "key", "value")}


def test_llama_layer_forward():
    """32 heads, 8 of K and V, 2048 tokens of 128: dense and causal, K and V at their own heads."""
    q = tensor(1, 32, 2048, 128, dtype="bfloat16")
    k, v = (tensor(1, 8, 2048, 128, dtype="bfloat16") for _ in "kv")
    out = tensor(1, 32, 2048, 128, dtype="bfloat16")
    lse = tensor(1, 32, 2048)
    cost = cost_of("attention", {"query": q, "key": k, "value": v}, (out, lse), is_causal=True)
    assert 32 * cost.dense_matrix_flops == 2_199_023_255_552
    assert 32 * cost.matrix_flops == 1_100_048_498_688
    assert cost.read_bytes == (32 + 2 * 8) * 2048 * 128 * 2
    assert cost.write_bytes == 32 * 2048 * 128 * 2 + 32 * 2048 * 4
    assert cost.math == "bf16"


def test_softmax_of_the_scores_is_vector_work():
    """5 FLOP a visible pair and a division an element of the output."""
    cost = cost_of("attention", qkv(1, 1, 4, 8), tensor(1, 1, 4, 8), is_causal=True)
    assert cost.vector_flops == 5 * 10 + 32
    biased = {**qkv(1, 1, 4, 8), "attn_bias": tensor(4, 4)}
    cost = cost_of("attention", biased, tensor(1, 1, 4, 8), dropout_p=0.1)
    assert cost.vector_flops == 8 * 16 + 32


def test_backward_is_two_and_a_half_times_the_forward():
    """Five products for two, dense and causal alike."""
    inputs = qkv(2, 4, 64, 32)
    forward = cost_of("attention", inputs, tensor(2, 4, 64, 32), is_causal=True)
    saved = {"grad_out": tensor(2, 4, 64, 32), **inputs, "out": tensor(2, 4, 64, 32)}
    backward = cost_of("attention_backward", saved, (), is_causal=True)
    assert 2 * backward.matrix_flops == 5 * forward.matrix_flops
    assert 2 * backward.dense_matrix_flops == 5 * forward.dense_matrix_flops


def test_backward_moves_each_tensor_once():
    """In: do, q, k, v, o and lse; out: dq, dk, dv, the latter two at the heads of K and V."""
    cost = attention_backward(1, 8, 16, 32, 64, 2, kv_heads=2)
    q, kv = 8 * 16 * 64 * 2, 2 * 2 * 32 * 64 * 2
    assert cost.read_bytes == 3 * q + kv + 8 * 16 * 4
    assert cost.write_bytes == q + kv


def test_dimensions_and_graph_agree():
    """The formula of dimensions and that of an op are one."""
    q = tensor(2, 8, 100, 192, dtype="bfloat16")
    k, v = tensor(2, 4, 300, 192, dtype="bfloat16"), tensor(2, 4, 300, 128, dtype="bfloat16")
    outputs = (tensor(2, 8, 100, 128, dtype="bfloat16"), tensor(2, 8, 100))
    got = cost_of(
        "attention",
        {"query": q, "key": k, "value": v},
        outputs,
        is_causal=True,
        causal_alignment="bottom_right",
        window_left=50,
    )
    mask = Mask(causal=True, bottom_right=True, left=50)
    want = attention_forward(2, 8, 100, 300, 192, 2, kv_heads=4, v_dim=128, mask=mask, math="bf16")
    for field in (
        "matrix_flops",
        "dense_matrix_flops",
        "vector_flops",
        "read_bytes",
        "write_bytes",
    ):
        assert getattr(got, field) == getattr(want, field), field


def test_the_article_s_attention():
    """Batch 16, 32 heads, 4096 tokens of 128: 4.40 TFLOP dense, 537 MB of output in two bytes."""
    cost = attention_forward(16, 32, 4096, 4096, 128, 2, lse=False)
    assert cost.matrix_flops == 4_398_046_511_104
    assert cost.write_bytes == 536_870_912


def test_causal_decode_by_corner():
    """One query over 4096 keys: all of them from the bottom right, one from the top left."""
    inputs = {
        "query": tensor(1, 32, 1, 128),
        "key": tensor(1, 32, 4096, 128),
        "value": tensor(1, 32, 4096, 128),
    }
    right = cost_of(
        "attention",
        inputs,
        tensor(1, 32, 1, 128),
        is_causal=True,
        causal_alignment="bottom_right",
    )
    left = cost_of("attention", inputs, tensor(1, 32, 1, 128), is_causal=True)
    assert right.matrix_flops == right.dense_matrix_flops == 67_108_864
    assert left.matrix_flops == 67_108_864 // 4096
    # keys that nobody sees are not read
    assert left.read_bytes == 3 * 32 * 128 * 4


def test_grouped_heads_count_their_own_cache():
    """Decode with 8 heads of K and V for 32 of Q reads 8 heads of cache."""
    inputs = {
        "query": tensor(1, 32, 1, 128, dtype="bfloat16"),
        "key": tensor(1, 8, 4096, 128, dtype="bfloat16"),
        "value": tensor(1, 8, 4096, 128, dtype="bfloat16"),
    }
    cost = cost_of("attention", inputs, tensor(1, 32, 1, 128, dtype="bfloat16"))
    assert cost.read_bytes == (32 + 2 * 8 * 4096) * 128 * 2
    assert cost.matrix_flops == 4 * 32 * 4096 * 128


def test_a_window_reads_its_keys_alone():
    """Decode over 8192 keys with a window of 1023 before: 1024 keys are read and counted."""
    inputs = {
        "query": tensor(1, 4, 1, 64),
        "key": tensor(1, 4, 8192, 64),
        "value": tensor(1, 4, 8192, 64),
    }
    cost = cost_of(
        "attention",
        inputs,
        tensor(1, 4, 1, 64),
        is_causal=True,
        causal_alignment="bottom_right",
        window_left=1023,
    )
    assert cost.matrix_flops == 4 * 4 * 1024 * 64
    assert cost.read_bytes == (1 + 2 * 1024) * 4 * 64 * 4


@pytest.mark.parametrize("q_len", [1, 2, 5, 8])
@pytest.mark.parametrize("k_len", [1, 3, 8])
def test_pairs_equal_an_enumeration(q_len: int, k_len: int):
    """Causal, corner and window in every combination, against all pairs looked at one by one."""
    sides = (None, 0, 1, 2, 9)
    for causal, corner, left, right in itertools.product(
        (False, True), (False, True), sides, sides
    ):
        shift = k_len - q_len if corner else 0
        limit = 0 if causal else right
        seen = [
            (i, j)
            for i in range(q_len)
            for j in range(k_len)
            if (limit is None or j - (i + shift) <= limit)
            and (left is None or (i + shift) - j <= left)
        ]
        mask = Mask(causal=causal, bottom_right=corner, left=left, right=right)
        assert mask.pairs(q_len, k_len) == len(seen), mask
        start, count = mask.keys_seen(q_len, k_len)
        assert {j for _, j in seen} <= set(range(start, start + count)), mask


def test_packed_sequences_of_known_lengths():
    """Lengths 1 to 8 of keys with one query each: 36 keys, not 64."""
    q, kv = tensor(8, 4, 128, dtype="bfloat16"), (36, 2, 128)
    inputs = {
        "query": q,
        "key": tensor(*kv, dtype="bfloat16"),
        "value": tensor(*kv, dtype="bfloat16"),
        "cum_seq_q": tensor(9, dtype="int32"),
        "cum_seq_k": tensor(9, dtype="int32"),
    }
    lengths = {"q_lens": (1,) * 8, "k_lens": tuple(range(1, 9))}
    out = tensor(8, 4, 128, dtype="bfloat16")
    cost = cost_of("flash_attention", inputs, out, max_q=1, max_k=8, **lengths)
    assert cost.matrix_flops == 4 * 4 * 128 * 36
    # one query each: the keys in all say it too
    assert (
        cost_of("flash_attention", inputs, out, max_q=1, max_k=8).matrix_flops == 4 * 4 * 128 * 36
    )


def test_the_packed_kernel_writes_its_mask_as_a_window():
    """Sequences of 4, 16 and 4: 288 pairs, causal 156, with two before and one after 84."""
    inputs = {role: tensor(24, 2, 16) for role in ("query", "key", "value")}
    inputs["cu_seq_q"] = tensor(4, dtype="int32")
    lengths = {"q_lens": (4, 16, 4), "k_lens": (4, 16, 4)}
    # rows of 4: 2 + 3 + 4 + 3; of 16: 2 + 3 + 13 * 4 + 3
    for window, pairs in (((-1, -1), 288), ((-1, 0), 156), ((2, 1), 12 + 60 + 12)):
        options = {"window_size": window, **lengths}
        cost = cost_of("packed_attention", inputs, tensor(24, 2, 16), **options)
        assert cost.matrix_flops == 4 * 2 * 16 * pairs
        saved = {"grad_out": tensor(24, 2, 16), **inputs}
        back = cost_of("packed_attention_backward", saved, tensor(24, 2, 16), **options)
        assert back.matrix_flops == 10 * 2 * 16 * pairs


def test_packed_sequences_of_unknown_lengths_are_taken_as_equal():
    """100 tokens in 4 sequences: 4 * 25 * 25 pairs, causal 4 * 325."""
    inputs = {role: tensor(100, 2, 64) for role in ("query", "key", "value")}
    inputs["cum_seq_q"] = tensor(5, dtype="int32")
    cost = cost_of("flash_attention", inputs, tensor(100, 2, 64), is_causal=True)
    assert cost.dense_matrix_flops == 4 * 2 * 64 * 2500
    assert cost.matrix_flops == 4 * 2 * 64 * 4 * 325


def test_the_memory_efficient_kernel_names_its_mask_by_a_number():
    """custom_mask_type 1 is causal from the top left, 2 from the bottom right."""
    q = tensor(1, 2, 4, 16)
    inputs = {"query": q, "key": tensor(1, 6, 4, 16), "value": tensor(1, 6, 4, 16)}
    pairs = {0: 12, 1: 3, 2: 11}
    for kind, count in pairs.items():
        cost = cost_of("efficient_attention", inputs, q, custom_mask_type=kind)
        assert cost.matrix_flops == 4 * 4 * 16 * count


def test_one_tensor_as_query_key_and_value_is_read_once():
    """Attention of a tensor with itself, and of three slices of one projection."""
    x = tensor(1, 2, 64, 32)
    cost = cost_of("attention", {"query": x, "key": x, "value": x}, tensor(1, 2, 64, 32))
    assert cost.read_bytes == 2 * 64 * 32 * 4
    fused = tensor(1, 64, 3, 2, 32)
    parts = {
        role: strided(fused, (1, 2, 64, 32), (0, 32, 192, 1), i * 64)
        for i, role in enumerate(("query", "key", "value"))
    }
    cost = cost_of("attention", parts, tensor(1, 2, 64, 32))
    assert cost.read_bytes == 3 * 2 * 64 * 32 * 4


def test_encoder_layer_fast_path():
    """TransformerEncoderLayer(64, 4, 128) on (2, 16, 64): 2,228,224 FLOP."""
    inputs = {
        "src": tensor(2, 16, 64),
        "qkv_weight": tensor(192, 64),
        "proj_weight": tensor(64, 64),
        "ffn_weight_1": tensor(128, 64),
        "ffn_weight_2": tensor(64, 128),
    }
    cost = cost_of(
        "transformer_encoder_layer", inputs, tensor(2, 16, 64), embed_dim=64, num_heads=4
    )
    assert cost.matrix_flops == 2_228_224
    assert cost.read_bytes == (2048 + 12288 + 4096 + 8192 + 8192) * 4


def test_heads_that_do_not_fit_are_an_error():
    """Query heads are a multiple of those of K and V."""
    inputs = {
        "query": tensor(1, 6, 4, 8),
        "key": tensor(1, 4, 4, 8),
        "value": tensor(1, 4, 4, 8),
    }
    with pytest.raises(InputError, match="multiple of 4, got 6"):
        price(op("attention", inputs, tensor(1, 6, 4, 8)))
    with pytest.raises(InputError, match="multiple of kv_heads"):
        attention_forward(1, 6, 4, 4, 8, 2, kv_heads=4)
