"""What a signature, PTX and binaries say of a kernel's parameters."""

from __future__ import annotations

import pytest

from rooftile.errors import InputError
from rooftile.export.abi import Layout, agreed_layout, cubin_layout, hsaco_layout, ptx_layout
from rooftile.export.driver import binary_driver, ptx_driver

PTX = """
.visible .entry k(
    .param .u64 .ptr .global .align 1 k_param_0,
    .param .u32 k_param_1,
    .param .f32 k_param_2,
    .param .align 2 .b8 k_param_3[2],
    .param .u64 k_param_4
)
"""


def test_ptx_is_laid_out_as_c_lays_out_a_struct():
    """An 8-byte value behind 18 bytes stands at 24."""
    assert ptx_layout(PTX) == Layout("k", ((0, 8), (8, 4), (12, 4), (16, 2), (24, 8)))


def test_every_view_of_a_kernel_agrees(bundle, kernel):
    """exp-02: the manifest lists what PTX and CUBIN have, two hidden addresses at the end."""
    for symbol in ("softmax_fwd_bf16_n4096_sm80", "rms_norm_fwd_bf16_n4096_any_sm90"):
        listed = tuple((p.offset, p.bytes) for p in kernel(symbol).parameters)
        assert ptx_layout((bundle / f"{symbol}.ptx").read_text()) == Layout(symbol, listed)
        assert cubin_layout((bundle / f"{symbol}.cubin").read_bytes()) == Layout(symbol, listed)
        assert [p.role for p in kernel(symbol).parameters[-2:]] == ["scratch", "profile_scratch"]
    symbol = "softmax_fwd_bf16_n4096_gfx942"
    listed = tuple((p.offset, p.bytes) for p in kernel(symbol).parameters)
    assert hsaco_layout((bundle / f"{symbol}.hsaco").read_bytes()) == Layout(symbol, listed)


@pytest.mark.parametrize(
    ("ptx", "cubin", "said"),
    [
        (((0, 8), (8, 4)), ((0, 8), (8, 8)), "CUBIN has"),
        (((0, 8),), ((0, 8),), "its signature wants"),
        (((0, 8), (8, 4), (16, 8), (24, 8), (32, 8)), None, "its signature wants"),
        (((0, 8), (8, 4), (12, 4)), None, "its signature wants"),
        (((0, 8), (8, 8)), None, "its signature wants"),
    ],
)
def test_views_that_disagree_are_refused(ptx, cubin, said):
    """Too few parameters, too many, or of another size: each would be read past or astray."""
    layouts = {"PTX": Layout("k", ptx), "CUBIN": Layout("k", ptx if cubin is None else cubin)}
    with pytest.raises(InputError, match=said):
        agreed_layout("k", [("x_ptr", "*bf16"), ("n", "i32")], layouts)


def test_hidden_addresses_are_counted():
    """None, one or two, by the version of Triton."""
    for hidden in range(3):
        places = ((0, 8), (8, 4), *((16 + 8 * i, 8) for i in range(hidden)))
        layout = Layout("k", places)
        assert agreed_layout("k", [("x", "*i8"), ("n", "i32")], {"PTX": layout}) == (layout, hidden)


def test_drivers_are_those_of_the_release_notes():
    """exp-01: CUDA 12.4 reads PTX 8.4, 12.6 brought none, 12.8 reads 8.7, 13.0 reads 9.0."""
    versions = {"8.4": "12.4", "8.5": "12.5", "8.7": "12.8", "8.8": "12.9", "9.0": "13.0"}
    assert {version: ptx_driver(version) for version in versions} == versions
    assert binary_driver("12.8", 90) == "12.0"
    assert binary_driver("12.8", 100) == "12.8"
    assert binary_driver("13.4", 90) == "13.0"
    with pytest.raises(InputError, match="PTX version"):
        ptx_driver("6.4")
