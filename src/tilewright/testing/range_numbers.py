"""Scalars for a function with `@tw.kernel`, whose parameters promise nothing: the range, the sizes
of arrays, and other integers, chosen to be consistent.

The range comes first, with two groups or more along each dim, or one where work-items do not use
their group's number. A number that is compared with a global id (``if i < n``) is the range, 1
less, or a few less. A dim of an array is as long as its accesses reach (see `reach.Scan`): to the
range, or to the bound that guards them. Other integers are the range of the last dim; an integer
that is only the length of a loop is arbitrary, a multiple of the loop's step.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from math import lcm

from tilewright.facts import Affine, affine
from tilewright.ir.arguments import Scalar
from tilewright.ir.expr import Binary, Const, Expr, Var
from tilewright.ir.stmt import Compute, For, Kernel
from tilewright.ir.visit import variables, walk, walk_stmts
from tilewright.testing.influences import Decided, deciding
from tilewright.testing.launch_nest import LaunchNest, RangeDim
from tilewright.testing.reach import Scan, comparisons

# Cycled by the seed: how much less than the range a guard is, and whether all is minimal.
_CASES = 4
_FEWER, _EQUAL, _SMALLEST, _ONE_LESS = range(_CASES)
# Lengths of loops that no array and no range bounds.
_LOOPS = (17, 40)
# The greatest number of steps in which a size grows until its accesses fit.
_GROWTHS = 12


def range_numbers(
    kernel: Kernel, nest: LaunchNest, arrays: Mapping[str, Scalar], seed: int
) -> dict[str, Scalar]:
    """The range, the integers that places depend on, and the sizes of arrays of ``kernel``, except
    those ``arrays``."""
    draw = _Draw(kernel, nest, arrays, seed)
    draw.ranges()
    draw.guards()
    draw.integers()
    draw.sizes()
    return {name: value for name, value in draw.known.items() if name not in arrays}


class _Draw:
    def __init__(
        self, kernel: Kernel, nest: LaunchNest, arrays: Mapping[str, Scalar], seed: int
    ) -> None:
        self._kernel = kernel
        self._nest = nest
        self._rng = random.Random(seed)
        self._seed = seed
        self._case = seed % _CASES
        self._params = {scalar.name: scalar for scalar in kernel.scalars if scalar.dtype.is_integer}
        shapes = frozenset[Var]().union(*(array.buffer.symbols for array in kernel.arrays))
        self._sizes = [name for name in self._params if self._params[name].var in shapes]
        self.known = {name: value for name, value in arrays.items() if isinstance(value, int)}
        self._guards: dict[str, int] = {}
        # An array of rows' starts also has the end of the last row.
        lengths = deciding(kernel, Decided.LENGTH)
        rows = [array.buffer for array in kernel.arrays if array.buffer in lengths]
        self._ends = {symbol.name for buffer in rows for symbol in buffer.symbols}

    def ranges(self) -> None:
        """The number of work-items along each dim."""
        for dim in self._nest.dims:
            if dim.number not in self.known:
                self.known[dim.number] = self._kept(dim.number, self._range(dim))

    def _range(self, dim: RangeDim) -> int:
        in_groups = self._params[dim.number].divisor == dim.local
        if dim.alone:
            return dim.local
        if self._case == _SMALLEST:
            return dim.local if in_groups else 1
        if dim.local == 1:
            return self._rng.randint(3, 11)
        if in_groups:
            # A size that differs from that of the dim before it.
            return dim.local * (2 + (self._seed + self._nest.dims.index(dim)) % 2)
        return dim.local * self._rng.randint(1, 2) + self._rng.randint(1, dim.local - 1)

    def guards(self) -> None:
        """The bounds that ids are compared with."""
        for name, dim in self._guard_dims():
            if name not in self.known and name in self._params:
                bound = self._bound(dim)
                margin = min(self._rng.randint(2, 9), bound // 3)
                less = {_FEWER: margin, _ONE_LESS: 1}.get(self._case, 0)
                self._guards[name] = dim
                self.known[name] = self._kept(name, max(1, bound - less))

    def _bound(self, dim: int) -> int:
        return int(self.known[self._nest.dims[dim].number])

    def _guard_dims(self) -> Iterator[tuple[str, int]]:
        """Each parameter that bounds a global id, and the id's dim."""
        for condition in self._scan().conditions:
            for form in comparisons(condition):
                for atom, sign in form.terms.items():
                    if isinstance(atom, Var) and atom.name in self._params and abs(sign) == 1:
                        rest = Affine({a: -sign * c for a, c in form.terms.items() if a != atom})
                        dim = self._dim_of(rest)
                        if form.constant == 0 and dim is not None:
                            yield atom.name, dim

    def _dim_of(self, form: Affine) -> int | None:
        """The dim of the range of which ``form`` is the id; None for anything else."""
        groups = {dim.group: number for number, dim in enumerate(self._nest.dims)}
        dims = set()
        for atom, coefficient in form.terms.items():
            if isinstance(atom, Var) and atom.name.endswith("[]"):
                return len(groups) - 1 if len(form.terms) == coefficient == 1 else None
            dim = groups.get(atom, self._nest.items.get(atom)) if isinstance(atom, Var) else None
            if dim is None or coefficient < 1:
                return None
            dims.add(dim)
        return dims.pop() if len(dims) == 1 else None

    def integers(self) -> None:
        """The other integers that places depend on."""
        everywhere = deciding(self._kernel, *Decided)
        repeated = self._repeated()
        strides = dict(self._strides())
        for name, param in self._params.items():
            if name in self.known or name in self._sizes or param.var not in everywhere:
                continue
            if name in repeated:
                self.known[name] = self._kept(name, self._loop(repeated[name]))
            else:
                last = len(self._nest.dims) - 1
                self.known[name] = self._kept(name, self._bound(strides.get(name, last)))

    def _repeated(self) -> dict[str, int]:
        """The steps of the parameters on which only the lengths of loops depend."""
        wide = self._scan().wide
        steps: dict[str, int] = {}
        for stmt in walk_stmts(self._kernel.body):
            dims = stmt.dims if isinstance(stmt, Compute) else ()
            for extent in (stmt.extent,) if isinstance(stmt, For) else (d.extent for d in dims):
                for name, step in _steps(wide(extent)):
                    steps[name] = lcm(steps.get(name, 1), step)
        compared = {
            name.name for condition in self._scan().conditions for name in variables(condition.expr)
        }
        return {name: step for name, step in steps.items() if name not in compared}

    def _strides(self) -> Iterator[tuple[str, int]]:
        """``n`` in ``row * n + col``, and the dim of the range of ``col``."""
        groups = {dim.group: number for number, dim in enumerate(self._nest.dims)}
        for access in self._scan().accesses:
            for index in access.place:
                form = access.facts.expanded(affine(index))
                for atom in form.terms:
                    if isinstance(atom, Binary) and atom.op == "mul":
                        others = [variables(term) for term in form.terms if term is not atom]
                        dims = {groups[name] for names in others for name in names & groups.keys()}
                        if len(dims) == 1:
                            (dim,) = dims
                            yield from (
                                (factor.name, dim)
                                for factor in (atom.a, atom.b)
                                if isinstance(factor, Var)
                            )

    def _loop(self, step: int) -> int:
        if self._case == _SMALLEST:
            return step
        return step * max(1, self._rng.randint(*_LOOPS) // step)

    def sizes(self) -> None:
        """The sizes of arrays: as far as their accesses reach, where that is known."""
        repeated = self._repeated()
        pending = [name for name in self._sizes if name not in self.known]
        while pending:
            reaches = self._reaches()
            whole = [name for name in pending if reaches.get(name) and None not in reaches[name]]
            looped = [
                name for name in pending if name in repeated and not any(reaches.get(name, ()))
            ]
            name = (whole or looped or pending)[0]
            if whole or not looped:
                self.known[name] = self._size(name, reaches.get(name, []))
            else:
                self.known[name] = self._kept(name, self._loop(repeated[name]))
            pending.remove(name)

    def _size(self, name: str, reaches: Sequence[int | None]) -> int:
        """A size by the reach of each access; None: unknown."""
        bounded = [reach for reach in reaches if reach is not None]
        if not bounded:
            return self._kept(name, self._bound(len(self._nest.dims) - 1))
        size = max(bounded)
        if name not in self._ends:
            size = self._guarded(size, bounded)
        return self._grown(name, self._kept(name, size), max(bounded))

    def _guarded(self, size: int, reaches: Sequence[int]) -> int:
        """``size``, the greatest of ``reaches``; or a guard that keeps accesses within it."""
        ranges = {self._bound(dim) for dim in range(len(self._nest.dims))}
        for guard, dim in self._guards.items():
            bound = self.known[guard]
            if size == bound + 1 and size not in ranges:
                return bound  # if i <= n
            if size == self._bound(dim) and bound in reaches:
                return bound  # one access is guarded, so all should be
        return size

    def _grown(self, name: str, size: int, reach: int) -> int:
        """``size``, or a greater one if accesses begin at a part of it, such as its half."""
        grown = size
        for _ in range(_GROWTHS):
            self.known[name] = grown
            needed = max((further or 0 for further in self._reaches().get(name, ())), default=0)
            if needed <= max(grown, reach):
                return grown
            grown = self._kept(name, needed)
        return size

    def _reaches(self) -> dict[str, list[int | None]]:
        """For each symbolic size of an array, the reach of its accesses."""
        scan = self._scan()
        natural = [*self._groups(), *(value for value in self.known.values() if value > 0)]
        reaches: dict[str, list[int | None]] = {}
        for access in scan.accesses:
            for size, index in zip(access.buffer.sizes, access.place, strict=True):
                if isinstance(size, Var):
                    natural_sizes = () if size.name in self._ends else natural
                    reach = scan.reach(index, access.facts, natural_sizes)
                    reaches.setdefault(size.name, []).append(reach)
        return reaches

    def _groups(self) -> set[int]:
        """The numbers of groups along the dims."""
        dims = enumerate(self._nest.dims)
        return {-(-self._bound(number) // dim.local) for number, dim in dims}

    def _scan(self) -> Scan:
        return Scan(self._kernel, self.known, dict.fromkeys(self._params, 1))

    def _kept(self, name: str, value: int) -> int:
        """``value``, or a number near it that keeps the parameter's promises."""
        param = self._params[name]
        by = param.divisor
        low = by if param.low is None else max(by, -(-param.low // by) * by)
        high = param.high if param.high is not None else int(param.dtype.highest)
        return max(low, min(value, high) // by * by)


def _steps(extent: Expr) -> Iterator[tuple[str, int]]:
    """The variables of a loop's extent, each with the step of the loop in it."""
    for node in walk(extent):
        if isinstance(node, Binary) and node.op == "floordiv" and isinstance(node.b, Const):
            terms = affine(node.a).terms
            if len(terms) == 1:
                yield from ((name.name, int(node.b.value)) for name in variables(node.a))
    yield from ((name.name, 1) for name in variables(extent))
