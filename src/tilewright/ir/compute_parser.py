"""Reads structured ops."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from tilewright.dtypes import DType, s64
from tilewright.ir.declaration_parser import DeclarationParser
from tilewright.ir.expr import Const, Expr, var
from tilewright.ir.functions import Queue
from tilewright.ir.scope import Scope
from tilewright.ir.stmt import Combiner, Compute, Dim, Operand, Result, View
from tilewright.ir.syntax import KEYWORDS

_QUEUES = {queue.value: queue for queue in Queue}
T = TypeVar("T")


class ComputeParser(DeclarationParser):
    """Structured ops, and what they share with other statements."""

    # Lines and blocks.

    def _open(self, what: str) -> None:
        self.expect(":", f"before the {what}")
        self.line_end()
        if not self.accept("indent"):
            raise self.unexpected(f"the {what}", "indent it below, or write `pass` there")

    def _close(self) -> None:
        if not self.accept("dedent"):
            raise self.unexpected(
                "the end of the block", "indent it like the block that it belongs to"
            )

    def line_end(self) -> None:
        """The end of a line."""
        if not self.accept("newline"):
            raise self.unexpected("the end of the line", "write one statement per line")

    # Structured ops.

    def _compute(self) -> Compute:
        start = self.take().start
        name = self.take().text
        instruction = None
        if self.accept("<"):
            instruction = self.expect("name", "of the instruction").text
            self.expect(">", "after the instruction")
        dims = self._dims()
        with self.variables.nested():
            for dim in dims:
                self.variables.define(dim.var.name, dim.var.type)
            completion = self._completion()
            span = self.span(start)
            self._open("views and the body of the op")
            operands = self._operands()
            results = self._results()
            self._close()
        return Compute(name, dims, operands, results, instruction, completion, span)

    def _completion(self) -> View | Queue | None:
        """How an asynchronous op is completed: ``signals mbarrier[i]`` or ``joins queue``."""
        if self.token.kind != "name" or self.token.text not in ("signals", "joins"):
            return None
        if self.take().text == "signals":
            return self.view()
        return self.one_of("queue", _QUEUES, "of the queue")

    def _dims(self) -> tuple[Dim, ...]:
        self.expect("(", "before the dims")
        dims: list[Dim] = []
        while self.token.kind != ")":
            ordered = self.token.text == "ordered" and self.ahead(1).kind == "name"
            if ordered:
                self.take()
            variable = self.index_variable()
            self.expect("in", "before the extent")
            extent = self.typed_expression(s64, "the extent of a dim")
            dims.append(Dim(variable, extent, ordered))
            if not self.accept(","):
                break
        self.expect(")", "after the dims")
        return tuple(dims)

    def _operands(self) -> tuple[Operand, ...]:
        """Each is in scope in the views after it, and in the values of the results."""
        operands: list[Operand] = []
        while self.token.kind == "name" and self.ahead(1).kind in (":", "="):
            name, type_ = self.declared()
            self.expect("=", "before the view")
            view = self.view()
            self.line_end()
            operand = Operand(var(name, type_ or view.buffer.dtype), view)
            operands.append(operand)
            self.variables.define(name, operand.var.type)
        return tuple(operands)

    def _results(self) -> tuple[Result, ...]:
        """The combiners that the text declares, and the results."""
        combiners: dict[str, Combiner] = {}
        places: dict[str, int] = {}
        while self.token.text == "combiner" and self.ahead(1).kind == "name":
            self.take()
            start = self.token.start
            combiner = self._combiner()
            if combiner.name in combiners:
                raise self.refusal(
                    f"there are two combiners {combiner.name}", start, cure="rename one of them"
                )
            combiners[combiner.name], places[combiner.name] = combiner, start
        results = [self._result(combiners)]
        while self.token.kind == "name":
            results.append(self._result(combiners))
        for combiner in combiners.values():
            if all(result.combiner is not combiner for result in results):
                raise self.refusal(
                    f"nothing combines by {combiner.name}",
                    places[combiner.name],
                    places[combiner.name] + len(combiner.name),
                    cure=f"write a result with `{combiner.name}=`, or remove the combiner",
                )
        return tuple(results)

    def _combiner(self) -> Combiner:
        """``name(old, ...; new, ...) from (identity, ...) = value, ...``, in a scope of its own."""
        name = self.expect("name", "for the combiner").text
        self.expect("(", "before the old values")
        old = self._listed(self.index_variable)
        self.expect(";", "between the old and the new values")
        new = self._listed(self.index_variable)
        self.expect(")", "after the new values")
        if self.token.text != "from":
            raise self.unexpected("`from`", "write the identity: `from (0.0) = ...`")
        self.take()
        self.expect("(", "before the identity")
        types = iter([variable.type for variable in old])
        identity = self._listed(lambda: self._identity(next(types, None)))
        self.expect(")", "after the identity")
        self.expect("=", "and the combined values")
        outer = self.variables, self.buffers
        self.variables = Scope({variable.name: variable.type for variable in (*old, *new)})
        self.buffers = Scope()
        types = iter([variable.type for variable in old])
        values = self._listed(lambda: self._typed(next(types, None), "a combined value"))
        self.variables, self.buffers = outer
        self.line_end()
        return Combiner(name, old, new, identity, values)

    def _identity(self, type_: DType | None) -> Const:
        start = self.token.start
        value = self._typed(type_, "an identity")
        if not isinstance(value, Const):
            raise self.refusal("an identity must be a constant", start, cure="write its number")
        return value

    def _typed(self, type_: DType | None, what: str) -> Expr:
        """An expression; of ``type_``, unless that is None."""
        return self.expression() if type_ is None else self.typed_expression(type_, what)

    def _result(self, combiners: Mapping[str, Combiner]) -> Result:
        """``views how= values``, with ``unique`` in front where that is promised."""
        unique = self.token.text == "unique" and self.ahead(1).kind == "name"
        if unique:
            self.take()
        if self.token.kind != "name":
            raise self.unexpected(
                "the output", "write `buffer[...] = value` or `buffer[...] add= value`"
            )
        start = self.token.start
        views = self._listed(self.view)
        named = self.token.kind == "name" or self.token.kind in KEYWORDS
        name = self.take().text if named else None
        self.expect("=", "and the value of the op")
        places = iter(views)
        values = self._listed(lambda: self._value(next(places, None)))
        combiner = combiners.get(name, name) if name is not None else None
        if not isinstance(combiner, Combiner) and len(views) > 1:
            raise self.refusal(
                f"{name or 'assignment'} takes one output, here are {len(views)}",
                start,
                cure="write a line for each, or declare a `combiner` of so many values",
            )
        if len(values) != len(views):
            raise self.refusal(
                f"{len(views)} outputs, but {len(values)} values",
                start,
                cure="write a value for each output",
            )
        self.line_end()
        return Result(views, values, combiner, unique)

    def _value(self, view: View | None) -> Expr:
        if view is None:
            return self.expression()
        return self.typed_expression(view.buffer.dtype, f"what {view.buffer.name} holds")

    def _listed(self, read: Callable[[], T]) -> tuple[T, ...]:
        """One or more, with commas between them."""
        items = [read()]
        while self.accept(","):
            items.append(read())
        return tuple(items)
