"""Torch's layers and functions, each as a small call: what a model may be made of."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Call(NamedTuple):
    """A layer or function and its inputs; ``train`` where it has a gradient."""

    name: str
    function: Callable[..., Any]
    inputs: tuple[Tensor, ...]
    train: bool = True


def x(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """An input that wants a gradient."""
    return torch.zeros(*shape, dtype=dtype, requires_grad=True)


def positions(*shape: int) -> Tensor:
    """Indices."""
    return torch.zeros(*shape, dtype=torch.int64)


IMAGES = {1: (2, 4, 8), 2: (2, 4, 8, 8), 3: (2, 4, 8, 8, 8)}
# Layers of one to three dimensions, by their name without it.
BY_RANK: dict[str, dict[str, Any]] = {
    "Conv": {"in_channels": 4, "out_channels": 6, "kernel_size": 3},
    "ConvTranspose": {"in_channels": 4, "out_channels": 6, "kernel_size": 3},
    "MaxPool": {"kernel_size": 2, "return_indices": True},
    "AvgPool": {"kernel_size": 2},
    "LPPool": {"norm_type": 2, "kernel_size": 2},
    "AdaptiveMaxPool": {"output_size": 3},
    "AdaptiveAvgPool": {"output_size": 3},
    "ReflectionPad": {"padding": 1},
    "ReplicationPad": {"padding": 1},
    "CircularPad": {"padding": 1},
    "ConstantPad": {"padding": 1, "value": 0.5},
    "BatchNorm": {"num_features": 4},
    "InstanceNorm": {"num_features": 4, "affine": True, "track_running_stats": True},
    "Dropout": {},
}
ACTIVATIONS = """
ELU Hardshrink Hardsigmoid Hardtanh Hardswish LeakyReLU LogSigmoid PReLU ReLU ReLU6 RReLU SELU CELU
GELU Sigmoid SiLU Mish Softplus Softshrink Softsign Tanh Tanhshrink Dropout AlphaDropout
FeatureAlphaDropout GLU Flatten
"""
# Losses of two tensors of one shape, and what else they take.
LOSSES: dict[str, tuple[tuple[int, ...], ...]] = {
    **dict.fromkeys(("L1Loss", "MSELoss", "HuberLoss", "SmoothL1Loss"), ((2, 8),) * 2),
    **dict.fromkeys(("BCELoss", "BCEWithLogitsLoss"), ((2, 8),) * 2),
    **dict.fromkeys(("PoissonNLLLoss", "SoftMarginLoss"), ((2, 8),) * 2),
    **dict.fromkeys(("MultiLabelSoftMarginLoss", "HingeEmbeddingLoss"), ((2, 8),) * 2),
    "CosineEmbeddingLoss": ((2, 8), (2, 8), (2,)),
    "MarginRankingLoss": ((8,), (8,), (8,)),
    "TripletMarginLoss": ((2, 8), (2, 8), (2, 8)),
}
CLASSES = "CrossEntropyLoss NLLLoss MultiMarginLoss MultiLabelMarginLoss"


def layers() -> Iterator[Call]:
    """Modules of torch.nn."""
    for name, options in BY_RANK.items():
        for rank, shape in IMAGES.items():
            layer = getattr(nn, f"{name}{rank}d")(**options)
            yield Call(f"nn.{name}{rank}d", layer, (x(*shape),))
    for name in ACTIVATIONS.split():
        yield Call(f"nn.{name}", getattr(nn, name)(), (x(2, 8),))
    for name in ("Softmin", "Softmax", "LogSoftmax"):
        yield Call(f"nn.{name}", getattr(nn, name)(dim=-1), (x(2, 8),))
    for name in ("RNN", "LSTM", "GRU"):
        yield Call(f"nn.{name}", getattr(nn, name)(8, 8), (x(5, 2, 8),))
        yield Call(f"nn.{name}Cell", getattr(nn, f"{name}Cell")(8, 8), (x(2, 8),))
    for mode in ("sum", "mean", "max"):
        yield Call(f"nn.EmbeddingBag {mode}", nn.EmbeddingBag(9, 4, mode=mode), (positions(3, 2),))
    images, tokens = x(*IMAGES[2]), x(5, 2, 8)
    yield Call("nn.Unfold", nn.Unfold(2), (images,))
    yield Call("nn.Fold", nn.Fold((4, 4), 2, stride=2), (x(2, 16, 4),))
    yield Call("nn.FractionalMaxPool2d", nn.FractionalMaxPool2d(2, output_size=3), (images,))
    yield Call("nn.FractionalMaxPool3d", nn.FractionalMaxPool3d(2, output_size=3), (x(*IMAGES[3]),))
    yield Call("nn.GroupNorm", nn.GroupNorm(2, 4), (images,))
    yield Call("nn.LayerNorm", nn.LayerNorm(8), (images,))
    yield Call("nn.RMSNorm", nn.RMSNorm(8), (images,))
    yield Call("nn.LocalResponseNorm", nn.LocalResponseNorm(2), (images,))
    yield Call("nn.PixelShuffle", nn.PixelShuffle(2), (images,))
    yield Call("nn.PixelUnshuffle", nn.PixelUnshuffle(2), (images,))
    yield Call("nn.ChannelShuffle", nn.ChannelShuffle(2), (images,))
    yield Call("nn.Linear", nn.Linear(8, 8), (x(2, 8),))
    yield Call("nn.Bilinear", nn.Bilinear(4, 5, 6), (x(3, 4), x(3, 5)))
    yield Call("nn.Embedding", nn.Embedding(9, 4, padding_idx=0, max_norm=1.0), (positions(3),))
    yield Call("nn.MultiheadAttention", nn.MultiheadAttention(8, 2), (tokens, tokens, tokens))
    yield Call("nn.Transformer", nn.Transformer(8, 2, 1, 1, 16, batch_first=True), (tokens, tokens))
    yield Call("nn.CosineSimilarity", nn.CosineSimilarity(), (x(2, 8), x(2, 8)))
    weighted = torch.nn.utils.parametrizations.weight_norm(nn.Linear(8, 8))
    yield Call("weight_norm", weighted, (x(2, 8),))


def losses() -> Iterator[Call]:
    """Losses of torch.nn."""
    for name, shapes in LOSSES.items():
        first, *rest = shapes
        inputs = (x(*first), *(torch.ones(shape) for shape in rest))
        yield Call(f"nn.{name}", getattr(nn, name)(), inputs)
    for name in CLASSES.split():
        target = positions(2, 8) if name == "MultiLabelMarginLoss" else positions(2)
        yield Call(f"nn.{name}", getattr(nn, name)(), (x(2, 8), target))
    yield Call("nn.KLDivLoss", nn.KLDivLoss(reduction="batchmean"), (x(2, 8), torch.ones(2, 8)))
    smoothed = nn.CrossEntropyLoss(label_smoothing=0.1, weight=torch.ones(8))
    yield Call("nn.CrossEntropyLoss smoothed", smoothed, (x(2, 8), positions(2)))


MODES = {
    1: ("nearest", "nearest-exact", "linear", "area"),
    2: ("nearest", "nearest-exact", "bilinear", "bicubic", "area"),
    3: ("nearest", "nearest-exact", "trilinear", "area"),
}


def sampling() -> Iterator[Call]:
    """Interpolation, grids, unpooling, distances."""
    for rank, modes in MODES.items():
        for mode in modes:
            resize = partial(F.interpolate, scale_factor=0.5, mode=mode)
            yield Call(f"F.interpolate {rank} {mode}", resize, (x(*IMAGES[rank]),))
    for mode in ("bilinear", "bicubic"):
        resize = partial(F.interpolate, scale_factor=0.5, mode=mode, antialias=True)
        yield Call(f"F.interpolate {mode} antialiased", resize, (x(*IMAGES[2]),))
        sample = partial(F.grid_sample, mode=mode)
        yield Call(f"F.grid_sample {mode}", sample, (x(*IMAGES[2]), x(2, 3, 3, 2)))
    yield Call("F.grid_sample 3", F.grid_sample, (x(*IMAGES[3]), x(2, 3, 3, 3, 3)))
    yield Call("F.affine_grid", lambda m: F.affine_grid(m, [2, 4, 8, 8]), (x(2, 2, 3),))
    for rank in (1, 2, 3):
        pool = partial(getattr(F, f"max_pool{rank}d"), kernel_size=2, return_indices=True)
        unpool = partial(getattr(F, f"max_unpool{rank}d"), kernel_size=2)
        both = partial(lambda pool, unpool, t: unpool(*pool(t)), pool, unpool)
        yield Call(f"F.max_unpool{rank}d", both, (x(*IMAGES[rank]),))
    for p in (1.0, 2.0):
        yield Call(f"cdist {p}", partial(torch.cdist, p=p), (x(3, 4), x(5, 4)))
    yield Call("cdist by product", torch.cdist, (x(30, 4), x(50, 4)))
    yield Call("F.pdist", F.pdist, (x(5, 4),))
    yield Call("dist", torch.dist, (x(8), x(8)))
    yield Call("F.one_hot", partial(F.one_hot, num_classes=5), (positions(3),), train=False)


ONE_TENSOR = """
abs acos acosh angle asin asinh atan atanh ceil cos cosh cummax cumprod cumsum deg2rad diag
diag_embed diagonal digamma diff erf erfc erfinv exp exp2 expm1 flatten floor frac frexp i0 lgamma
log log10 log1p log2 logcumsumexp logit logsumexp max mean median min mode msort nan_to_num nanmean
nanmedian nansum neg norm prod rad2deg reciprocal renorm rot90 round rsqrt sgn sigmoid sign sin sinc
sinh sort sqrt square std std_mean sum tan tanh trace tril triu trunc unbind var var_mean
"""
DIMENSION = "cummax cumprod cumsum logcumsumexp logsumexp"
NO_GRADIENT = """
all any argmax argmin argsort bernoulli count_nonzero histc isfinite isinf isnan isreal signbit
"""
TWO_TENSORS = """
add atan2 complex copysign div dot fmod heaviside hypot isin logaddexp maximum mul nextafter outer
polar pow remainder searchsorted sub vdot xlogy
"""


def functions() -> Iterator[Call]:
    """Functions of torch: pointwise, reductions, sorts."""
    options: dict[str, dict[str, float]] = {name: {"dim": 0} for name in DIMENSION.split()}
    options["renorm"] = {"p": 2, "dim": 0, "maxnorm": 1.0}
    for name in ONE_TENSOR.split():
        function = partial(getattr(torch, name), **options.get(name, {}))
        yield Call(name, function, (x(8, 8),))
    for name in NO_GRADIENT.split():
        yield Call(name, getattr(torch, name), (torch.ones(8, 8),), train=False)
    for name in TWO_TENSORS.split():
        train = name not in ("heaviside", "isin", "searchsorted", "nextafter")
        inputs = (x(8), x(8)) if train else (torch.ones(8), torch.ones(8))
        yield Call(name, getattr(torch, name), inputs, train)
    for name in ("addcmul", "addcdiv", "lerp"):
        yield Call(name, getattr(torch, name), (x(8), x(8), x(8)))
    yield Call("multinomial", partial(torch.multinomial, num_samples=2), (torch.ones(8),), False)
    yield Call("quantile", partial(torch.quantile, q=0.5), (x(8),))
    yield Call("kthvalue", partial(torch.kthvalue, k=2), (x(8, 8),))
    yield Call("topk", partial(torch.topk, k=2), (x(8, 8),))
    yield Call("cross", torch.linalg.cross, (x(2, 3), x(2, 3)))
    yield Call("block_diag", torch.block_diag, (x(2, 2), x(3, 3)))
    yield Call("repeat_interleave", lambda t: t.repeat_interleave(2, 0), (x(8),))
    yield Call("special polynomial", torch.special.hermite_polynomial_h, (x(8), x(8)), False)


def indexing() -> Iterator[Call]:
    """Reads and writes by index and mask."""
    table, rows = x(8, 8), x(3, 8)
    several, three = positions(3, 8), torch.arange(3)
    yield Call("gather", lambda t, i: t.gather(0, i), (table, several))
    yield Call("take", torch.take, (table, three))
    yield Call("scatter", lambda t, i, s: t.scatter(0, i, s), (table, several, rows))
    for how in ("sum", "prod", "mean", "amax"):
        reduce = partial(lambda how, t, i, s: t.scatter_reduce(0, i, s, how), how)
        yield Call(f"scatter_reduce {how}", reduce, (table, several, rows))
    for how in ("prod", "mean", "amax"):
        reduce = partial(lambda how, t, i, s: t.index_reduce(0, i, s, how), how)
        yield Call(f"index_reduce {how}", reduce, (table, three, rows))
    for name in ("index_add", "index_copy"):
        write = partial(lambda name, t, i, s: getattr(t, name)(0, i, s), name)
        yield Call(name, write, (table, three, rows))
    yield Call("index_fill", lambda t, i: t.index_fill(0, i, 0.0), (table, three))
    yield Call("index_select", lambda t, i: t.index_select(0, i), (table, three))
    yield Call("index_put", lambda t, i, s: t.index_put((i,), s), (table, three, rows))
    yield Call("index", lambda t, i: t[i], (table, three))
    yield Call("put", lambda t, i, s: t.put(i, s), (table, three, x(3)))
    yield Call("masked_fill", lambda t: t.masked_fill(t > 0, 1.0), (table,))
    yield Call("masked_scatter", lambda t, s: t.masked_scatter(t > 0, s), (table, x(8, 8)))
    yield Call("slice_scatter", lambda t, s: t.slice_scatter(s, 0, 0, 3), (table, rows))
    yield Call("diagonal_scatter", lambda t, s: t.diagonal_scatter(s), (table, x(8)))


MATRIX = """
cholesky cond det eig eigh inv lu lu_factor matrix_exp matrix_norm matrix_power pinv qr slogdet svd
"""


def algebra() -> Iterator[Call]:
    """Linear algebra and Fourier transforms."""
    a, b = x(2, 4, 4), x(2, 4, 4)
    for name in MATRIX.split():
        options = {"n": 3} if name == "matrix_power" else {}
        yield Call(f"linalg.{name}", partial(getattr(torch.linalg, name), **options), (a,))
    yield Call("linalg.ldl_factor", torch.linalg.ldl_factor, (a.detach(),), train=False)
    yield Call("geqrf", torch.geqrf, (a.detach(),), train=False)
    yield Call("linalg.solve", torch.linalg.solve, (a, b))
    yield Call("solve_triangular", partial(torch.linalg.solve_triangular, upper=True), (a, b))
    yield Call("triangular_solve", torch.triangular_solve, (a, b))
    yield Call("cholesky_solve", torch.cholesky_solve, (a, b))
    yield Call("cholesky_inverse", torch.cholesky_inverse, (a,))
    yield Call("householder_product", torch.linalg.householder_product, (x(4, 4), x(4)))
    yield Call("ormqr", torch.ormqr, (x(4, 4), x(4), x(4, 4)))
    yield Call("addbmm", torch.addbmm, (x(4, 4), a, b))
    yield Call("addmv", torch.addmv, (x(4), x(4, 8), x(8)))
    yield Call("addr", torch.addr, (x(4, 8), x(4), x(8)))
    yield Call("einsum", partial(torch.einsum, "bij,bjk->bik"), (a, b))
    complex_line = x(5, dtype=torch.complex64)
    for name in ("fft", "fft2", "rfft", "hfft"):
        yield Call(f"fft.{name}", getattr(torch.fft, name), (x(8, 8),))
    yield Call("fft.irfft", torch.fft.irfft, (complex_line,))
    stft = partial(torch.stft, n_fft=8, return_complex=True, window=torch.ones(8))
    yield Call("stft", stft, (x(64),))


def steps() -> Iterator[Call]:
    """Optimisers, one tensor at a time, over lists, and fused."""
    fused = ("SGD", "Adam", "AdamW", "Adagrad")
    others = ("Adadelta", "Adamax", "NAdam", "RAdam", "RMSprop")
    for kind, names in (("foreach", fused + others), ("fused", fused)):
        for name in names:
            yield Call(f"{name} {kind}", partial(_step, name, kind), (torch.ones(8, 8),), False)


def _step(name: str, kind: str, weight: Tensor) -> Tensor:
    parameter = nn.Parameter(weight.detach())
    momentum = {"momentum": 0.9} if name in ("SGD", "RMSprop") else {}
    optimizer = getattr(torch.optim, name)([parameter], lr=0.1, **momentum, **{kind: True})
    parameter.grad = torch.ones_like(parameter)
    for _ in range(2):
        optimizer.step()
    return parameter


def calls() -> list[Call]:
    """All of them."""
    families = (layers, losses, sampling, functions, indexing, algebra, steps)
    return [call for family in families for call in family()]
