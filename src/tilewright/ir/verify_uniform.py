"""Uniformity of loops around barriers whose conditions load private memory.

Each work-item has its own private memory. A value is uniform nevertheless if all work-items store
the same in it at the same times: a variable of a program, such as the stride of a reduction. The
buffers that differ by work-item are a fixed point over all stores of the kernel.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Expr, Var
from tilewright.ir.functions import FUNCTIONS
from tilewright.ir.scope import Scope
from tilewright.ir.stmt import (
    Allocate,
    Call,
    Compute,
    For,
    If,
    Kernel,
    Let,
    LoopKind,
    Stmt,
    Store,
    View,
    While,
)
from tilewright.ir.verify_groups import THREADS
from tilewright.ir.visit import loads_in, nested, variables

_APART = frozenset({*THREADS, LoopKind.VECTOR, LoopKind.CLUSTER})


def runs_equally_often(kernel: Kernel, path: Sequence[Stmt]) -> bool:
    """Whether all work-items of a workgroup reach the loop at the end of ``path``, and run it
    equally often; False in vector loops, whose lanes are not analyzed."""
    loop = path[-1]
    assert isinstance(loop, For | While)
    if any(isinstance(stmt, For) and stmt.kind is LoopKind.VECTOR for stmt in path):
        return False
    differing: set[Buffer] = set()
    while True:
        walk = _Walk(differing, loop)
        walk.stmt(kernel.body)
        if len(walk.differing) == len(differing):
            return not walk.apart
        differing = walk.differing


class _Walk:
    """One walk through a kernel: which buffers have contents that differ by work-item, if those of
    ``differing`` do; and whether the number of iterations of ``loop`` differs (``apart``)."""

    def __init__(self, differing: set[Buffer], loop: For | While) -> None:
        self.differing = set(differing)
        self.apart = False
        self._loop = loop
        self._variables: Scope[bool] = Scope()
        self._private: set[Buffer] = set()  # allocated in work-items
        self._threads = 0
        self._control = False  # whether work-items diverge here

    def _differs(self, expr: Expr) -> bool:
        for variable in variables(expr):
            if self._variables.get(variable.name):
                return True
        return any(load.buffer in self.differing for load in loads_in(expr))

    @contextmanager
    def _inside(self, apart: bool) -> Iterator[None]:
        control = self._control
        self._control = control or apart
        with self._variables.nested():
            yield
        self._control = control

    def _define(self, variable: Var, apart: bool) -> None:
        self._variables.define(variable.name, apart)

    def _stored(self, buffer: Buffer, apart: bool) -> None:
        if apart or self._control:
            self.differing.add(buffer)

    def stmt(self, stmt: Stmt) -> None:
        """Notes the effects of ``stmt``."""
        match stmt:
            case For():
                self._for(stmt)
            case While() | If():
                apart = self._differs(stmt.condition)
                if stmt is self._loop:
                    self.apart = self.apart or apart or self._control
                for part in nested(stmt):
                    with self._inside(apart):
                        self.stmt(part)
            case Let():
                self._define(stmt.var, self._differs(stmt.value))
            case Allocate():
                if self._threads:
                    self._private.add(stmt.buffer)
            case Store():
                apart = any(map(self._differs, (*stmt.index, stmt.value)))
                # All work-items see the same contents of shared memory.
                if stmt.buffer in self._private:
                    self._stored(stmt.buffer, apart)
            case Compute():
                for view in stmt.outputs:
                    if view.buffer in self._private:
                        self.differing.add(view.buffer)
            case Call():
                self._call(stmt)
            case _:
                with self._variables.nested():
                    for part in nested(stmt):
                        self.stmt(part)

    def _for(self, stmt: For) -> None:
        threads = stmt.kind in _APART
        apart = self._differs(stmt.extent)
        if stmt is self._loop:
            self.apart = self.apart or apart or self._control
        with self._inside(apart):
            self._define(stmt.var, threads or apart)
            self._threads += threads
            self.stmt(stmt.body)
            self._threads -= threads

    def _call(self, stmt: Call) -> None:
        function = FUNCTIONS.get(stmt.function)
        for i, arg in enumerate(stmt.args):
            if not isinstance(arg, View) or arg.buffer not in self._private:
                continue
            if function is None or function.parameters[i].access in ("out", "inout"):
                self.differing.add(arg.buffer)
