"""The sizes at which an op is looked at, to see how its launch follows them."""

from __future__ import annotations

from dataclasses import dataclass

from rooftile.compile.targets import Target
from rooftile.errors import InputError
from rooftile.export.ops import OpSpec
from rooftile.export.trace import SMS, Traced, same_kernel, trace
from rooftile.records.manifest import Form

# Primes: no multiple of 16, none a product of others, so that a value shows where it comes from.
_PRIMES = ((37, 61, 113), (3, 7, 13), (5, 11, 17), (7, 13, 19), (11, 17, 23), (13, 19, 29))
# More than any kernel takes in one block, of what it cuts into blocks, and of the sizes before.
_LARGE, _MANY = 4099, 67
_OTHER_SMS = 101


@dataclass(frozen=True)
class Prober:
    """Records an op's launches.

    Attributes:
        name: Of the op.
        spec: The op.
        dtype: Of every tensor.
        target: What is planned for.
        form: What the kernel may take for granted.
    """

    name: str
    spec: OpSpec
    dtype: str
    target: Target
    form: Form

    @property
    def free(self) -> list[str]:
        """The sizes that do not decide about the kernel."""
        return [size for size in self.spec.sizes() if size != self.spec.tuned.size]

    @property
    def unit(self) -> dict[str, int]:
        """What each of them is a multiple of."""
        whole = self.spec.whole if self.form == "aligned" else {}
        return {size: whole.get(size, 1) for size in self.free}

    def at(self, tuned: int, turn: int = 0, large: str = "", sms: int = SMS) -> Traced:
        """The launch for one value of the tuned size.

        Args:
            tuned: That value.
            turn: Which of three values the others take.
            large: One that is to be more than a block takes.
            sms: Multiprocessors of the GPU.
        """
        free, unit = self.free, self.unit
        values = dict(zip(free, _PRIMES[1:] if len(free) > 1 else _PRIMES, strict=False))
        values |= self.spec.probes
        sizes = {size: values[size][turn % 3] for size in free}
        if large:
            cut = large in self.spec.probes or len(free) == 1
            sizes[large] = _LARGE if cut else _MANY
        sizes = {size: -(-n // unit[size]) * unit[size] for size, n in sizes.items()}
        sizes[self.spec.tuned.size] = tuned
        return trace(self.name, self.spec, self.dtype, sizes, self.target, self.form, sms)

    def around(self, tuned: int, step: int) -> list[Traced]:
        """Launches of one kernel, that of ``tuned`` first: others sizes, then a few steps away.

        Raises:
            InputError: Another kernel is launched when a size changes that should not matter.
        """
        first = self.at(tuned)
        others = [self.at(tuned, 1), self.at(tuned, 2, sms=_OTHER_SMS)]
        others += [self.at(tuned, large=size) for size in self.free]
        if any(not same_kernel(first.launch, other.launch) for other in others):
            raise InputError(
                f"op {self.name!r} cannot be exported: which kernel it launches depends on"
                f" {', '.join(self.free)} or on how many multiprocessors there are"
            )
        near = [tuned - step, tuned + step, tuned - 7 * step] if step else []
        beside = [self.at(value, 1) for value in near if 0 < value <= self.spec.tuned.farthest]
        return [first, *others, *(p for p in beside if same_kernel(first.launch, p.launch))]
