"""The tables that join torch's ops, ours and their formulas; formulas stand nowhere else."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import pytest
from ops_by_hand import op, tensor

import rooftile
from rooftile.capture.aten import ATEN
from rooftile.cost.formulas import FAMILIES, FORMULAS
from rooftile.cost.graph import price
from rooftile.errors import InputError

PACKAGE = Path(rooftile.__file__).parent
# Every operand that some formula asks for.
ROLES = """
self input weight mat1 mat2 other query key value grad_output grad_out grad index indices target u A
x hx cx params.0 self.0 indices.0 src source batch1 batch2 mat vec vec1 vec2 input_gates x1 x2 v
elements sorted_sequence ffn_weight_1 tensors.0 grad_in values
""".split()  # noqa: SIM905
FLOP_FIELDS = {"matrix_flops", "vector_flops", "dense_matrix_flops"}


def test_every_formula_is_reachable():
    """Each op with a formula is what some op of torch's, or of the capture's, is called."""
    assert set(FORMULAS) - set(ATEN.values()) == set()


def test_every_name_in_the_table_has_a_formula():
    """The table promises nothing that is unpriced."""
    assert set(ATEN.values()) - set(FORMULAS) == set()


def test_no_two_families_price_one_op():
    """A name stands in one family's table."""
    counted = Counter(name for family in FAMILIES for name in family.OPS)
    assert [name for name, times in counted.items() if times > 1] == []


def test_every_family_file_is_in_the_list():
    """A file with an OPS table is merged into FORMULAS."""
    folder = PACKAGE / "cost" / "formulas"
    with_table = {p.stem for p in folder.glob("*.py") if "\nOPS: dict" in p.read_text("utf-8")}
    assert {family.__name__.rsplit(".", 1)[1] for family in FAMILIES} == with_table


def counted_elsewhere(source: str) -> list[int]:
    """Lines that make a Cost with FLOP of their own."""
    return [
        node.lineno
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "Cost"
        and (node.args or FLOP_FIELDS & {k.arg for k in node.keywords})
    ]


def test_formulas_stand_in_their_folder_alone():
    """No other file of the package counts FLOP."""
    found = {
        str(path.relative_to(PACKAGE)): lines
        for path in PACKAGE.rglob("*.py")
        if (PACKAGE / "cost" / "formulas") not in path.parents
        and (lines := counted_elsewhere(path.read_text("utf-8")))
    }
    assert found == {}


@pytest.mark.parametrize("line", ["Cost(matrix_flops=2 * m * n)", "Cost(6, 2)"])
def test_the_search_for_formulas_can_fail(line: str):
    """A Cost with FLOP is found; one of bytes alone is not."""
    assert counted_elsewhere(f"x = 1\ncost = {line}\n") == [2]
    assert counted_elsewhere("cost = Cost(read_bytes=4, write_bytes=4)\n") == []


# What moves nothing needs no operand.
FREE = {"view", "empty", "reshape", "contiguous", "to"}


@pytest.mark.parametrize("name", sorted(set(FORMULAS) - FREE))
def test_an_op_without_its_operands_is_an_error(name: str):
    """No formula answers 0 where it cannot read the op."""
    with pytest.raises(InputError):
        price(op(name, {}))


@pytest.mark.parametrize("name", sorted(FORMULAS))
def test_no_formula_breaks_on_a_shape(name: str):
    """Whatever ranks come, the answer is a cost of whole numbers or an InputError."""
    for shape in ((), (3,), (2, 3), (2, 3, 4), (2, 3, 4, 5), (0, 3)):
        try:
            cost = price(op(name, {role: tensor(*shape) for role in ROLES}, tensor(*shape)))
        except InputError:
            continue
        assert cost is not None
        assert min(cost.matrix_flops, cost.vector_flops, cost.read_bytes, cost.write_bytes) >= 0
        assert isinstance(cost.flops, int)
        assert isinstance(cost.bytes, int)


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("addmm", "addmm"),
        ("add_", "add"),
        ("_softmax", "softmax"),
        ("native_layer_norm", "layer_norm"),
        ("_foreach_add_", "foreach_add"),
        ("_fused_adamw_", "adamw_step"),
        ("index_copy_", "index_copy"),
        ("__iand__", "bitwise_and"),
        ("unsqueeze_", "view"),
        ("set_", "empty"),
        ("attention", "attention"),
    ],
)
def test_names(theirs: str, ours: str):
    """Torch's names as a capture meets them, in-place ones too."""
    assert ATEN[theirs] == ours
