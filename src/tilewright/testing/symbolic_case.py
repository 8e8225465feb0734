"""A case with symbolic sizes: one kernel, verified at many sizes."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tilewright.engine.signature import Signature
from tilewright.errors import TilewrightError, UnsupportedError
from tilewright.ir.arguments import Scalar
from tilewright.ir.stmt import Kernel, Param
from tilewright.ops.op import Op
from tilewright.testing.case import Case
from tilewright.testing.symbolic_ops import resized, symbolic_kernel
from tilewright.testing.verify import Status, Verdict, Verifiable, one_line, verdict_of, verify

# The greatest random size: several tiles of any schedule, and a tail.
_DRAWN = 200
# Elements of an array, of which the reference has several in f64. Larger calls are left out.
_LARGEST = 1 << 24


@dataclass(frozen=True)
class SymbolicCase:
    """``case`` with symbolic sizes ``names`` (see `symbolic_ops.resized`)."""

    case: Case
    names: tuple[str, ...]

    def at(self, sizes: Mapping[str, int]) -> Case:
        """The case with these sizes. Raises `ProblemError` if they contradict each other."""
        problem = self.case.problem
        for name, size in sizes.items():
            problem = resized(problem, name, size)
        return replace(self.case, problem=problem)

    def kernel(self) -> Kernel:
        """The kernel for all sizes. Raises the errors of `Case.op` and `symbolic_kernel`."""
        return symbolic_kernel(lambda at: self.at(at).op().resolved().kernel(), self.names)

    def constant(self, kernel: Kernel) -> tuple[str, ...]:
        """The argument of ``kernel`` that may be packed beforehand, if its sizes are the same in
        all calls."""
        prepacked = self.case.op().resolved().prepacked
        fixed = {p.name for p in kernel.params if isinstance(p, Param) and not p.buffer.symbols}
        return (prepacked,) if prepacked in fixed and prepacked is not None else ()

    def drawn(self, count: int, seed: int) -> Iterator[dict[str, int]]:
        """The sizes of ``count`` calls: first 1 each, then random ones, some multiples of 16."""
        rng = random.Random(seed)
        yield dict.fromkeys(self.names, 1)
        for number in range(count - 1):
            greatest = rng.choice((16, 64, _DRAWN))
            multiple = 16 if number % 3 == 0 else 1
            yield {name: rng.randint(1, greatest // multiple) * multiple for name in self.names}


def verify_sizes(
    case: SymbolicCase,
    compile: Callable[[Kernel, Sequence[str]], Verifiable],
    *,
    sizes: int = 12,
    seed: int = 0,
) -> Verdict:
    """Compiles the kernel once, and checks it at so many ``sizes``, each as `verify` does. Raises
    the errors of `SymbolicCase.kernel` for an invalid case."""
    try:
        kernel = case.kernel()
    except UnsupportedError as error:
        return Verdict(Status.SKIPPED, one_line(error))
    return verdict_of(lambda: _verified(case, kernel, compile, sizes, seed))


def _verified(
    case: SymbolicCase,
    kernel: Kernel,
    compile: Callable[[Kernel, Sequence[str]], Verifiable],
    sizes: int,
    seed: int,
) -> Verdict:
    compiled = compile(kernel, case.constant(kernel))
    worst, ran = 0.0, 0
    for numbers in case.drawn(sizes, seed):
        try:
            op = case.at(numbers).op()
        except TilewrightError:
            continue  # the sizes contradict each other: there is no such problem
        if not _has_layouts(kernel, op, numbers):
            continue  # the op has other layouts at these sizes, or is too large
        verdict = verify(op, _At(compiled, numbers).of, seed=seed)
        if verdict.status is not Status.PASSED:
            where = ", ".join(f"{name}={size}" for name, size in numbers.items())
            return replace(verdict, reason=f"at {where}: {verdict.reason}")
        worst, ran = max(worst, verdict.error), ran + 1
    if not ran:
        return Verdict(Status.SKIPPED, "no sizes that were drawn go together")
    return Verdict(Status.PASSED, f"{ran} sizes through one kernel", error=worst)


def _has_layouts(kernel: Kernel, op: Op, numbers: Mapping[str, Scalar]) -> bool:
    """Whether the arrays of ``op`` have the layouts of ``kernel``, and none is too large."""
    layouts = {argument.name: argument.layout for argument in op.resolved().arguments}
    if any(layout.extent > _LARGEST for layout in layouts.values()):
        return False
    arrays = Signature(kernel.params).at(numbers)
    return all(param.buffer.layout == layouts[param.name] for param in arrays)


@dataclass(frozen=True)
class _At:
    """A compiled kernel with the scalars of its calls."""

    kernel: Verifiable
    numbers: Mapping[str, Scalar]

    def of(self, op: Op) -> Verifiable:
        """This kernel, whatever the op."""
        return self

    @property
    def packed(self) -> Sequence[str]:
        return self.kernel.packed

    def pack(self, name: str, array: Any, /) -> Any:
        return self.kernel.pack(name, array)

    def __call__(self, **arrays: Any) -> Any:
        return self.kernel(**arrays, **self.numbers)
