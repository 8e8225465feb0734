"""Calls of compiled kernels, with arguments by name: what runs, and the memory that it touches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tilewright.engine import CompiledKernel, compile_kernel
from tilewright.engine.placing import Packed
from tilewright.engine.signature import ArrayForm
from tilewright.errors import ArgumentError
from tilewright.graph.compiling import compile_graph
from tilewright.graph.graph import is_graph
from tilewright.ir.stmt import Param
from tilewright.lang.exact import exact
from tilewright.lang.kernel import KernelFunction
from tilewright.queues.buffers import Accessor, Buffer, form_of
from tilewright.queues.events import Work
from tilewright.queues.late import (
    held_weakly,
    lacks_memory,
    packed,
    stand_in,
    stands_for_packed,
    when_it_runs,
)
from tilewright.queues.planning import (
    ACCESSES,
    Call,
    Launched,
    Plan,
    Where,
    array_of,
    no_results,
    nothing,
    number_of,
    touching,
    work_of,
)
from tilewright.queues.room import room_of
from tilewright.queues.spans import WRITE
from tilewright.runtime.array_info import contiguous


def compiled(what: Any, where: Where) -> CompiledKernel:
    """``what`` as a kernel for the device of a queue. Raises what `tilewright.compile` does, and
    `ArgumentError` for one that was compiled for another device."""
    name = where.target.name
    if isinstance(what, CompiledKernel):
        if what.target.name.partition(":")[0] != where.device:
            raise ArgumentError(
                f"{what!r} is compiled for {what.target.name}, and the queue is one of {name}",
                cure=f"compile it with target={name!r}, or submit what was compiled",
            )
        return what
    if isinstance(what, KernelFunction):
        raise AssertionError("a function is launched")
    if is_graph(what):
        return compile_graph(what, name, where.threads)
    return compile_kernel(what, name, where.threads)


def plan_call(
    kernel: CompiledKernel, arguments: Mapping[str, Any], where: Where, later: bool = False
) -> Plan:
    """The call of a compiled kernel with arguments by name. Those that it takes packed are packed
    when it runs, where they are not yet; ``later``: buffers get memory then. Raises what the call
    does."""
    arrays = {n: array_of(argument, where, n, later) for n, argument in arguments.items()}
    loose = [n for n in kernel.packed if n in arrays and not isinstance(arrays[n], Packed)]
    results: dict[str, Buffer] = {}
    forms: dict[str, ArrayForm] = {}

    def allocate(name: str, form: ArrayForm) -> Any:
        forms[name], results[name] = form, _result(form, where, later)
        return stand_in(results[name])

    # Arguments that do not fit are refused now, whatever is in them yet.
    checked = {name: stands_for_packed(kernel, name, arrays[name]) for name in loose}
    passed = kernel.passed({**arrays, **checked}, allocate)
    everything = {**arguments, **results}
    memory = {
        param.name: touching(everything[param.name], _access(param, results), param.name)
        for param in kernel.signature.arguments
        if not isinstance(everything[param.name], Packed)
    }
    launched: Launched | str
    if is_graph(kernel.what):
        launched = "a graph is several kernels"
    elif len(memory) < len(kernel.signature.arguments):
        launched = "it takes packed arrays"
    else:
        numbers = {n: number_of(value) for n, value in everything.items() if n not in memory}
        whole = {name: (name, value) for name, value in memory.items()}
        launched = Launched(kernel.start.kernel, numbers, whole, packs=tuple(loose))
    work = _late(kernel, everything, loose, where, later) or work_of(kernel, passed, where)
    call = None
    if results and results.keys() == set(kernel.signature.results):
        call = Call(kernel, forms, {name: access for name, (_, access) in memory.items()}, loose)
    name, touched = kernel.request.name, [*memory.values()]
    return Plan(name, work, touched, None, results, not results, launched, call)


def forms_of(arguments: Mapping[str, Any]) -> tuple[tuple[str, Any], ...] | None:
    """By name, the forms of ``arguments`` that are open buffers, what commands do with those that
    have accessors, and numbers; None where some are others. (The overlap of what is written is
    looked at in each call.)"""
    forms: list[tuple[str, Any]] = []
    for name, argument in arguments.items():
        kind = argument.__class__
        buffer = argument.buffer if kind is Accessor else argument
        if buffer.__class__ is Buffer:
            if buffer.span.closed:
                return None
            form = form_of(buffer)
            forms.append((name, form if kind is Buffer else (form, argument.access)))
        elif isinstance(argument, bool | int | float | np.generic):
            forms.append((name, exact(argument)))
        else:
            return None
    return tuple(forms)


def template_of(plan: Plan) -> Plan:
    """What is kept of the ``plan`` of a call: nothing of its arguments and results."""
    launched = plan.launched
    if isinstance(launched, Launched):
        launched = launched._replace(arrays={})
    return plan._replace(work=nothing, touched=(), results={}, launched=launched)


def plan_again(plan: Plan, arguments: Mapping[str, Any], where: Where, later: bool) -> Plan:
    """The ``plan`` of a call for one on buffers of the same forms, with results of its own."""
    call = plan.call
    assert call is not None
    kernel = call.kernel
    results = {name: _result(form, where, later) for name, form in call.forms.items()}
    everything = {**arguments, **results}
    memory = {n: touching(everything[n], access, n) for n, access in call.accesses.items()}
    launched = plan.launched
    if isinstance(launched, Launched):
        arrays = {name: (name, value) for name, value in memory.items()}
        launched = launched._replace(arrays=arrays)
    work = _late(kernel, everything, call.loose, where, later)
    if work is None:
        arrays = {name: array_of(value, where, name) for name, value in everything.items()}
        work = work_of(kernel, kernel.passed(arrays, no_results), where)
    return plan._replace(work=work, touched=[*memory.values()], results=results, launched=launched)


def _result(form: ArrayForm, where: Where, later: bool) -> Buffer:
    """A new buffer for a result; ``later``: its memory comes when a kernel runs, if need be."""
    plain = later and form.strides == contiguous(form.shape)
    memory = None if plain else room_of(where.device).result(form)
    result = Buffer(where.device, form.shape, form.dtype, memory)
    result.span.shared = False
    return result


def _late(
    kernel: CompiledKernel,
    arguments: Mapping[str, Any],
    loose: Sequence[str],
    where: Where,
    later: bool,
) -> Work | None:
    """The call of a kernel on arrays that are there only when it runs; None where all are."""
    if loose:
        return packing(kernel, arguments, loose, where)
    names, values = [*arguments], [*arguments.values()]
    if later and lacks_memory(values):
        return when_it_runs(
            values, lambda them: plan_call(kernel, dict(zip(names, them, strict=True)), where).work
        )
    return None


def packing(
    kernel: CompiledKernel, arguments: Mapping[str, Any], loose: Sequence[str], where: Where
) -> Work:
    """The call of a kernel that takes the arguments ``loose`` packed."""
    held, names = held_weakly([*arguments.values()]), [*arguments]

    def work(threads: int) -> None:
        them = dict(zip(names, held(), strict=True))
        arrays = {name: array_of(argument, where, name) for name, argument in them.items()}
        # They have to live as long as the run.
        ordered = {name: packed(kernel, name, them[name], arrays[name]) for name in loose}
        work_of(kernel, kernel.passed({**arrays, **ordered}, no_results), where)(threads)

    return work


def _access(param: Param, results: Mapping[str, Any]) -> int:
    return WRITE if param.name in results else ACCESSES[param.access]
