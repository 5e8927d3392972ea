"""Pointwise ops: FLOP an element of the result.

Convention: 1 for an addition, subtraction, multiplication, division, comparison, selection, logical
or bit operation, rounding, root, power and every transcendental function (exp, log, tanh, erf ...);
0 for a copy. Compound functions are spelled out, with what is known of their arguments: sigmoid is
negate, exp, add, divide; SiLU one product more; GELU is x * 0.5 * (1 + erf(x / sqrt 2)), or its
tanh form with 9. Drawing a random number is 0.

Complex ops are spelled out in real ones: ``arithmetic`` has sums and products, a modulus is 4, exp
the real exp, a sine, a cosine and two products. What no line has counts twice the real op.

An op over a list of tensors (``foreach``) costs the sum over them, in one launch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from rooftile.cost.formulas.arithmetic import addition, is_complex, product, quotient
from rooftile.cost.formulas.operands import Formula, cost, flag, number, operand, result
from rooftile.records.cost import Cost
from rooftile.records.graph import Op

# FLOP -> ops, each with what it computes where that is not one operation
_TABLE: dict[int, str] = {
    0: "complex",  # two parts side by side
    1: """
    abs acos acosh angle asin asinh atan atan2 atanh bitwise_and bitwise_left_shift bitwise_not
    bitwise_or bitwise_right_shift bitwise_xor ceil clamp_max clamp_min conj_physical
    copysign cos cosh deg2rad digamma div eq erf erfc erfinv exp exp2 expm1 floor floor_divide fmax
    fmin fmod frac gcd ge gt heaviside i0 igamma igammac isfinite isinf isnan isneginf isposinf lcm
    le lgamma log log10 log1p log2 logical_and logical_not logical_or logical_xor lt masked_fill
    maximum minimum mul mvlgamma ne neg nextafter polygamma pow rad2deg reciprocal relu remainder
    round rsqrt sgn sign signbit sin sinc sinh special_airy_ai special_bessel_j0 special_bessel_j1
    special_bessel_y0 special_bessel_y1 special_entr special_erfcx special_i0e special_i1
    special_i1e special_log_ndtr special_modified_bessel_i0 special_modified_bessel_i1
    special_modified_bessel_k0 special_modified_bessel_k1 special_ndtri
    special_scaled_modified_bessel_k0 special_scaled_modified_bessel_k1 special_spherical_bessel_j0
    special_zeta sqrt square sub tan tanh threshold threshold_backward trunc where
    """,
    2: """
    add_relu dropout_backward float_power frexp hardtanh hardtanh_backward hardshrink
    hardshrink_backward ldexp leaky_relu leaky_relu_backward masked_scale prelu relu6
    softshrink softshrink_backward special_xlog1py xlogy
    """,
    3: "cross dropout elu nan_to_num prelu_backward sigmoid_backward tanh_backward",
    4: "celu elu_backward hardsigmoid hardsigmoid_backward hypot polar selu sigmoid softplus",
    5: "glu hardswish hardswish_backward logaddexp logaddexp2 silu softplus_backward",
    6: "log_sigmoid mish",  # min, abs, neg, exp, log1p, sub; softplus 4, tanh, times x
    7: "log_sigmoid_backward",
    9: "silu_backward",  # sigmoid 4, then g * s * (1 + x * (1 - s))
    15: "mish_backward",
}
# Ops whose count depends on their arguments: GELU, clamp, those with a factor.
_GELU, _GELU_TANH = 5, 9
_GELU_BACKWARD, _GELU_TANH_BACKWARD = 11, 18
# dsigmoid: sigmoid 4, g * s, (1 - s) * s * a * g: per element of the half-width gradient
_GLU_BACKWARD = 9
# The same of complex numbers: real FLOP.
_COMPLEX_TABLE: dict[int, str] = {
    1: "angle conj_physical masked_fill where",
    2: "neg",
    3: "eq ne",
    4: "abs",  # two squares, their sum, its root
    5: "exp",
    6: "log mul reciprocal sgn sin sinh square expm1",
    7: "cos cosh exp2 log1p",
    8: "log10 log2",
    9: "tan tanh",
    11: "div sqrt",  # sqrt: modulus, its root, half the angle, sine and cosine of it, two products
    12: "rsqrt",
    14: "sigmoid",  # neg, exp, add, reciprocal
    15: "sigmoid_backward tanh_backward",
    17: "pow",  # log, product, exp
    20: "silu",
}
_COMPLEX = {name: flops for flops, names in _COMPLEX_TABLE.items() for name in names.split()}


def of_one(names: Iterable[str]) -> int:
    """FLOP of a chain of ops on one element, by their names: 0 for what gathers, copies or fills.

    A sum with a factor counts as one without, and adding into a gathered place as a sum.
    """
    return sum(_FIXED.get(name, name in ("add", "sub", "rsub", "index_put")) for name in names)


def elements(op: Op) -> int:
    """Elements the op computes: of its first result, of all of them where it works on lists."""
    if not op.name.startswith("foreach_"):
        return result(op).numel
    filled = op.outputs or tuple(o.tensor for o in op.inputs if o.writes)
    return sum(t.numel for t in filled or (result(op),))


def _fixed(op: Op, per_element: int) -> Cost:
    if any(map(is_complex, op.reads)):
        per_element = _COMPLEX.get(op.name.removeprefix("foreach_"), 2 * per_element)
    return cost(op, f"pointwise.{op.name}", vector=per_element * elements(op))


def _by_arguments(op: Op, count: Callable[[Op], int]) -> Cost:
    return cost(op, f"pointwise.{op.name}", vector=count(op) * elements(op))


def _scaled_sum(op: Op) -> int:
    """self + alpha * other."""
    z = result(op)
    return addition(z) + product(z) * (number(op, "alpha", 1) != 1)


def _scaled(op: Op) -> int:
    """FLOP of the factor of :func:`_product_sum`."""
    value = op.attrs.get("value", op.attrs.get("scalars", 1))
    return product(result(op)) * (value != 1 or op.operand("scalars") is not None)


def _product_sum(op: Op) -> int:
    """self + value * a * b."""
    z = result(op)
    return addition(z) + product(z) + _scaled(op)


def _quotient_sum(op: Op) -> int:
    """self + value * a / b."""
    z = result(op)
    return addition(z) + quotient(z) + _scaled(op)


def _lerp(op: Op) -> int:
    """self + weight * (end - self)."""
    z = result(op)
    return 2 * addition(z) + product(z)


def _clamp(op: Op) -> int:
    """One comparison for each bound."""
    given = [op.attrs.get(bound) is not None or op.operand(bound) for bound in ("min", "max")]
    return max(1, sum(map(bool, given)))


def _gelu(op: Op) -> int:
    return _GELU_TANH if op.attrs.get("approximate") == "tanh" else _GELU


def _gelu_backward(op: Op) -> int:
    tanh = op.attrs.get("approximate") == "tanh"
    return _GELU_TANH_BACKWARD if tanh else _GELU_BACKWARD


def _logit(op: Op) -> int:
    """log(x / (1 - x)), x cut to [eps, 1 - eps] where eps is given."""
    return 3 + 2 * (op.attrs.get("eps") is not None)


def _logit_backward(op: Op) -> int:
    """dy / (x * (1 - x)), selected by the cut."""
    return 3 + (op.attrs.get("eps") is not None)


def _rrelu(op: Op) -> Cost:
    """Compare and scale; only training draws a slope, which it leaves for the backward."""
    x, out = operand(op, "self"), op.outputs or op.writes[:1]
    written = op.writes if flag(op, "training") else out
    return cost(op, "pointwise.rrelu", vector=2 * x.numel, reads=[x], writes=written)


def _rrelu_backward(op: Op) -> Cost:
    """Times the slopes drawn; in evaluation as a leaky ReLU's."""
    dy = operand(op, "grad_output")
    if flag(op, "training"):
        reads = [dy, operand(op, "noise")]
        return cost(op, "pointwise.rrelu_backward", vector=dy.numel, reads=reads)
    reads = [dy, operand(op, "self")]
    return cost(op, "pointwise.rrelu_backward", vector=2 * dy.numel, reads=reads)


def _glu_backward(op: Op) -> Cost:
    """Counted on the incoming gradient, half as wide as the result."""
    flops = _GLU_BACKWARD * operand(op, "grad_output").numel
    return cost(op, "pointwise.glu_backward", vector=flops)


_COUNTED: dict[str, Callable[[Op], int]] = {
    "add": _scaled_sum,
    "sub": _scaled_sum,
    "rsub": _scaled_sum,
    "addcmul": _product_sum,
    "addcdiv": _quotient_sum,
    "lerp": _lerp,
    "clamp": _clamp,
    "gelu": _gelu,
    "gelu_backward": _gelu_backward,
    "logit": _logit,
    "logit_backward": _logit_backward,
}

_FIXED = {name: flops for flops, names in _TABLE.items() for name in names.split()}
_ONE_TENSOR: dict[str, Formula] = {
    **{name: partial(_fixed, per_element=flops) for name, flops in _FIXED.items()},
    **{name: partial(_by_arguments, count=count) for name, count in _COUNTED.items()},
}
# Torch's ops over lists of tensors, without `_foreach_`.
_FOREACH = """
abs acos add addcdiv addcmul asin atan ceil clamp_max clamp_min cos cosh div erf erfc exp expm1
floor frac lerp lgamma log log10 log1p log2 maximum minimum mul neg pow reciprocal round rsqrt
sigmoid sign sin sinh sqrt sub tan tanh trunc
"""

OPS: dict[str, Formula] = {
    **_ONE_TENSOR,
    **{f"foreach_{name}": _ONE_TENSOR[name] for name in _FOREACH.split()},
    "glu_backward": _glu_backward,
    "rrelu": _rrelu,
    "rrelu_backward": _rrelu_backward,
}
