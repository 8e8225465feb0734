"""Results that go by way of memory of the workgroup, whoever stores them from there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from tilewright.dtypes import DType
from tilewright.ir.buffer import Buffer, Space, Swizzle
from tilewright.ir.expr import Const
from tilewright.ir.stmt import Call, Compute, Dim, Kernel, Stmt, Store
from tilewright.ir.uses import buffers_in
from tilewright.ir.visit import walk_stmts
from tilewright.schedule.queries.place import (
    Place,
    claim,
    computes_named,
    names_in,
    rewrite_placed,
    size_of,
)
from tilewright.schedule.queries.refusal import refusal
from tilewright.schedule.queries.storage import BlockList, blocked_layout


@dataclass(frozen=True)
class SharedResults:
    """The buffers of the workgroup for what ``compute`` makes, which lie as ``layout`` says, and
    the names of buffers and computes that are taken."""

    compute: str
    layout: BlockList
    row_padding: Mapping[str, int]
    swizzle: Swizzle | None
    buffers: set[str]
    names: set[str]

    @classmethod
    def of(
        cls,
        kernel: Kernel,
        compute: str,
        layout: BlockList,
        row_padding: Mapping[str, int] | None = None,
        swizzle: Swizzle | None = None,
    ) -> SharedResults:
        """What is made of ``kernel``'s ``compute``."""
        return cls(compute, layout, row_padding or {}, swizzle, *names_in(kernel))

    def made(
        self,
        kernel: Kernel,
        on_stmt: Callable[[Stmt, Place], Stmt | None],
        *,
        who: str,
        why: str,
        cure: str,
    ) -> Kernel:
        """``kernel`` with ``on_stmt`` for the loops ``who`` run. Refuses where there are none."""
        body = rewrite_placed(kernel.body, Place(), on_stmt)
        if body is kernel.body:
            raise refusal(
                f"no {who} are around '{self.compute}'",
                computes_named(kernel, self.compute)[0][0],
                cure,
                why=why,
            )
        return replace(kernel, body=body)

    def buffer(
        self, stem: str, dtype: DType, dims: Sequence[Dim], layout: BlockList | None = None
    ) -> Buffer:
        """A new buffer of these ``dims``, called after the ``stem``. Dims that it does not have
        need no padding."""
        names, sizes = [d.var.name for d in dims], [size_of(d) for d in dims]
        padding = {name: size for name, size in self.row_padding.items() if name in names}
        blocks = self.layout or layout or ()
        shape, where = blocked_layout(names, sizes, blocks, padding, self.swizzle)
        return Buffer(claim(stem, self.buffers), dtype, shape, where, Space.WORKGROUP)


def check_sizes(compute: Compute, why: str) -> None:
    """Refuses tiles that are not equally large, and says ``why`` they have to be."""
    if not all(isinstance(dim.extent, Const) for dim in compute.dims):
        raise refusal(
            f"not all tiles of '{compute.name}' are equally large",
            compute,
            "pad the dims to whole tiles first",
            why=why,
        )


def used_besides(compute: Compute, body: Stmt) -> set[Buffer]:
    """The buffers that anything else in ``body`` reads or writes."""
    others = set[Buffer]()
    for stmt in walk_stmts(body):
        if isinstance(stmt, Compute | Store | Call) and stmt is not compute:
            others |= buffers_in(stmt)
    return others
