"""The plans of a queue's submissions, which are kept."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewright.engine import CompiledKernel
from tilewright.errors import ArgumentError
from tilewright.lang.kernel import KernelFunction
from tilewright.lang.launch import Launch
from tilewright.lang.ranges import Grid
from tilewright.newest import Newest
from tilewright.queues.calls import compiled, forms_of, plan_again, plan_call, template_of
from tilewright.queues.checks import check_options
from tilewright.queues.planning import Plan, Where, key_of, plan_launch

_KEPT = 256


class Plans:
    """Plans submissions: those that come again find their plans."""

    def __init__(self, where: Where) -> None:
        self._where = where
        # With what each is of, so that `id` stays that one's.
        self._plans: Newest[tuple[int, Any], tuple[Any, Plan]] = Newest(_KEPT)
        self._calls: Newest[tuple[int, Any], tuple[Any, Plan]] = Newest(_KEPT)
        self._codes: Newest[int, tuple[Any, CompiledKernel]] = Newest(_KEPT)

    def of(
        self,
        what: Any,
        arguments: tuple[Any, ...],
        arrays: Mapping[str, Any],
        local: Any,
        offset: Any,
        tunables: Any,
        taken: tuple[Any, ...],
        later: bool,
    ) -> Plan:
        """The plan of a submission; ``taken`` is all that it is passed, in one order. ``later``:
        buffers get memory when it runs, if ever. Raises what `Queue.submit` does."""
        forms = None if arguments or what.__class__ is KernelFunction else forms_of(arrays)
        if forms is not None:
            call = self._calls.get((id(what), forms))
            if call is not None:
                check_options(what, arguments, (local, offset, tunables))
                return plan_again(call[1], arrays, self._where, later)
        key = key_of(taken) if tunables is None else None
        if key is not None:
            plan = self._kept(what, key)
            if plan is not None:
                return plan
        if what.__class__ is KernelFunction:
            grid = Grid(None, local, offset)
            plan = self._launch(what, arguments, arrays, grid, tunables, later)
        else:
            code = self._compiled(what)
            check_options(what, arguments, (local, offset, tunables))
            plan = plan_call(code, arrays, self._where, later)
        if key is not None and plan.lasts:
            self._plans[id(what), key] = (what, plan)
        elif forms is not None and plan.call is not None:
            self._calls[id(what), forms] = (what, template_of(plan))
        return plan

    def _kept(self, what: Any, key: tuple[Any, ...]) -> Plan | None:
        """The plan of a submission that was there before."""
        try:
            kept = self._plans.get((id(what), key))
        except TypeError:  # a part of the key has no hash
            return None
        if kept is None or (kept[1].unchanged is not None and not kept[1].unchanged()):
            return None
        return kept[1]

    def _launch(
        self,
        function: KernelFunction,
        arguments: tuple[Any, ...],
        arrays: Mapping[str, Any],
        grid: Grid,
        tunables: Any,
        later: bool,
    ) -> Plan:
        if arrays or not arguments:
            raise ArgumentError(
                f"{function.name} is submitted without a range"
                if not arguments
                else f"{function.name} is submitted with arguments by name",
                where=", ".join(arrays) or None,
                why="functions with @tw.kernel take their arguments in order",
                cure=f"write queue.submit({function.name}, (size,), "
                + ", ".join(function.parameters)
                + ")",
            )
        grid = grid._replace(range=arguments[0])
        name = self._where.target.name
        launch = Launch(grid, arguments[1:], name, self._where.threads, tunables)
        return plan_launch(function, launch, self._where, later)

    def _compiled(self, what: Any) -> CompiledKernel:
        kept = self._codes.get(id(what))
        if kept is None:
            kept = self._codes[id(what)] = (what, compiled(what, self._where))
        return kept[1]
