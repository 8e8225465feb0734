"""A part of a PyTorch graph as a program of ours."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from operator import is_, itemgetter
from typing import Any

import torch
from torch.fx import Graph, Node

from tilewright.engine import CompiledKernel
from tilewright.engine.holding import holding, holds_addresses, mapped_by_threads
from tilewright.errors import ArgumentError
from tilewright.frontends.torch.checks import NAME, NONE, Checks
from tilewright.frontends.torch.forms import Form
from tilewright.frontends.torch.open_sizes import open_sizes_now, size_of
from tilewright.frontends.torch.translate import Translation
from tilewright.graph.compiling import Divided, compile_divided
from tilewright.ir.stmt import Kernel
from tilewright.tensor.tensor import Builder


@dataclass(frozen=True)
class Options:
    """How programs are compiled: as `tilewright.compile` takes it."""

    target: str = "x86"
    threads: int | None = None
    strict: bool = False
    """Whether what is not native is an error."""
    freeze: bool = False
    """Whether parameters change only where PyTorch counts it, so that they may be packed."""
    checks: bool = True
    """Whether an index out of range and an integer division by 0 raise, as they do in PyTorch."""


@dataclass(frozen=True)
class Translated:
    """A graph as a kernel. ``inputs`` and ``outputs`` say how tensors are passed: None for what is
    no tensor, or is not used. An output without elements has no name."""

    kernel: Kernel
    inputs: tuple[tuple[str, Form] | None, ...]
    outputs: tuple[tuple[str, Form] | None, ...]
    faults: tuple[ArgumentError, ...] = ()
    """What the number means that the result `checks.NAME` has."""


def translated(graph: Graph, name: str, checked: bool = False) -> Translated:
    """The kernel of a graph of known shapes, or of those that are open now, all of whose ops are in
    the table; ``checked``, it has a result more, which says what PyTorch would refuse.

    Raises `RefusedOpError` for those that are not.
    """
    builder = Builder(name, open_sizes_now())
    checks = Checks(builder) if checked else None
    translation = Translation(builder, checks)
    inputs: list[tuple[str, Form] | None] = []
    outputs: list[tuple[str, Form] | None] = []
    for node in graph.nodes:
        if node.op == "placeholder":
            inputs.append(_input(builder, translation, node))
        elif node.op == "call_function":
            translation.run(node)
        elif node.op == "output":
            values = node.args[0]
            each_of = values if isinstance(values, tuple | list) else (values,)
            outputs = [_output(builder, translation, n, i) for i, n in enumerate(each_of)]
    faults = () if checks is None else checks.output()
    return Translated(translation.kernel(), tuple(inputs), tuple(outputs), faults)


def _input(builder: Builder, translation: Translation, node: Node) -> tuple[str, Form] | None:
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor):
        is_size = isinstance(value, torch.SymInt)
        translation.values[node] = size_of(value) if is_size else value
        return None
    if not node.users:
        return None
    form = Form.of(value)
    if 0 in form.sizes:
        translation.values[node] = form.empty(builder)
        return None
    translation.values[node] = form.input(builder, node.name)
    return node.name, form


def _output(
    builder: Builder, translation: Translation, node: Any, number: int
) -> tuple[str, Form] | None:
    if not isinstance(node, Node):
        return None
    value = node.meta["val"]
    form = Form.of(value)
    if form.repeated:
        form = replace(Form.row_major(form.type, form.sizes), complex=form.complex)
    if 0 in form.sizes:
        return "", form
    name = f"result{number}"
    form.output(builder, name, translation.values[node])
    return name, form


class Part:
    """A compiled part: called with tensors in the order of the graph's inputs, it gives new ones.

    ``fixed`` are the inputs that are parameters. What depends on frozen ones alone is computed when
    they are first seen, and again when they have changed, as their versions and their places in
    memory tell; others are read in each call, and looked at when they lie elsewhere.
    """

    @classmethod
    def of(cls, what: Translated, fixed: Collection[int], options: Options) -> Part:
        """The part of known sizes. Raises what compiling does."""
        inputs = enumerate(what.inputs)
        names = {
            passed_form[0] for n, passed_form in inputs if passed_form is not None and n in fixed
        }
        frozen = names if options.freeze else ()
        divided = compile_divided(what.kernel, frozen, options.target, options.threads)
        return cls(what, fixed, divided, options.freeze)

    def __init__(
        self, what: Translated, fixed: Collection[int], divided: Divided, frozen: bool = False
    ) -> None:
        self.kernel = what.kernel
        self._outputs, self._faults = what.outputs, what.faults
        inputs = [(n, *form) for n, form in enumerate(what.inputs) if form is not None]
        self.compiled = divided.program
        passed = set(divided.program.signature.names)
        parameters = [entry for entry in inputs if entry[0] in fixed]
        self._parameters: _Frozen | _Unfrozen
        if frozen:
            self._parameters = _Frozen(divided, parameters)
        else:
            parameters = [entry for entry in parameters if entry[1] in passed]
            self._parameters = _Unfrozen(divided.program, parameters)
        self._inputs = [entry for entry in inputs if entry[0] not in fixed and entry[1] in passed]

    def __call__(self, *tensors: Any) -> tuple[Any, ...]:
        """The results for these tensors."""
        run = self._parameters.program(tensors)
        arrays: dict[str, Any] = {}
        for n, name, form in self._inputs:
            arrays[name] = form.array(tensors[n].detach())
        results: list[Any] = []
        for output in self._outputs:
            if output is None:
                results.append(None)
                continue
            name, form = output
            tensor, array = form.result()
            results.append(tensor)
            if name:
                arrays[name] = array
        if not self._faults:
            run(**arrays)
            return tuple(results)
        number = arrays[NAME] = torch.empty((), dtype=torch.int32)
        run(**arrays)
        fault = number.item()
        if fault != NONE:
            raise copy(self._faults[int(fault)])
        return tuple(results)


def _chooser(numbers: Sequence[int]) -> Callable[[Sequence[Any]], Sequence[Any]]:
    """What takes the values of these ``numbers`` out of all."""
    if len(numbers) > 1:
        return itemgetter(*numbers)  # of one, it gives no tuple
    return lambda values: [values[n] for n in numbers]


# How often tensors were changed, and where they lie. (Their sizes and strides are what PyTorch's
# guards watch.)
_Marks = tuple[list[int], list[int]]


def _marks(tensors: Sequence[torch.Tensor]) -> _Marks:
    return [tensor._version for tensor in tensors], list(map(torch.Tensor.data_ptr, tensors))


@dataclass(frozen=True)
class _Made:
    """What was made of ``tensors`` when they had these ``marks``; None: changes of some are not
    counted, so that they are looked at in each call."""

    # While they are held, no other tensor gets their place in memory.
    tensors: Sequence[torch.Tensor]
    marks: _Marks | None
    known: dict[str, Any]
    arrays: dict[str, Any]
    run: Callable[..., object]

    def holds(self, tensors: Sequence[torch.Tensor]) -> bool:
        """Whether these are the tensors, as they were."""
        return (
            self.marks is not None
            and all(map(is_, tensors, self.tensors))
            and self.marks == _marks(tensors)
        )

    def is_as_it_was(self, n: int, tensor: torch.Tensor) -> bool:
        """Whether ``tensor`` is that of this number, as it was."""
        if self.marks is None or tensor is not self.tensors[n]:
            return False
        versions, places = self.marks
        return (versions[n], places[n]) == (tensor._version, tensor.data_ptr())


class _Unfrozen:
    """What a program takes for parameters that it reads in each call: where they lie.

    Nothing is kept but addresses: a program may be there longer than a model, and must not keep the
    memory of one that is gone, or has other parameters now.
    """

    def __init__(self, compiled: CompiledKernel, inputs: Sequence[tuple[int, str, Form]]) -> None:
        self._compiled, self._inputs = compiled, inputs
        self._chosen = _chooser([n for n, _, _ in inputs])
        self._placed: tuple[list[int], Callable[..., object]] | None = None

    def program(self, tensors: Sequence[torch.Tensor]) -> Callable[..., object]:
        """The program with its arrays, as a function of the others by name."""
        parameters = self._chosen(tensors)
        places = list(map(torch.Tensor.data_ptr, parameters))
        placed = self._placed  # Other threads may call with parameters of their own.
        if placed is not None and placed[0] == places:
            return placed[1]
        arrays = {
            name: form.array(tensor.detach())
            for (_, name, form), tensor in zip(self._inputs, parameters, strict=True)
        }
        if not holds_addresses(self._compiled) or places != [
            array.data_ptr() for array in arrays.values()
        ]:
            # A copy is of this call only: what changes without being counted counts, too.
            return partial(self._compiled, **arrays)
        self._placed = placed = places, holding(self._compiled, arrays, keeps=False)
        return placed[1]


class _Frozen:
    """What a program takes for frozen parameters, made of them when they change.

    Versions count changes in place, but those through ``.data`` and ``.numpy()``, which PyTorch
    does not count: that there are none is what who freezes them says.
    """

    def __init__(self, divided: Divided, inputs: Sequence[tuple[int, str, Form]]) -> None:
        self._inputs, self._compiled, self._constant = inputs, divided.program, divided.constant
        self._before = divided.before
        self._chosen = _chooser([n for n, _, _ in inputs])
        self._made: _Made | None = None

    def program(self, tensors: Sequence[torch.Tensor]) -> Callable[..., object]:
        """The program with its arrays, as a function of the others by name. They are made now, of
        those parameters that are not as they were."""
        parameters = self._chosen(tensors)
        # Several threads may call with parameters of their own: each goes by what it has seen.
        state = self._made
        if state is None or not state.holds(parameters):
            state = self._made = self._updated(state, parameters)
        return state.run

    def _updated(self, old: _Made | None, parameters: Sequence[torch.Tensor]) -> _Made:
        counted = not any(parameter.is_inference() for parameter in parameters)
        marks = _marks(parameters) if counted else None
        values, arrays = ({}, {}) if old is None else (dict(old.known), dict(old.arrays))
        changed = set[str]()
        for n, ((_, name, form), tensor) in enumerate(zip(self._inputs, parameters, strict=True)):
            if old is None or marks is None or not old.is_as_it_was(n, tensor):
                values[name] = form.array(tensor.detach())
                changed.add(name)
        if self._before is not None:
            changed.update(self._prepared(self._before, values, changed))
        compiled = self._compiled

        def made(name: str) -> Any:
            value = values[self._constant[name]]
            return compiled.pack(name, value) if name in compiled.packed else value

        names = [name for name, source in self._constant.items() if source in changed]
        arrays.update(zip(names, mapped_by_threads(made, names, compiled.threads), strict=True))
        if self._before is not None:
            # What was made for packing is not needed beside what is packed.
            for name in self._before.signature.results:
                values.pop(name, None)
        return _Made(parameters, marks, values, arrays, holding(compiled, arrays))

    def _prepared(
        self, before: CompiledKernel, values: dict[str, Any], changed: Collection[str]
    ) -> Collection[str]:
        """Puts what ``before`` makes of parameters into ``values``, if one of these ``changed``,
        and says what that is."""
        results = before.signature.results
        names = [name for name in before.signature.names if name not in results]
        if not any(name in changed for name in names):
            return ()
        prepared = before(**{name: values[name] for name in names})
        values |= prepared if len(results) > 1 else {results[0]: prepared}
        return results
