"""What a user holds: a compiled kernel, called on arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn, TypeVar, overload

from tilewright.engine.cost import Cost, cost_of
from tilewright.engine.export import export
from tilewright.engine.fitting import Fitting, PackCode
from tilewright.engine.kept import KeptSteps
from tilewright.engine.numbers import Numbers, call_arguments
from tilewright.engine.placing import Call, Packed, Placing
from tilewright.engine.program import Code
from tilewright.engine.request import Request
from tilewright.engine.signature import ArrayForm, Signature
from tilewright.errors import ArgumentError, UnsupportedError, short
from tilewright.notebook import facts_html, table_html
from tilewright.passes import run
from tilewright.recipes import choose
from tilewright.recipes.config import Config, OwnSchedule
from tilewright.recipes.start import Start
from tilewright.runtime.device_arrays import is_resident
from tilewright.runtime.results import Finish, aligned_memory, in_bytes, to_layout
from tilewright.schedule.schedule import KernelSchedule
from tilewright.schedule.stages import Stages
from tilewright.targets.llvm.module import Module
from tilewright.targets.target import Target

# An array of any library: results are of the library of the arguments.
A = TypeVar("A")
Number = int | float


@dataclass(frozen=True)
class Made:
    """What compiling makes, and the cache in memory keeps: with what says of arrays what they have
    to be, by the ``numbers`` of a call where the kernel takes some."""

    config: Config
    code: Code
    packs: Mapping[str, PackCode]
    signature: Signature
    steps: KeptSteps
    fitting: Fitting | None = None
    numbers: Numbers | None = None


class CompiledKernel:
    """A kernel on one target. Thread-safe; arrays are never copied, but for devices that cannot
    reach them.

    ``what`` was compiled: a kernel, or an op with all that it left open decided; ``signature`` says
    how it is called. Calling it takes the arguments by name, or in their order, or the first ones
    in order and the others by name. Results are allocated, unless ``out`` (or an argument of the
    result's name) is given; one result is returned as it is, several as a dict. What is allocated
    is of the library of the first argument, in their order, that is torch's or JAX's, else numpy's.
    Where the kernel has an argument ``out`` or ``stream``, these keywords are its own.
    Numbers are passed like arrays; sizes that shapes of arrays tell need not be given, and have no
    place in the order.

    On an NVIDIA GPU, arrays in its memory (torch, ``__cuda_array_interface__``, DLPack) are taken
    as they are, those of the host are copied. A call runs on ``stream`` (a handle, or a stream of
    torch or cupy), else on torch's current one, else on the one that an array names. It waits for
    the kernel only if there is none of these, or if an array of the host was copied. A result is
    allocated where the other arrays are: a torch tensor for torch tensors on the device.
    """

    def __init__(
        self,
        request: Request,
        target: Target,
        parts: Made,
        threads: int,
        compile_seconds: float,
        from_cache: bool,
        origin: str,
    ) -> None:
        self.what = request.what
        self.signature = signature = parts.signature
        self.target = target
        self.config = parts.config
        self.threads = threads
        self.code = parts.code
        self.compile_seconds = compile_seconds
        self.from_cache = from_cache
        self.request = request
        self.origin = origin
        self._steps = parts.steps
        self._packs = parts.packs
        self._names, self._results = signature.names, signature.results
        self.fitting = parts.fitting
        self._numbers = parts.numbers
        named = {*self._names, *(scalar.name for scalar in signature.scalars)}
        self._options = named & {"out", "stream"}  # arguments that are called as options are

    @property
    def packed(self) -> tuple[str, ...]:
        """The arguments that `pack` has to prepare."""
        return tuple(self._packs)

    @property
    def packing(self) -> Mapping[str, PackCode]:
        """How the arguments are packed that `packed` names."""
        return self._packs

    def pack(self, name: str, array: A) -> A | Packed:
        """``array`` (of the argument's logical shape, in any order) in the order the kernel reads,
        with what else the kernel needs of it.

        An input that needs no packing is returned as it is, or, where its strides are others than
        the kernel's, as a copy, of the same library. Where the kernel takes weights of 4 bits two
        to a byte, an array of them (`ml_dtypes.uint4`, `int4`) has each in a byte.
        """
        if not isinstance(name, str) or name not in self._names:
            raise self.signature.unknown(name)
        pack = self._packs.get(name)
        if pack is None:
            ordered: A = self._in_order(name, array)
            return ordered
        form = self.signature.form(name)
        source = form.spec(name, writable=False)
        array = in_bytes(array, source)
        program = pack.code.device
        if program is None or not is_resident(array, name):
            array = to_layout(array, form, source)
        if program is not None:
            placing = Placing(program, (), {})
            sizes = [form.extent * form.dtype.bytes for form in pack.forms]
            device_memories = placing.pack(array, name, source, form.extent, sizes)
            pointers = tuple(memory.pointer for memory in device_memories)
            return Packed(name, pack.key, device_memories, pointers, program.device_number)
        data = tuple(aligned_memory(form.extent, form.dtype, zero=True) for form in pack.forms)
        pointers = tuple(int(memory.ctypes.data) for memory in data)
        pack.code.run([source.pointer(array), *pointers], 1)
        return Packed(name, pack.key, data, pointers)

    def _in_order(self, name: str, array: Any) -> Any:
        """``array`` as calls take it: in the kernel's order, where it is an array of the host, and
        an input whose sizes are known."""
        if self.fitting is None or self.signature.argument(name).access != "in":
            return array
        if self.code.device is not None and is_resident(array, name):
            return array
        form = self.signature.forms[name]
        spec = form.spec(name, writable=False)
        return to_layout(in_bytes(array, spec), form, spec)

    @overload
    def __call__(
        self,
        /,
        *ordered: A | Packed | Number,
        out: None = None,
        stream: Any = None,
        **arrays: A | Packed | Number,
    ) -> A | Any: ...
    @overload
    def __call__(self, /, *ordered: Any, out: A, stream: Any = None, **arrays: Any) -> A: ...
    def __call__(self, /, *ordered: Any, out: Any = None, stream: Any = None, **arrays: Any) -> Any:
        """Runs the kernel; see the class.

        Raises `ArgumentError` for an array that does not fit (its shape, type, strides, device, or
        that it may not be written), or that is missing, and `DeviceError` for what a device
        reports.
        """
        if self._options:
            out, stream = self._chosen(out, stream, arrays)
        if ordered:
            self._name(ordered, arrays)
        fitting = self.fitting
        finish: dict[str, Finish] = {}
        if fitting is None:
            _, _, finish = self._numbered(out, stream, arrays, run=True)
        else:
            if out is not None or len(arrays) < len(self._names):
                finish = self._outputs(fitting, out, arrays, stream)
            placing = fitting.placing
            if placing is None:
                self.code.run(fitting.pointers(arrays, stream), self.threads)
            else:
                placing.run(fitting.place(placing, arrays, stream))
        for name, finished in finish.items():
            arrays[name] = finished(arrays[name])
        results = self._results
        if len(results) == 1:
            return arrays[results[0]]
        return {name: arrays[name] for name in results}

    def bind(
        self, /, *ordered: Any, out: Any = None, stream: Any = None, **arrays: Any
    ) -> Callable[[], None]:
        """A function of no arguments that runs the kernel on these arrays, checked once; and on the
        stream that a call now would run on."""
        if self._options:
            out, stream = self._chosen(out, stream, arrays)
        if ordered:
            self._name(ordered, arrays)
        call, keep = self._prepared(out, stream, arrays)

        def bound(_keep: Any = (arrays, keep, self), _call: Callable[[], None] = call) -> None:
            """Runs the kernel on the arrays, and on the stream, that it was bound to."""
            _call()

        return bound

    def borrow(self, /, **arrays: Any) -> Callable[[], None]:
        """As `bind`, of arrays that the caller keeps: the call holds none of them, and is to be
        called only while they are there, with their memory where it is."""
        return self._prepared(None, None, arrays)[0]

    def _prepared(
        self, out: Any, stream: Any, arrays: dict[str, Any]
    ) -> tuple[Callable[[], None], tuple[Any, ...]]:
        """The call, and what has to live for it besides ``arrays``, which get the results."""
        fitting, keep = self.fitting, tuple[Any, ...]()
        if fitting is None:
            call, keep, _ = self._numbered(out, stream, arrays, run=False)
        else:
            self._outputs(fitting, out, arrays, stream)
            placing = fitting.placing
            if placing is None:
                call = self.code.bound(fitting.pointers(arrays, stream), self.threads)
            else:
                placed = fitting.place(placing, arrays, stream)
                call, keep = placing.bound(placed), placed.keep
        return call, keep

    def passed(
        self, arrays: dict[str, Any], allocate: Callable[[str, ArrayForm], Any]
    ) -> list[Any] | Call:
        """What the code runs on, in the order of its parameters: pointers to ``arrays``, which the
        caller keeps, and numbers; of code for a device, with where the arrays lie.

        What ``arrays`` has of numbers is taken out, and results that are missing are put into it,
        as ``allocate`` makes them of their names and forms. Raises what a call does.
        """
        return call_arguments(self.fitting, self._numbers, arrays, self._missing(arrays), allocate)

    def with_constants(self, pointers: list[int]) -> list[Any]:
        """What the code runs on, of pointers to all that a call passes: arrays."""
        return pointers if self._numbers is None else self._numbers.arguments(pointers, {})

    def _numbered(
        self, out: Any, stream: Any, arrays: dict[str, Any], run: bool
    ) -> tuple[Callable[[], None], tuple[Any, ...], dict[str, Finish]]:
        """The call of a kernel that takes numbers, what has to live for it, and how results are
        finished; with ``run``, it is made.

        What ``arrays`` has of numbers is taken out, and results are put into it."""
        assert self._numbers is not None
        self._given(out, arrays)
        numbers = self._numbers.take(arrays)
        fitting = self._numbers.fitting(numbers)
        finish = self._allocate(fitting, arrays, stream)
        placing = fitting.placing
        if placing is None:
            pointers = fitting.pointers(arrays, stream)
            arguments = self._numbers.arguments(pointers, numbers)
            if run:
                self.code.run(arguments, self.threads)
                return _nothing, (), finish
            return self.code.bound(arguments, self.threads), (), finish
        call = self._numbers.placed(fitting.place(placing, arrays, stream), numbers)
        if run:
            placing.run(call)
            return _nothing, (), finish
        return placing.bound(call), call.keep, finish

    def _chosen(self, out: Any, stream: Any, arrays: dict[str, Any]) -> tuple[Any, Any]:
        """The options ``out`` and ``stream``. Arguments that are called so go into ``arrays``;
        ``out`` stays an option where it has results by their names."""
        if "out" in self._options and out is not None and not isinstance(out, Mapping):
            arrays["out"], out = out, None
        if "stream" in self._options and stream is not None:
            arrays["stream"], stream = stream, None
        return out, stream

    def _name(self, ordered: tuple[Any, ...], arrays: dict[str, Any]) -> None:
        """Puts arrays that are given in the order of the arguments into ``arrays``."""
        if len(ordered) > len(self._names):
            raise ArgumentError(
                f"{len(ordered)} arrays are given for {len(self._names)} arguments",
                cure="pass " + ", ".join(self._names) + ", in this order",
            )
        for name, array in zip(self._names, ordered, strict=False):
            if name in arrays:
                raise ArgumentError(
                    f"{name} is given twice",
                    why="by its place and by its name: the order is " + ", ".join(self._names),
                    cure=f"leave {name}=... out",
                )
            arrays[name] = array

    def _outputs(
        self, fitting: Fitting, out: Any, arrays: dict[str, Any], stream: Any
    ) -> dict[str, Finish]:
        """Puts the result arrays into ``arrays``: those given, or new ones, which are finished by
        what is returned."""
        self._given(out, arrays)
        return self._allocate(fitting, arrays, stream)

    def _given(self, out: Any, arrays: dict[str, Any]) -> None:
        """Puts results that are given as ``out`` into ``arrays``."""
        results = self._results
        if out is None:
            return
        if not results:
            raise ArgumentError("the kernel has no results", cure="leave out=... out")
        values = out if isinstance(out, Mapping) else {results[0]: out}
        for name, array in values.items():
            if name not in results:
                raise ArgumentError(
                    f"{name!r} is no result", cure="choose one of " + ", ".join(results)
                )
            if name in arrays:
                raise ArgumentError(f"{name} is given twice", cure=f"pass out or {name}")
            arrays[name] = array

    def _allocate(self, fitting: Fitting, arrays: dict[str, Any], stream: Any) -> dict[str, Finish]:
        """Puts new arrays for the results that are missing into ``arrays``."""
        missing = self._missing(arrays)
        return fitting.allocate(missing, arrays, stream) if missing else {}

    def _missing(self, arrays: Mapping[str, Any]) -> list[str]:
        """The results that are not among ``arrays``, and that the kernel need not be given."""
        missing = [name for name in self._results if name not in arrays]
        for name in missing:
            if self.signature.argument(name).access == "inout":
                raise ArgumentError(
                    f"{name} is missing", why="the kernel adds to it", cure=f"pass {name}=..."
                )
        return missing

    # How it came to be.

    @cached_property
    def start(self) -> Start:
        """What its schedule started from."""
        return self.request.start()

    @cached_property
    def schedule(self) -> KernelSchedule:
        """The schedule with its stages, made again from the config."""
        if not self.target.schedules:
            return choose.unscheduled(self.start)[1]
        return choose.schedule(self.start, self.target.machine, self.config)

    @property
    def instruction(self) -> str:
        """What multiplies in it, and why nothing better does, of each group; "" for none."""
        said = choose.instructions(self.start, self.target.machine, self.config)
        return "; ".join("; ".join(lines) for lines in said.values())

    @property
    def stages(self) -> Stages:
        """The kernel at each stage of its schedule, from naive to what the target takes."""
        return self.schedule.stages

    @cached_property
    def module(self) -> Module:
        kernel = self.schedule.kernel
        return self.target.lower(run(kernel) if self.target.schedules else kernel)

    def source(self, kind: str) -> str:
        """The kernel as text: ``"llvm"``, ``"asm"``, or ``"schedule"``, the steps from the naive
        kernel to that of the last stage, which `compile` takes as its ``schedule``. These steps are
        kept with the code, in the caches, too; nothing is scheduled again to tell them."""
        if isinstance(kind, str) and kind == "llvm":
            return self.module.text
        if isinstance(kind, str) and kind == "asm":
            return self.target.assembly(self.module)
        if isinstance(kind, str) and kind == "schedule":
            machine = self.target.machine
            return self._steps.text(self.start, machine) or self.schedule.text()
        raise ArgumentError(
            f"there is no source {short(kind)}", cure="choose llvm, asm or schedule"
        )

    def explain(self) -> str:
        """Why it runs as it does, in lines: its config, who chose that (the recipes by their model,
        the caller, or a row of the tuner's database, with the time that was measured), and what
        multiplies in it."""
        lines = [self.request.called(self.target.name)]
        config = self.config
        said = config.short() if isinstance(config, OwnSchedule) else repr(config)
        lines += [f"config: {said}", f"chosen by: {self.origin}"]
        if self.target.schedules and self.instruction:
            lines.append(f"instruction: {self.instruction}")
        return "\n".join(lines)

    def cost(self) -> Cost:
        """What the code costs: registers, spills, instructions, bytes."""
        text = self.target.assembly(self.module, remarks=True)
        return cost_of(self.request, self.signature, text)

    def export(self, directory: str | Path, name: str | None = None) -> Path:
        """Writes the kernel for programs without Python, and its ABI in words; returns the
        directory.

        ``name`` is what its function and its files are called. Otherwise a kernel of your own keeps
        its name; that of an op is made of the problem, so that several go into one program.
        """
        return export(self, Path(directory), name)

    def __copy__(self) -> CompiledKernel:
        return self

    def __deepcopy__(self, memo: object) -> CompiledKernel:
        return self

    def __reduce__(self) -> NoReturn:
        raise UnsupportedError(
            "a compiled kernel cannot be pickled",
            why="its code is in the memory of this process",
            cure="pickle its `what`, and compile that where it is read, or take it from the cache",
        )

    def __repr__(self) -> str:
        return f"<{self.request.called(self.target.name)}>"

    def _repr_html_(self) -> str:
        rows: list[tuple[object, ...]] = [
            (argument.name, argument.access, argument.buffer.dtype, list(argument.buffer.sizes))
            for argument in self.signature.arguments
        ]
        rows += [(scalar.name, "in", scalar.var.type, "") for scalar in self.signature.scalars]
        origin = "from the cache" if self.from_cache else "compiled"
        facts = {
            "kernel": repr(self),
            "target": f"{self.target.name}, {self.target.place}",
            "threads": self.threads,
            "config": repr(self.config),
            "chosen by": self.origin,
            "made": f"{origin} in {self.compile_seconds * 1e3:.1f} ms",
        }
        return facts_html(facts) + table_html(rows, ("argument", "access", "type", "shape"))


def _nothing() -> None:
    """The call that was made."""
