"""The benchmark of attention: its truth by parts, peers, the kernel by hand, claims beside it."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import measurements
import pytest
import torch
import torch.nn.functional as F

from rooftile.api.benchmark import claims_beside
from rooftile.bench import attention_peers, cuda_attention, gate, nvrtc
from rooftile.bench.attention_form import Form
from rooftile.bench.attention_rounding import gradient_rounding
from rooftile.bench.cases import attention as cases
from rooftile.bench.peers import known_peers, providers
from rooftile.errors import InputError, MissingDependencyError, RooftileError

ARTICLE = (16, 32, 4096, 128)


@pytest.fixture
def library():
    """NVRTC, where it is installed."""
    try:
        return nvrtc.compile_cuda("", "sm_90", {})
    except MissingDependencyError:
        pytest.skip("libnvrtc is not installed; torch's CUDA wheels bring it")


@pytest.mark.parametrize("direction", ["forward", "backward"])
@pytest.mark.parametrize("case", cases.CASES, ids=lambda case: case.label)
def test_the_truth_by_parts_is_the_truth(case, direction, monkeypatch):
    """Four heads in four parts give what the definition gives, gradients too."""
    monkeypatch.setattr(cases, "_PART", 33 * 33)
    inputs = case.inputs(case.sizes((1, 4, 33, 16)), torch.float32, "cpu")
    grads = gate.output_grads(case, inputs, direction)
    parts = gate.truth(case, inputs, grads, direction)
    whole = gate.truth(replace(case, by_parts=None), inputs, grads, direction)
    assert len(parts.results) == (1 if direction == "forward" else 3)
    for got, want in zip(parts.results, whole.results, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("case", cases.CASES, ids=lambda case: case.label)
def test_the_definition_is_that_of_torch(case):
    """torch's own attention with the mask written out and each key's head given to its queries."""
    q, k, v = (t.detach() for t in case.inputs(case.sizes((2, 8, 32, 16)), torch.float64, "cpu"))
    row, col = torch.arange(32)[:, None], torch.arange(32)
    seen = {
        "": torch.ones(32, 32, dtype=torch.bool),
        "causal": col <= row,
        "gqa": col <= row,
        "window": (col <= row) & (row - col <= 4),  # an eighth of 32 before its own place
    }[case.variant]
    assert k.shape[1] == (2 if case.variant == "gqa" else 8)
    want = F.scaled_dot_product_attention(q, k, v, attn_mask=seen, enable_gqa=True)
    torch.testing.assert_close(case.reference(q, k, v), want, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("variant", "pairs", "kv_heads"),
    [("", 32 * 32, 8), ("causal", 528, 8), ("gqa", 528, 2), ("window", 1 + 2 + 3 + 4 + 28 * 5, 8)],
)
def test_work_is_that_of_the_pairs_that_see_each_other(variant, pairs, kv_heads):
    """4 FLOP a pair and column forward, 10 backward; keys and values at their own heads."""
    case = next(case for case in cases.CASES if case.variant == variant)
    dims = case.sizes((2, 8, 32, 16))
    forward, backward = (case.costs[name](dims, 2) for name in ("forward", "backward"))
    assert forward.matrix_flops == 4 * 2 * 8 * pairs * 16
    assert backward.matrix_flops == 10 * 2 * 8 * pairs * 16
    assert forward.read_bytes == 2 * (8 + 2 * kv_heads) * 32 * 16 * 2


@pytest.mark.parametrize(("heads", "kv_heads"), [(8, 2), (6, 3), (5, 5), (1, 1)])
def test_heads_that_do_not_divide_by_four_are_shared_by_fewer(heads, kv_heads):
    """So that every form runs at every shape."""
    case = next(case for case in cases.CASES if case.variant == "gqa")
    q, k, v = case.inputs(case.sizes((1, heads, 16, 16)), torch.float32, "cpu")
    assert (q.shape[1], k.shape[1], v.shape[1]) == (heads, kv_heads, kv_heads)
    assert case.cost("forward", (1, heads, 16, 16), 4).read_bytes == 4 * 256 * (
        heads + 2 * kv_heads
    )


def test_peers_without_a_form_are_left_out():
    """torch's backends take no window, the kernel by hand neither it nor shared heads."""
    names = {case.variant: set(case.peers) for case in cases.CASES}
    assert names[""] == names["causal"] == {"flash2", "cudnn", "flex", "cuda", "flash-attn-4"}
    assert names["gqa"] == {"flash2", "cudnn", "flex", "flash-attn-4"}
    assert names["window"] == {"flex", "flash-attn-4"}


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize("variant", ["causal", "gqa", "window"])
def test_flex_attention_sees_what_the_definition_sees(variant, monkeypatch):
    """The mask and the shared heads that it is given, run uncompiled."""
    monkeypatch.setattr(torch, "compile", lambda function, **options: function)
    case = next(case for case in cases.CASES if case.variant == variant)
    q, k, v = (t.detach() for t in case.inputs(case.sizes((1, 4, 128, 16)), torch.float32, "cpu"))
    got = case.peers["flex"].load()(q, k, v)
    torch.testing.assert_close(got, case.reference(q, k, v), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("variant", ["", "causal", "gqa", "window"])
def test_flash_attention_4_is_asked_for_the_same(variant, monkeypatch):
    """Its window is a pair of keys before and after; without one, the causal switch."""
    asked = []

    def flash_attn_func(q, k, v, **options):
        asked.append((tuple(q.shape), tuple(k.shape), options))
        return q, None

    library = SimpleNamespace(flash_attn_func=flash_attn_func)
    monkeypatch.setattr(attention_peers, "import_module", {"flash_attn.cute": library}.__getitem__)
    case = next(case for case in cases.CASES if case.variant == variant)
    q, k, v = case.inputs(case.sizes((1, 4, 32, 16)), torch.float32, "cpu")
    assert case.peers["flash-attn-4"].load()(q, k, v).shape == q.shape
    window = (4, 0) if variant == "window" else (None, None)
    options = {"causal": variant in ("causal", "gqa"), "window_size": window}
    assert asked == [((1, 32, 4, 16), (1, 32, 1 if variant == "gqa" else 4, 16), options)]


def test_the_truth_holds_few_scores_at_a_time(monkeypatch):
    """At the article's shape 16 heads of 512: the whole in float64 would be 69 GB."""
    seen = []

    def reference(q, k, v):
        seen.append(q.shape[0])
        return q

    monkeypatch.setattr(cases, "_reference", lambda form: reference)
    q = torch.empty(ARTICLE, device="meta")
    with torch.no_grad():
        cases._by_parts(Form())(q, q, q)
    assert seen == [16] * 32


def test_all_peers_of_attention_run_unless_some_are_named():
    """The article's two, torch's backends, FlexAttention and FlashAttention-4."""
    case = cases.CASES[0]
    names = list(providers(case, known_peers([case])))
    assert names[0] == "rooftile"
    assert set(names[1:]) == {
        "eager", "compile", "flash2", "cudnn", "flex", "flash-attn-4", "cuda",
    }  # fmt: skip


def test_the_articles_shape_comes_first():
    """Batch 16, 32 heads, 4096 tokens, head dim 128, in both passes, full and causal."""
    for case in cases.CASES[:2]:
        assert case.shapes["forward"][0] == case.shapes["backward"][0] == ARTICLE


def test_claims_stand_beside_what_was_measured():
    """Both of the article's rows at its shape, impossible each; none at other shapes or ops."""
    shape = dict(zip("BHSD", ARTICLE, strict=True))
    row = measurements.measurement(op="attention", shape=shape)
    found = claims_beside([row, row])
    assert [report.answer for report in found.reports] == ["impossible", "impossible"]
    assert [report.claim.time_s for report in found.reports] == pytest.approx([4.82e-3, 1.14e-3])
    assert claims_beside([replace(row, shape={**shape, "S": 1024})]).reports == ()
    assert claims_beside([replace(row, op="mine"), *measurements.sweep()]).reports == ()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.float(), "head dim of 64, 128, 256 in 16 bits, got 64 in torch.float32"),
        (lambda t: t[..., :32].contiguous(), "got 32 in torch.bfloat16"),
        (lambda t: t.transpose(1, 2), "query, key and value must be contiguous and of one dtype"),
    ],
)
def test_the_kernel_by_hand_refuses_what_it_cannot(change, message):
    """Before anything is compiled."""
    t = change(torch.zeros(1, 2, 8, 64, dtype=torch.bfloat16))
    with torch.no_grad(), pytest.raises(InputError, match=message):
        cuda_attention.cuda_attention(False)(t, t, t)


def test_the_kernel_by_hand_has_a_forward_alone():
    """Its row in a backward says so."""
    t = torch.zeros(1, 2, 8, 64, dtype=torch.bfloat16, requires_grad=True)
    with pytest.raises(InputError, match="direction must be forward: the kernel by hand"):
        cuda_attention.cuda_attention(False)(t, t, t)


def test_without_its_source_the_kernel_is_not_installed(monkeypatch, tmp_path):
    """As a library that is not there."""
    monkeypatch.setattr(cuda_attention, "_SOURCES", (tmp_path / "attention.cu",))
    with pytest.raises(ImportError, match=r"no attention\.cu at"):
        cuda_attention.cuda_attention(False)


def test_without_nvrtc_the_error_says_what_is_missing(monkeypatch):
    """And where it was looked for."""
    monkeypatch.setattr(nvrtc, "_libraries", list)
    monkeypatch.setattr(nvrtc.ctypes, "CDLL", lambda name: (_ for _ in ()).throw(OSError(name)))
    nvrtc._nvrtc.cache_clear()
    with pytest.raises(MissingDependencyError, match="needs libnvrtc, which comes with torch"):
        nvrtc.compile_cuda("", "sm_90", {})
    nvrtc._nvrtc.cache_clear()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("width", [64, 128, 256])
def test_the_kernel_by_hand_compiles(width, causal, dtype, library):
    """To a CUBIN, an ELF file, for the oldest GPU it is for and for Hopper."""
    keys, tiles = cuda_attention._TILES[width]
    given = cuda_attention.defines(width, keys, tiles, causal, dtype)
    for arch in ("sm_80", "sm_90"):
        cubin = nvrtc.compile_cuda(cuda_attention.source(), arch, given)
        assert cubin[:4] == b"\x7fELF"
        assert b"attention_forward" in cubin


def test_what_does_not_compile_is_told_as_the_compiler_tells_it(library):
    """With the line."""
    with pytest.raises(RooftileError, match=r'kernel.cu\(2\): error: identifier "x" is undefined'):
        nvrtc.compile_cuda("\n__global__ void f() { x = 1; }", "sm_90", {})


@pytest.mark.parametrize(("units", "passes"), [(0, True), (64, False)])
@pytest.mark.parametrize("case", cases.CASES, ids=lambda case: case.label)
@pytest.mark.parametrize("result", [0, 1, 2, 3])
def test_one_element_some_units_off_does_not_pass(result, case, units, passes):
    """The largest element of a result times 1 + 64 e: its bound is of what cancels, and tight."""
    torch.manual_seed(3)
    inputs = case.inputs(case.sizes(case.small[0]), torch.float32, "cpu")
    grads = gate.output_grads(case, inputs, "forward_backward")
    known = gate.truth(case, inputs, grads, "forward_backward")
    _, got = gate.evaluate(case.reference, gate.own_inputs(inputs), grads, "forward_backward")
    wrong = got[result].detach().clone()
    wrong.view(-1)[wrong.abs().argmax()] *= 1 + units * torch.finfo(torch.float32).eps
    check = gate.check(case, "forward_backward", (*got[:result], wrong, *got[result + 1 :]), known)
    assert check.passed == passes, check.detail
    assert passes or f"result {result}" in check.detail
    assert passes or "worst element" in check.detail


def test_one_key_gives_the_rounding_that_cancelling_leaves():
    """With one key dS is 0: float32's rounding is within the bound, delta 64 units off is not."""
    torch.manual_seed(4)
    q, k, v, do = (torch.randn(40, n, 16) for n in (4, 1, 1, 4))
    exact = (t.double() for t in (q, k, v, do))
    _, bound, _ = gradient_rounding(*exact, torch.ones(4, 1, dtype=torch.bool))
    dp = do @ v.transpose(-1, -2)
    delta = (do.flip(-1) * v.flip(-1)).sum(-1, keepdim=True)  # in another order

    def dk(off):
        return ((dp - delta * (1 + off)).transpose(-1, -2) @ q / 4).abs()

    assert dk(0).max() > 0
    assert (dk(0) <= bound).all()
    assert not (dk(64 * torch.finfo(torch.float32).eps) <= bound).all()
