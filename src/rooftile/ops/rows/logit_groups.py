"""A linear layer's logits in groups of rows, and sums of its gradients over the groups."""

from __future__ import annotations

import torch
from torch import Tensor

from rooftile.plan.launch import logit_rows


def logits_of(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """x @ weight.T + bias."""
    return torch.mm(x, weight.t()) if bias is None else torch.addmm(bias, x, weight.t())


def _product_added(a: Tensor, b: Tensor, total: Tensor | None) -> Tensor:
    """total + a @ b in float32, written over total: a sum of its own would move 2.5 times that."""
    if a.numel() == 0 or b.numel() == 0:  # cuBLAS takes no empty operands to another dtype
        return a.new_zeros(a.shape[0], b.shape[1], dtype=torch.float32) if total is None else total
    if a.dtype == torch.float32 or not a.is_cuda:
        a, b = a.float(), b.float()
        return a @ b if total is None else torch.addmm(total, a, b, out=total)
    if total is None:
        return torch.mm(a, b, out_dtype=torch.float32)
    return torch.addmm(total, a, b, out_dtype=torch.float32, out=total)


class Gradients:
    """Sums over groups of rows, those of weight and bias in float32."""

    def __init__(self, x: Tensor, weight: Tensor, bias: Tensor | None, wanted: list[bool]) -> None:
        want_x, want_weight, want_bias = wanted
        self.x, self.weight = x, weight
        self.dx = torch.empty_like(x) if want_x else None
        self.want_weight = want_weight
        self.dweight: Tensor | None = None
        self.dbias: Tensor | None = None
        if bias is not None and want_bias:
            self.dbias = torch.zeros_like(bias, dtype=torch.float32)

    def groups(self) -> list[slice]:
        """Rows whose logits are in memory at a time."""
        n_classes, width = self.weight.shape
        step = logit_rows(n_classes, self.x.element_size(), width if self.want_weight else 0)
        return [slice(start, start + step) for start in range(0, self.x.shape[0], step)]

    def add(self, rows: slice, dlogits: Tensor) -> None:
        """Take in the gradient of a group's logits."""
        if self.dx is not None:
            torch.mm(dlogits, self.weight, out=self.dx[rows])
        if self.want_weight:
            self.dweight = _product_added(dlogits.t(), self.x[rows], self.dweight)
        if self.dbias is not None:
            self.dbias += dlogits.sum(0, dtype=torch.float32)

    def results(self) -> tuple[Tensor, Tensor, Tensor]:
        """That of x in its dtype, the sums in float32; empty where not wanted."""
        if self.want_weight and self.dweight is None:  # no rows
            self.dweight = torch.zeros_like(self.weight, dtype=torch.float32)
        none = self.x.new_empty(0, dtype=torch.float32)
        return (
            self.x.new_empty(0) if self.dx is None else self.dx,
            none if self.dweight is None else self.dweight,
            none.clone() if self.dbias is None else self.dbias,
        )
