"""Where the channels of images lie between the kernels of a graph: last in memory."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from tilewright.facts.affine import affine
from tilewright.graph.passes.values import Values
from tilewright.graph.predicting import Deciding, Parts, compared
from tilewright.ir.buffer import Buffer, Layout, Part, Size, part, product, row_major
from tilewright.ir.expr import Const, Expr, Var
from tilewright.ir.stmt import Allocate, Block, Compute, Kernel, Stmt, View
from tilewright.ir.uses import view_variables
from tilewright.ir.visit import direct_exprs, loads_in, map_compute

# Without predicted times: fewer channels are less than a vector, and those along an image's rows
# are longer.
_FEWEST = 16
# So many vectors of channels lie last without a question.
_VECTORS = 4
# Buffers of a region that a decision names.
_NAMED = 3


def channels_last(kernel: Kernel, deciding: Deciding | None = None) -> Kernel:
    """``kernel`` with the channels of images as the last dims in memory of what it allocates.

        alloc v[8, 56, 56]                    ->  alloc v[8, 56, 56] {1:56:448 2:56:8 0:8:1}
        compute v(o in 8, y in 56, x in 56, c in 4, i in 3, j in 3):
          a = image[c, y + i, x + j]
          b = weights[o, c, i, j]
          v[o, y, x] add= a * b

    Dims of an image are those that a window slides along, and those that a compute takes together
    with them. Channels are the other dims of an image that stand in a product's weights, too: in
    its factor, or result, without dims of an image.

    Few channels lie last where less time is predicted then for all kernels that touch them, and for
    all that touch what these do (``deciding``). Where no time is predicted, 16 and more do.
    """
    values = Values.of(kernel)
    dims = _Dims([stmt for stmt in values.stmts if isinstance(stmt, Compute)])
    moved: dict[Buffer, Buffer] = {}
    few: dict[Buffer, Buffer] = {}
    for buffer, makers in values.made.items():
        users = (*makers, *values.readers.get(buffer, ()))
        if buffer in values.allocated and all(_by_views(values.stmts[n], buffer) for n in users):
            placed = dims.layout(buffer)
            if placed is None:
                continue
            layout, channels = placed
            if channels >= _FEWEST:
                moved[buffer] = replace(buffer, layout=layout)
            if deciding and channels < _VECTORS * deciding.machine.lanes(buffer.dtype):
                few[buffer] = replace(buffer, layout=layout)
    if few and deciding and not kernel.scalars:
        _decide(Parts(kernel, deciding), moved, few, deciding)
    if not moved:
        return kernel
    return replace(kernel, body=Block(tuple(_moved(stmt, moved) for stmt in values.stmts)))


def _decide(
    parts: Parts,
    moved: dict[Buffer, Buffer],
    few: Mapping[Buffer, Buffer],
    deciding: Deciding,
) -> None:
    """Puts into ``moved``, or takes out of it, those of ``few`` that kernels share: all, or none,
    whatever takes less time."""
    certain = {old: new for old, new in moved.items() if old not in few}

    def seconds(members: Sequence[int], changed: Mapping[Buffer, Buffer]) -> float | None:
        stmts = [_moved(parts.values.stmts[n], changed) for n in members]
        handed = {changed.get(buffer, buffer) for buffer in parts.handed(members)}
        return parts.seconds(stmts, handed)

    for buffers, members in parts.regions(few):
        last = {buffer: few[buffer] for buffer in buffers}
        there, here = seconds(members, {**certain, **last}), seconds(members, certain)
        if there is None or here is None:
            continue
        for buffer in buffers:
            moved.pop(buffer, None)
        moved |= last if there < here else {}
        what = ", ".join(buffer.name for buffer in buffers[:_NAMED])
        more = len(buffers) - _NAMED
        what += f" and {more} more" if more > 0 else ""
        how = ("channels last", "as they are")
        why = compared((how[0], there), (how[1], here))
        deciding.decide(what, how[there >= here], why)


def _by_views(stmt: Stmt, buffer: Buffer) -> bool:
    """Whether ``stmt`` is a compute that touches ``buffer`` by its views only."""
    if not isinstance(stmt, Compute):
        return False
    return all(load.buffer is not buffer for e in direct_exprs(stmt) for load in loads_in(e))


def _moved(stmt: Stmt, moved: Mapping[Buffer, Buffer]) -> Stmt:
    if isinstance(stmt, Allocate):
        return replace(stmt, buffer=moved.get(stmt.buffer, stmt.buffer))
    if not isinstance(stmt, Compute) or not moved.keys() & {v.buffer for v in _views(stmt)}:
        return stmt
    return map_compute(stmt, lambda v: replace(v, buffer=moved.get(v.buffer, v.buffer)))


def _views(compute: Compute) -> list[View]:
    return [*(operand.view for operand in compute.operands), *compute.outputs]


# A dim of a buffer, by the buffer's identity and its number; or a variable, by its own and -1.
_Node = tuple[int, int]


class _Dims:
    """Dims of buffers, in classes of those that computes take together."""

    def __init__(self, computes: Sequence[Compute]) -> None:
        self._above: dict[_Node, _Node] = {}
        slid: set[_Node] = set()
        # Dims whose places need division, or are loaded, do not lie as one dim of a compute does.
        mixed: set[_Node] = set()
        for compute in computes:
            extents = {dim.var: dim.extent for dim in compute.dims}
            for node, expr, view in _indices(compute):
                terms = affine(expr).terms
                variables = [atom for atom in terms if isinstance(atom, Var)]
                if len(variables) < len(terms):
                    mixed.add(node)
                elif variables:
                    # A window is shorter than what it slides along.
                    longest = max(variables, key=lambda v: _size(extents.get(v)))
                    self._join(node, (id(longest), -1))
                    plain = len(terms) == 1 and terms[longest] == 1
                    if not plain and not _is_shared(variables, compute, view):
                        slid.add(node)
        self._images = {self._root(node) for node in slid}
        self._mixed = {self._root(node) for node in mixed}
        self._channels = {
            self._root((id(variable), -1))
            for compute in computes
            for variable in self._of_weights(compute)
        }

    def _of_weights(self, compute: Compute) -> Collection[Var]:
        """The variables of the weights of a product of an image, if ``compute`` is one."""
        if len(compute.operands) < 2 or len(compute.outputs) != 1:
            return ()
        if {dim.var for dim in compute.dims} <= view_variables(compute.out):
            return ()
        weights = [
            view
            for view in _views(compute)
            if not any(self._root((id(view.buffer), n)) in self._images for n in _numbers(view))
        ]
        return frozenset[Var]().union(*map(view_variables, weights)) if len(weights) == 1 else ()

    def layout(self, buffer: Buffer) -> tuple[Layout, int] | None:
        """Where the channels of ``buffer`` lie last, and how many there are; None where it is no
        image, or they do."""
        roots = [self._root((id(buffer), n)) for n in range(len(buffer.sizes))]
        images = [n for n, root in enumerate(roots) if root in self._images]
        channels = [n for n, root in enumerate(roots) if root in self._channels and n not in images]
        if not images or not channels or self._mixed.intersection(roots):
            return None
        others = [n for n in range(len(roots)) if n not in images and n not in channels]
        order = [*others, *images, *channels]
        if order == sorted(order) or buffer.layout != row_major(buffer.sizes):
            return None
        parts: list[Part] = []
        stride: Size = 1
        count = 0
        for n in reversed(order):
            if n == images[-1]:
                if not isinstance(stride, int):
                    return None
                count = stride
            parts.append(part(n, buffer.sizes[n], stride))
            stride = product(stride, buffer.sizes[n])
        return Layout(tuple(reversed(parts))), count

    def _join(self, a: _Node, b: _Node) -> None:
        self._above[self._root(a)] = self._root(b)

    def _root(self, node: _Node) -> _Node:
        while (above := self._above.setdefault(node, node)) != node:
            self._above[node] = self._above[above]
            node = above
        return node


def _indices(compute: Compute) -> Iterator[tuple[_Node, Expr, View]]:
    for view in _views(compute):
        for n, expr in enumerate(view.index):
            yield (id(view.buffer), n), expr, view


def _is_shared(variables: Collection[Var], compute: Compute, view: View) -> bool:
    """Whether another view of ``compute`` has all ``variables``, as weights have a group and its
    channels: no window slides along these."""
    others = (other for other in _views(compute) if other is not view)
    return any(view_variables(other) >= frozenset(variables) for other in others)


def _numbers(view: View) -> range:
    return range(len(view.index))


def _size(extent: Expr | None) -> int:
    return int(extent.value) if isinstance(extent, Const) else 0
