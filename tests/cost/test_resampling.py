"""Interpolation and grid sampling read what they touch: by hand, and by torch's own taps."""

from __future__ import annotations

import pytest
from ops_by_hand import cost_of, op, tensor

from rooftile.cost.formulas.resampling import places_touched
from rooftile.cost.graph import price
from rooftile.errors import InputError


@pytest.mark.parametrize(
    ("name", "size", "out", "attrs", "places"),
    [
        ("upsample_nearest2d", 16, 4, {}, 4),  # 0, 4, 8, 12
        ("upsample_nearest_exact2d", 16, 4, {}, 4),  # 2, 6, 10, 14
        ("upsample_nearest2d", 4, 16, {}, 4),
        ("upsample_bilinear2d", 16, 4, {}, 8),  # 1.5, 5.5, ...: two each
        ("upsample_bilinear2d", 16, 8, {}, 16),
        ("upsample_bilinear2d", 9, 3, {"align_corners": True}, 5),  # 0 1, 4 5, 8
        ("upsample_bilinear2d", 10, 3, {"scales_h": 0.25, "scales_w": 0.25}, 5),  # 1.5, 5.5, 9
        ("upsample_bicubic2d", 32, 4, {}, 16),  # 3.5, 11.5, ...: four each
        ("upsample_bicubic2d", 4, 16, {}, 4),
    ],
)
def test_down_sampling_reads_the_places_it_touches(name, size, out, attrs, places):
    """Two channels of float32: 8 bytes a touched place, never more than the image."""
    x, y = tensor(1, 2, size, size), tensor(1, 2, out, out)
    assert cost_of(name, {"self": x}, y, **attrs).read_bytes == places * places * 8


def test_nearest_from_2048_bytes_to_128():
    """16 x 16 to 4 x 4 of two channels copies 32 elements."""
    cost = cost_of("upsample_nearest2d", {"self": tensor(1, 2, 16, 16)}, tensor(1, 2, 4, 4))
    assert (cost.flops, cost.read_bytes, cost.write_bytes) == (0, 128, 128)


def test_one_and_three_dimensions():
    """Linear 16 to 4 reads 8 of a line, 512 of a volume; 2 and 8 taps a result."""
    line = cost_of("upsample_linear1d", {"self": tensor(1, 1, 16)}, tensor(1, 1, 4))
    assert (line.vector_flops, line.read_bytes) == (4 * 4, 32)
    volume = {"self": tensor(1, 1, 16, 16, 16)}
    cost = cost_of("upsample_trilinear3d", volume, tensor(1, 1, 4, 4, 4))
    assert (cost.vector_flops, cost.read_bytes) == (16 * 64, 512 * 4)


def test_a_scale_factor_list_of_an_exported_program():
    """The overload that carries both scale factors as a list."""
    x, y = tensor(1, 1, 10, 10), tensor(1, 1, 3, 3)
    cost = cost_of("upsample_bilinear2d", {"input": x}, y, scale_factors=(0.25, 0.25))
    assert cost.read_bytes == 25 * 4
    with pytest.raises(InputError, match="scale_factors must be 2 numbers"):
        price(op("upsample_bilinear2d", {"input": x}, y, scale_factors=(0.25,)))


@pytest.mark.parametrize(
    ("name", "taps"),
    [
        ("upsample_bilinear2d_aa", 6 + 8 + 8 + 6),  # 4 places either side of 2, 6, 10, 14
        ("upsample_bicubic2d_aa", 10 + 14 + 14 + 10),
        ("upsample_lanczos2d_aa", 14 + 16 + 16 + 14),  # twelve either side, cut to 16
    ],
)
def test_an_antialiased_filter_is_as_wide_as_its_scale(name, taps):
    """16 x 16 to 4 x 4: a multiply-add for each pair of a row's and a column's taps, both ways."""
    x, y = tensor(1, 2, 16, 16), tensor(1, 2, 4, 4)
    forward = cost_of(name, {"self": x}, y)
    assert (forward.vector_flops, forward.read_bytes) == (2 * 2 * taps**2, 2048)
    backward = cost_of(f"{name}_backward", {"grad_output": y}, x)
    assert (backward.vector_flops, backward.read_bytes) == (2 * 2 * taps**2, 128)
    assert backward.write_bytes == 2048


def test_an_antialiased_enlargement_has_the_plain_filter():
    """4 to 8 with two taps: 2, but for the ends, where one falls outside."""
    cost = cost_of("upsample_bilinear2d_aa", {"self": tensor(1, 1, 4, 4)}, tensor(1, 1, 8, 8))
    assert cost.vector_flops == 2 * (8 * 2 - 2) ** 2


def test_a_grid_reads_its_points():
    """9 points of a 400 x 400 image: 4 corners of 2 channels each, and the grid."""
    inputs = {"input": tensor(1, 2, 400, 400), "grid": tensor(1, 3, 3, 2)}
    cost = cost_of("grid_sample2d", inputs, tensor(1, 2, 3, 3), interpolation_mode=0)
    assert (cost.vector_flops, cost.read_bytes, cost.write_bytes) == (8 * 18, 288 + 72, 72)
    nearest = cost_of("grid_sample2d", inputs, tensor(1, 2, 3, 3), interpolation_mode=1)
    assert (nearest.vector_flops, nearest.read_bytes) == (0, 72 + 72)
    cubic = cost_of("grid_sample2d", inputs, tensor(1, 2, 3, 3), interpolation_mode=2)
    assert (cubic.vector_flops, cubic.read_bytes) == (32 * 18, 16 * 72 + 72)


def test_a_fine_grid_reads_the_image_once():
    """100 x 100 points over 4 x 4 places."""
    inputs = {"input": tensor(1, 1, 4, 4), "grid": tensor(1, 100, 100, 2)}
    cost = cost_of("grid_sample2d", inputs, tensor(1, 1, 100, 100))
    assert cost.read_bytes == 64 + 80_000


def test_a_volume_has_eight_corners():
    """One point of a volume of three channels."""
    inputs = {"input": tensor(1, 3, 50, 50, 50), "grid": tensor(1, 1, 1, 1, 3)}
    cost = cost_of("grid_sample3d", inputs, tensor(1, 3, 1, 1, 1))
    assert (cost.vector_flops, cost.read_bytes) == (2 * 8 * 3, 8 * 3 * 4 + 12)


@pytest.mark.parametrize(
    ("mode", "wanted", "flops", "read"),
    [
        (0, (True, True), 18 * (8 + 16), 72 + 72 + 288),
        (0, (True, False), 18 * 8, 72 + 72),
        (0, (False, True), 18 * 16, 72 + 72 + 288),
        (1, (True, True), 18, 72 + 72),  # an addition; the grid's gradient is zeros
    ],
)
def test_a_grid_s_gradients(mode, wanted, flops, read):
    """The image's adds a tap each; the grid's multiplies each tap a dimension and reads samples."""
    inputs = {
        "grad_output": tensor(1, 2, 3, 3),
        "input": tensor(1, 2, 400, 400),
        "grid": tensor(1, 3, 3, 2),
    }
    grads = (tensor(1, 2, 400, 400), tensor(1, 3, 3, 2))
    outputs = tuple(t for t, w in zip(grads, wanted, strict=True) if w)
    cost = cost_of(
        "grid_sample2d_backward", inputs, outputs, interpolation_mode=mode, output_mask=wanted
    )
    assert (cost.vector_flops, cost.read_bytes) == (flops, read)
    assert cost.write_bytes == 1_280_000 * wanted[0] + 72 * wanted[1]


def test_an_affine_grid():
    """Each coordinate of a point is a row of three times its homogeneous coordinates."""
    cost = cost_of("affine_grid", {"theta": tensor(2, 2, 3)}, tensor(2, 8, 8, 2))
    assert (cost.matrix_flops, cost.bytes) == (2 * 3 * 256, 48 + 1024)


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact", "linear", "bicubic"])
@pytest.mark.parametrize(("size", "out"), [(7, 3), (16, 4), (5, 11), (40, 7), (9, 1)])
def test_torch_touches_no_other_places(mode, size, out):
    """Where torch's own result depends on an element, that element is counted as read."""
    torch = pytest.importorskip("torch")
    x = torch.rand(1, 1, size, size if mode == "bicubic" else 1, requires_grad=True)
    if mode == "bicubic":
        y = torch.nn.functional.interpolate(x, (out, out), mode=mode)
        depended = int((torch.autograd.grad(y.square().sum(), x)[0] != 0).any(-1).sum())
    else:
        y = torch.nn.functional.interpolate(x[..., 0], out, mode=mode)
        depended = int((torch.autograd.grad(y.square().sum(), x)[0] != 0).sum())
    kind = {"nearest-exact": "nearest_exact", "bicubic": "cubic"}.get(mode, mode)
    counted = places_touched(size, out, kind)
    # a tap of weight 0 is read, and nothing depends on it
    assert depended <= counted <= (depended if mode.startswith("nearest") else size)
