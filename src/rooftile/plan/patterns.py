"""Functions that Rooftile has a kernel for, where a graph has them as one op or written out."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from rooftile.plan import kinds
from rooftile.plan.flow import Flow
from rooftile.plan.match import Match, Name, float_dtype
from rooftile.plan.norm_patterns import with_sum, written_out_norms
from rooftile.records.graph import Op
from rooftile.records.tensor import Tensor

# A captured op, or its gradient, that is one of ours as it stands.
_AS_IT_STANDS: dict[str, Name] = {
    "softmax": "softmax",
    "safe_softmax": "softmax",
    "log_softmax": "log_softmax",
    "rms_norm": "rms_norm",
    "layer_norm": "layer_norm",
    "cross_entropy": "cross_entropy",
    "attention": "scaled_dot_product_attention",
    "flash_sdpa": "scaled_dot_product_attention",
    "flash_attention": "attention",
    "packed_attention": "attention",
    "efficient_attention": "attention",
}
# Widest head of the attention kernels.
_MAX_HEAD_DIM = 256
_GATES: dict[str, Name] = {"silu": "swiglu", "gelu": "geglu"}
_PRODUCTS = ("mm", "addmm", "linear", "matmul")


def single_ops(flow: Flow, op: Op) -> Iterator[Match]:
    """A captured op, or its gradient, with the changes of dtype that its kernel does too."""
    name = _AS_IT_STANDS.get(op.name.removesuffix("_backward"))
    if name is None or not op.reads or not float_dtype(op.reads[0]):
        return
    if op.name.removesuffix("_backward") in kinds.ATTENTION:
        query = op.operand("query")
        if query is None or not 1 <= query.shape[-1] <= _MAX_HEAD_DIM:
            return
    if name == "cross_entropy" and op.operand("weight") is not None:
        return
    members = [op]
    if op.name in ("softmax", "safe_softmax", "log_softmax"):
        members = _with_casts(flow, op)
    yield Match(name, frozenset(member.index for member in members))


def cross_entropy(flow: Flow, op: Op) -> Iterator[Match]:
    """A log-softmax, the loss that picks from it, and the product that made the logits."""
    if op.name == "log_softmax_backward":
        grad = flow.made(op, op.reads[0], "nll_loss_backward")
        if grad is not None and grad.operand("weight") is None and float_dtype(grad.reads[0]):
            yield Match("cross_entropy", frozenset((grad.index, op.index)))
        return
    if op.name not in ("nll_loss", "cross_entropy") or op.operand("weight") is not None:
        return
    members = [op]
    if op.name == "nll_loss":
        scores = flow.made(op, op.reads[0], "log_softmax")
        if scores is None:
            return
        members = [scores, op]
    first = members[0]
    if not float_dtype(first.reads[0]) or not flow.closed(members, op):
        return
    cast = flow.cast_before(first, first.reads[0])
    if cast is not None and float_dtype(cast.reads[0]) and flow.closed([cast, *members], op):
        members = [cast, *members]
    yield Match("cross_entropy", frozenset(member.index for member in members))
    logits = flow.made(members[0], members[0].reads[0], *_PRODUCTS)
    if logits is not None and _is_linear(logits) and flow.closed([logits, *members], op):
        yield Match(
            "linear_cross_entropy", frozenset(member.index for member in (logits, *members))
        )


def gated(flow: Flow, op: Op) -> Iterator[Match]:
    """silu(gate) * up, gelu(gate) * up."""
    if op.name != "mul" or (found := flow.operands(op, *_GATES)) is None:
        return
    gate, up = found
    alike = (up.shape, up.dtype) == (gate.reads[0].shape, gate.reads[0].dtype)
    if alike and float_dtype(up) and 0 not in up.stride and flow.closed([gate, op], op):
        yield Match(_GATES[gate.name], frozenset((gate.index, op.index)))


def rotation(flow: Flow, op: Op) -> Iterator[Match]:
    """x * cos + cat(-x2, x1) * sin, the halves of a head turned by their position's angle."""
    if op.name != "add" or len(op.reads) != 2 or op.attrs.get("alpha", 1) != 1:
        return
    parts = [flow.made(op, tensor, "mul") for tensor in op.reads]
    for straight, turned in (parts, parts[::-1]):
        if straight is None or turned is None or straight is turned:
            continue
        found = flow.operands(turned, "cat")
        x = None if found is None else _halves(flow, found[0])
        if found is None or x is None:
            continue
        tables = [t for t in straight.reads if t.storage != x.storage]
        if len(straight.reads) != 2 or len(tables) != 1 or op.outputs[0].shape != x.shape:
            continue
        if len(x.shape) not in (3, 4) or not all(map(float_dtype, (x, *tables, found[1]))):
            continue
        negated = flow.made(found[0], found[0].reads[0], "neg")
        assert negated is not None  # as _halves found it
        members = [straight, negated, found[0], turned, op]
        members += _cast_back(flow, op, x)
        if members[-1].outputs[0].dtype == x.dtype and flow.closed(members, members[-1]):
            yield Match("rotary_embedding", frozenset(member.index for member in members))
        return


def bias_gelu_dropout_residual(flow: Flow, op: Op) -> Iterator[Match]:
    """Bias, GELU, dropout and residual sum, in this order, any two with GELU or dropout."""
    if op.name not in ("gelu", "dropout") or not op.reads or not float_dtype(op.reads[0]):
        return
    before = flow.made(op, op.reads[0], "gelu", "add")
    if before is not None and before.name == "gelu" and flow.next(before, "dropout") is op:
        return  # found from the GELU
    members = [op]
    if before is not None and before.name == "add" and _is_bias(before):
        members.insert(0, before)
    if op.name == "gelu" and (dropped := flow.next(op, "dropout")) is not None:
        members.append(dropped)
    total = flow.next(members[-1], "add")
    if total is not None and _is_sum(total):
        members.append(total)
    if len(members) > 1 and flow.closed(members, members[-1]):
        yield Match("bias_gelu_dropout_residual", frozenset(member.index for member in members))


def written_out_softmax(flow: Flow, op: Op) -> Iterator[Match]:
    """exp(x - amax(x)) over its sum."""
    if op.name != "div" or len(op.reads) != 2:
        return
    power, total = flow.made(op, op.reads[0], "exp"), flow.made(op, op.reads[1], "sum")
    if power is None or total is None or total.reads[0].storage != power.writes[0].storage:
        return
    shifted = flow.made(power, power.reads[0], "sub")
    most = None if shifted is None else flow.made(shifted, shifted.reads[1], "amax", "max")
    if shifted is None or most is None or most.reads[0].storage != shifted.reads[0].storage:
        return
    members = [most, shifted, power, total, op]
    one_way = most.attrs.get("dim") == total.attrs.get("dim")
    if one_way and float_dtype(shifted.reads[0]) and flow.closed(members, op):
        yield Match("softmax", frozenset(member.index for member in members))


# Tried on every op; the first is preferred where two take equally many ops.
PATTERNS: tuple[Callable[[Flow, Op], Iterator[Match]], ...] = (
    bias_gelu_dropout_residual,
    cross_entropy,
    gated,
    rotation,
    written_out_softmax,
    written_out_norms,
    single_ops,
)


def matches(flow: Flow, op: Op) -> list[Match]:
    """All that an op is the seed of; a norm also with the residual sum in front."""
    found = [match for pattern in PATTERNS for match in pattern(flow, op)]
    return [*found, *filter(None, (with_sum(flow, match) for match in found))]


def _with_casts(flow: Flow, op: Op) -> list[Op]:
    """A softmax with the casts around it: its kernel sums in float32, of any dtype in or out."""
    members = [op]
    before = flow.cast_before(op, op.reads[0])
    if before is not None and float_dtype(before.reads[0]) and flow.closed([before, op], op):
        members.insert(0, before)
    after = flow.cast_after(op)
    return [*members, after] if after is not None and float_dtype(after.writes[0]) else members


def _cast_back(flow: Flow, op: Op, x: Tensor) -> list[Op]:
    """The change back to the dtype of x, where there is one."""
    cast = flow.cast_after(op)
    return [cast] if cast is not None and cast.outputs[0].dtype == x.dtype else []


def _is_linear(op: Op) -> bool:
    """Whether a product is that of a linear layer: two matrices of one dtype, and a bias's row."""
    if len({t.dtype for t in op.reads}) != 1 or not float_dtype(op.reads[0]):
        return False
    if op.name != "addmm":
        return True
    bias = op.reads[0]
    plain = op.attrs.get("alpha", 1) == 1 and op.attrs.get("beta", 1) == 1
    return plain and bias.shape == op.writes[0].shape[-1:]


def _halves(flow: Flow, joined: Op) -> Tensor | None:
    """The tensor that an op joins again, its halves exchanged and the first negated."""
    if len(joined.reads) != 2:
        return None
    negated = flow.made(joined, joined.reads[0], "neg")
    if negated is None:
        return None
    second, first = negated.reads[0], joined.reads[1]
    width = joined.outputs[0].shape[-1]
    split = 2 * second.shape[-1] == 2 * first.shape[-1] == width
    step = first.stride[-1]
    if not split or first.storage != second.storage or second.stride != first.stride:
        return None
    if second.offset - first.offset != step * width // 2:
        return None
    shape = (*first.shape[:-1], width)
    return Tensor(shape, first.dtype, first.stride, first.storage, first.offset)


def _is_bias(op: Op) -> bool:
    """Whether a sum adds one row to all rows."""
    width = op.writes[0].shape[-1:]
    rows = [t for t in op.reads if t.shape == width and op.writes[0].shape != width]
    return len(op.reads) == 2 and len(rows) == 1 and op.attrs.get("alpha", 1) == 1


def _is_sum(op: Op) -> bool:
    """Whether a sum adds two tensors of its own shape and dtype."""
    made = op.writes[0]
    same = all((t.shape, t.dtype) == (made.shape, made.dtype) for t in op.reads)
    return len(op.reads) == 2 and same and op.attrs.get("alpha", 1) == 1
