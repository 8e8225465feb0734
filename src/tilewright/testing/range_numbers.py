"""Numbers for a function with `@tw.kernel`, whose parameters promise nothing: the range, the sizes
of arrays, and the integers, such that they go together.

The range comes first, of two groups or more along each dim, or of one where work-items do not ask
which group they are in. A number that is compared with a global id (``if i < n``) is the range, 1
less, or a few less. A dim of an array is as long as its accesses reach (see `reach.Scan`): to the
range, or to what they are guarded by. Other integers are the range of the last dim; what only says
how often a loop runs is any number, a multiple of the loop's step.
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

# By the seed, in turn: what a guard is less than the range, and whether all is as small as can be.
_CASES = 4
_FEWER, _EQUAL, _SMALLEST, _ONE_LESS = range(_CASES)
# What a loop that no array and no range bounds runs to.
_LOOPS = (17, 40)
# How often a size may grow that its own accesses depend on.
_GROWTHS = 12


def range_numbers(
    kernel: Kernel, nest: LaunchNest, given: Mapping[str, Scalar], seed: int
) -> dict[str, Scalar]:
    """The range, the integers that decide places, and the sizes of arrays of ``kernel``, but for
    those ``given``."""
    draw = _Draw(kernel, nest, given, seed)
    draw.ranges()
    draw.guards()
    draw.integers()
    draw.sizes()
    return {name: value for name, value in draw.known.items() if name not in given}


class _Draw:
    def __init__(
        self, kernel: Kernel, nest: LaunchNest, given: Mapping[str, Scalar], seed: int
    ) -> None:
        self._kernel = kernel
        self._nest = nest
        self._rng = random.Random(seed)
        self._seed = seed
        self._case = seed % _CASES
        self._params = {each.name: each for each in kernel.scalars if each.dtype.is_integer}
        shapes = frozenset[Var]().union(*(each.buffer.symbols for each in kernel.arrays))
        self._sizes = [name for name in self._params if self._params[name].var in shapes]
        self.known = {name: value for name, value in given.items() if isinstance(value, int)}
        self._guards: dict[str, int] = {}
        # What says where rows begin has the end of the last one, too.
        lengths = deciding(kernel, Decided.LENGTH)
        rows = [each.buffer for each in kernel.arrays if each.buffer in lengths]
        self._ends = {each.name for buffer in rows for each in buffer.symbols}

    def ranges(self) -> None:
        """The number of work-items along each dim."""
        for dim in self._nest.dims:
            if dim.number not in self.known:
                self.known[dim.number] = self._kept(dim.number, self._range(dim))

    def _range(self, dim: RangeDim) -> int:
        whole = self._params[dim.number].divisor == dim.local  # of groups
        if dim.alone:
            return dim.local
        if self._case == _SMALLEST:
            return dim.local if whole else 1
        if dim.local == 1:
            return self._rng.randint(3, 11)
        if whole:
            # Of another size than the dim before it.
            return dim.local * (2 + (self._seed + self._nest.dims.index(dim)) % 2)
        return dim.local * self._rng.randint(1, 2) + self._rng.randint(1, dim.local - 1)

    def guards(self) -> None:
        """The numbers that ids are compared with."""
        for name, dim in self._found_guards():
            if name not in self.known and name in self._params:
                bound = self._bound(dim)
                few = min(self._rng.randint(2, 9), bound // 3)
                less = {_FEWER: few, _ONE_LESS: 1}.get(self._case, 0)
                self._guards[name] = dim
                self.known[name] = self._kept(name, max(1, bound - less))

    def _bound(self, dim: int) -> int:
        return int(self.known[self._nest.dims[dim].number])

    def _found_guards(self) -> Iterator[tuple[str, int]]:
        """Each parameter that bounds a global id, and the dim of that."""
        for condition in self._scan().conditions:
            for form in comparisons(condition):
                for atom, sign in form.terms.items():
                    if isinstance(atom, Var) and atom.name in self._params and abs(sign) == 1:
                        rest = Affine({a: -sign * c for a, c in form.terms.items() if a != atom})
                        dim = self._dim_of(rest)
                        if form.constant == 0 and dim is not None:
                            yield atom.name, dim

    def _dim_of(self, form: Affine) -> int | None:
        """The dim of the range whose id ``form`` is; None for anything else."""
        groups = {dim.group: number for number, dim in enumerate(self._nest.dims)}
        dims = set()
        for atom, coefficient in form.terms.items():
            if isinstance(atom, Var) and atom.name.endswith("[]"):
                return len(groups) - 1 if len(form.terms) == coefficient == 1 else None
            found = groups.get(atom, self._nest.items.get(atom)) if isinstance(atom, Var) else None
            if found is None or coefficient < 1:
                return None
            dims.add(found)
        return dims.pop() if len(dims) == 1 else None

    def integers(self) -> None:
        """The other integers that decide places."""
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
        """The step of each parameter that nothing but the lengths of loops depends on."""
        wide = self._scan().wide
        found: dict[str, int] = {}
        for stmt in walk_stmts(self._kernel.body):
            dims = stmt.dims if isinstance(stmt, Compute) else ()
            for extent in (stmt.extent,) if isinstance(stmt, For) else (d.extent for d in dims):
                for name, step in _steps(wide(extent)):
                    found[name] = lcm(found.get(name, 1), step)
        asked = {
            each.name for condition in self._scan().conditions for each in variables(condition.expr)
        }
        return {name: step for name, step in found.items() if name not in asked}

    def _strides(self) -> Iterator[tuple[str, int]]:
        """Of ``row * n + col`` the ``n``, and the dim of the range that ``col`` counts in."""
        groups = {dim.group: number for number, dim in enumerate(self._nest.dims)}
        for access in self._scan().accesses:
            for index in access.place:
                form = access.facts.expanded(affine(index))
                for atom in form.terms:
                    if isinstance(atom, Binary) and atom.op == "mul":
                        rest = [variables(each) for each in form.terms if each is not atom]
                        dims = {groups[each] for names in rest for each in names & groups.keys()}
                        if len(dims) == 1:
                            (dim,) = dims
                            yield from (
                                (each.name, dim)
                                for each in (atom.a, atom.b)
                                if isinstance(each, Var)
                            )

    def _loop(self, step: int) -> int:
        if self._case == _SMALLEST:
            return step
        return step * max(1, self._rng.randint(*_LOOPS) // step)

    def sizes(self) -> None:
        """How long the dims of arrays are: as far as is known how far their accesses reach."""
        repeated = self._repeated()
        left = [name for name in self._sizes if name not in self.known]
        while left:
            found = self._reaches()
            whole = [name for name in left if found.get(name) and None not in found[name]]
            looped = [name for name in left if name in repeated and not any(found.get(name, ()))]
            name = (whole or looped or left)[0]
            if whole or not looped:
                self.known[name] = self._size(name, found.get(name, []))
            else:
                self.known[name] = self._kept(name, self._loop(repeated[name]))
            left.remove(name)

    def _size(self, name: str, reaches: Sequence[int | None]) -> int:
        """A size by how far each of the accesses reaches; None: nobody knows."""
        known = [each for each in reaches if each is not None]
        if not known:
            return self._kept(name, self._bound(len(self._nest.dims) - 1))
        size = max(known)
        if name not in self._ends:
            size = self._guarded(size, known)
        return self._grown(name, self._kept(name, size), max(known))

    def _guarded(self, size: int, reaches: Sequence[int]) -> int:
        """``size``, the greatest of ``reaches``; or the bound that keeps accesses within it."""
        ranges = {self._bound(dim) for dim in range(len(self._nest.dims))}
        for guard, dim in self._guards.items():
            bound = self.known[guard]
            if size == bound + 1 and size not in ranges:
                return bound  # if i <= n
            if size == self._bound(dim) and bound in reaches:
                return bound  # where one access is guarded, all should be
        return size

    def _grown(self, name: str, size: int, reach: int) -> int:
        """``size``, or the one that accesses need which begin at a part of it, such as its half."""
        grown = size
        for _ in range(_GROWTHS):
            self.known[name] = grown
            needed = max((each or 0 for each in self._reaches().get(name, ())), default=0)
            if needed <= max(grown, reach):
                return grown
            grown = self._kept(name, needed)
        return size

    def _reaches(self) -> dict[str, list[int | None]]:
        """For each size of an array, how far its accesses reach."""
        scan = self._scan()
        natural = [*self._groups(), *(each for each in self.known.values() if each > 0)]
        found: dict[str, list[int | None]] = {}
        for access in scan.accesses:
            for size, index in zip(access.buffer.sizes, access.place, strict=True):
                if isinstance(size, Var):
                    kept = () if size.name in self._ends else natural
                    reach = scan.reach(index, access.facts, kept)
                    found.setdefault(size.name, []).append(reach)
        return found

    def _groups(self) -> set[int]:
        """How many groups there are along each dim."""
        dims = enumerate(self._nest.dims)
        return {-(-self._bound(number) // dim.local) for number, dim in dims}

    def _scan(self) -> Scan:
        return Scan(self._kernel, self.known, dict.fromkeys(self._params, 1))

    def _kept(self, name: str, value: int) -> int:
        """``value``, or what is near it and keeps what the parameter promises."""
        param = self._params[name]
        by = param.divisor
        low = by if param.low is None else max(by, -(-param.low // by) * by)
        high = param.high if param.high is not None else int(param.dtype.highest)
        return max(low, min(value, high) // by * by)


def _steps(extent: Expr) -> Iterator[tuple[str, int]]:
    """The variables of a loop's length, each with the step in which the loop goes to it."""
    for node in walk(extent):
        if isinstance(node, Binary) and node.op == "floordiv" and isinstance(node.b, Const):
            terms = affine(node.a).terms
            if len(terms) == 1:
                yield from ((each.name, int(node.b.value)) for each in variables(node.a))
    yield from ((each.name, 1) for each in variables(extent))
