"""What a user holds: a compiled kernel, called on arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.engine.cost import Cost, cost_of
from tilewright.engine.export import export
from tilewright.engine.placing import Call, Packed, Placing
from tilewright.engine.program import Code
from tilewright.engine.request import Request
from tilewright.engine.signature import Form
from tilewright.errors import ArgumentError
from tilewright.ir.stmt import Kernel
from tilewright.passes import run
from tilewright.problems.numbers import short
from tilewright.recipes import choose
from tilewright.recipes.config import Config
from tilewright.recipes.scheduled import ScheduledKernel
from tilewright.recipes.start import Start
from tilewright.targets.llvm.module import Module
from tilewright.targets.registry import Target


@dataclass(frozen=True)
class PackCode:
    """How one argument is packed: the code, the packed form, and what tells packings apart."""

    code: Code
    form: Form
    key: str


Getter = Callable[[Any], int]


class CompiledKernel:
    """A kernel on one target. Thread-safe; arrays are never copied, but for devices that cannot
    reach them.

    ``what`` was compiled: a kernel, or an op with all that it left open decided; ``signature`` says
    how it is called. Calling it takes the arguments by name, or in their order, or the first ones
    in order and the others by name. Results are allocated, unless ``out`` (or an argument of the
    result's name) is given; one result is returned as it is, several as a dict.

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
        config: Config,
        threads: int,
        code: Code,
        packs: Mapping[str, PackCode],
        compile_seconds: float,
        from_cache: bool,
    ) -> None:
        self.what = request.what
        self.signature = signature = request.signature
        self.target = target
        self.config = config
        self.threads = threads
        self.code = code
        self.compile_seconds = compile_seconds
        self.from_cache = from_cache
        self._request = request
        self._packs = packs
        self._names, self._results = signature.names, signature.results
        self._specs = {
            name: form.spec(name, name in self._results)
            for name, form in signature.forms.items()
            if name not in packs
        }
        self._getters: tuple[tuple[str, Getter], ...] = tuple(
            (name, self._getter(name)) for name in self._names
        )
        self._pairs = self._may_overlap()
        device = code.device
        self._placing = (
            None if device is None else Placing(device, dict(self._getters), self._specs)
        )

    @property
    def packed(self) -> tuple[str, ...]:
        """The arguments that `pack` has to prepare."""
        return tuple(self._packs)

    def _bytes(self, name: str) -> int:
        """From the first to the last element of an argument, packed if it is to be."""
        form = self._packs[name].form if name in self._packs else self.signature.forms[name]
        return form.extent * form.dtype.bytes

    def _getter(self, name: str) -> Getter:
        pack = self._packs.get(name)
        if pack is None:
            return self._specs[name].pointer
        key, on_device = pack.key, self.code.device is not None

        def pointer(array: Any) -> int:
            if type(array) is Packed and array.key == key and (on_device or array.device is None):
                return array.pointer
            given = "packed for another kernel" if type(array) is Packed else "not packed"
            raise ArgumentError(
                f"{name} is {given}",
                where=f"parameter {name}",
                why="this kernel reads it in an order of its own",
                cure=f"pass kernel.pack({name!r}, {name}) and keep the result for further calls",
            )

        return pointer

    def pack(self, name: str, array: Any) -> Any:
        """``array`` (of the argument's logical shape, row-major) in the order the kernel reads.

        An argument that needs no packing is returned as it is.
        """
        if not isinstance(name, str) or name not in self._names:
            raise self.signature.unknown(name)
        pack = self._packs.get(name)
        if pack is None:
            return array
        source = self.signature.forms[name].spec(name, writable=False)
        program = pack.code.device
        if program is not None:
            placing = Placing(program, {}, {})
            memory = placing.pack(array, name, source, self._bytes(name))
            return Packed(name, pack.key, memory, memory.pointer, program.device_number)
        flat = np.zeros(pack.form.extent + 64, pack.form.dtype.numpy)
        skip = (-flat.ctypes.data % 64) // pack.form.dtype.bytes
        data = flat[skip : skip + pack.form.extent]
        pointer = int(data.ctypes.data)
        pack.code.run([source.pointer(array), pointer], 1)
        return Packed(name, pack.key, data, pointer)

    def __call__(self, /, *ordered: Any, out: Any = None, stream: Any = None, **arrays: Any) -> Any:
        """Runs the kernel; see the class. Raises `ArgumentError` for an array that does not fit."""
        if ordered:
            self._name(ordered, arrays)
        if out is not None or len(arrays) < len(self._names):
            self._outputs(out, arrays, stream)
        if self._placing is None:
            self.code.run(self._pointers(arrays, stream), self.threads)
        else:
            self._placing.run(self._place(self._placing, arrays, stream))
        results = self._results
        if len(results) == 1:
            return arrays[results[0]]
        return {name: arrays[name] for name in results}

    def bind(
        self, /, *ordered: Any, out: Any = None, stream: Any = None, **arrays: Any
    ) -> Callable[[], None]:
        """A function of no arguments that runs the kernel on these arrays, checked once; and on the
        stream that a call now would run on."""
        if ordered:
            self._name(ordered, arrays)
        self._outputs(out, arrays, stream)
        keep: tuple[Any, ...] = ()
        if self._placing is None:
            pointers = self._pointers(arrays, stream)
            call: Callable[[], None] = self.code.bound(pointers, self.threads)
        else:
            placed = self._place(self._placing, arrays, stream)
            call, keep = self._placing.bound(placed), placed.keep

        def bound(_keep: Any = (arrays, keep, self), _call: Callable[[], None] = call) -> None:
            _call()

        return bound

    def _place(self, placing: Placing, arrays: dict[str, Any], stream: Any) -> Call:
        try:
            call = placing.place(arrays, stream)
        except KeyError as error:
            raise self._misnamed(arrays, error.args[0]) from None
        self._check_pointers(arrays, call.pointers)
        return call

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

    def _outputs(self, out: Any, arrays: dict[str, Any], stream: Any) -> None:
        """Puts the result arrays into ``arrays``: those given, or new ones."""
        results = self._results
        if out is not None:
            given = out if isinstance(out, Mapping) else {results[0]: out}
            for name, array in given.items():
                if name not in results:
                    raise ArgumentError(
                        f"{name!r} is no result", cure="choose one of " + ", ".join(results)
                    )
                if name in arrays:
                    raise ArgumentError(f"{name} is given twice", cure=f"pass out or {name}")
                arrays[name] = array
        for name in results:
            if name not in arrays:
                if self.signature.argument(name).access == "inout":
                    raise ArgumentError(
                        f"{name} is missing", why="the kernel adds to it", cure=f"pass {name}=..."
                    )
                arrays[name] = self._empty(name, arrays, stream)

    def _empty(self, name: str, arrays: dict[str, Any], stream: Any) -> Any:
        form = self.signature.forms[name]
        if self._placing is None:
            return form.empty()
        return self._placing.empty(name, form, arrays, stream)

    def _pointers(self, arrays: dict[str, Any], stream: Any) -> list[int]:
        """Of arrays of the host."""
        if stream is not None:
            raise ArgumentError(
                f"there are no streams for {self.target.name}",
                where="stream",
                cure="leave it out: the call returns when the kernel is done",
            )
        try:
            pointers = [getter(arrays[name]) for name, getter in self._getters]
        except KeyError as error:
            raise self._misnamed(arrays, error.args[0]) from None
        self._check_pointers(arrays, pointers)
        return pointers

    def _check_pointers(self, arrays: dict[str, Any], pointers: list[int]) -> None:
        """Whether there is one for each argument, and no result that shares memory."""
        if len(arrays) != len(pointers):
            raise self._misnamed(arrays)
        for position, other, size, other_size in self._pairs:
            start, second = pointers[position], pointers[other]
            if start < second + other_size and second < start + size:
                raise self._overlap(position, other)

    def _misnamed(self, arrays: dict[str, Any], missing: str = "") -> ArgumentError:
        """The error for arguments that the kernel does not have, or else for a missing one."""
        extra = ", ".join(repr(name) for name in sorted(set(arrays) - set(self._names)))
        if extra:
            return ArgumentError(
                f"there is no argument {extra}", cure="choose one of " + ", ".join(self._names)
            )
        return ArgumentError(
            f"the argument {missing!r} is missing",
            cure="pass " + ", ".join(f"{name}=..." for name in self._names),
        )

    def _may_overlap(self) -> tuple[tuple[int, int, int, int], ...]:
        """Positions and sizes in bytes of each result and each other argument."""
        sizes = [self._bytes(name) for name in self._names]
        return tuple(
            (position, other, sizes[position], sizes[other])
            for position, name in enumerate(self._names)
            for other in range(len(self._names))
            if name in self._results and other != position
        )

    def _overlap(self, position: int, other: int) -> ArgumentError:
        """A result must not share memory with another argument, which the code relies on."""
        name, second = self._names[position], self._names[other]
        return ArgumentError(
            f"{name} shares memory with {second}",
            where=f"parameter {name}",
            why="the kernel may write a result before it has read all inputs",
            cure="pass arrays that do not overlap",
        )

    # How it came to be.

    @cached_property
    def start(self) -> Start:
        """What its schedule started from."""
        return self._request.start()

    @cached_property
    def schedule(self) -> ScheduledKernel:
        """The schedule, made again where the code came from a cache."""
        if not self.target.schedules:
            return choose.unscheduled(self.start)[1]
        return choose.schedule(self.start, self.target.machine, self.config)

    @property
    def stages(self) -> dict[str, Kernel]:
        """The kernel at each stage of its schedule, from naive to what the target takes."""
        return self.schedule.stages

    @cached_property
    def module(self) -> Module:
        kernel = self.schedule.kernel
        return self.target.lower(run(kernel) if self.target.schedules else kernel)

    def source(self, kind: str) -> str:
        """The kernel as text: ``"llvm"`` or ``"asm"``."""
        if isinstance(kind, str) and kind == "llvm":
            return self.module.text
        if isinstance(kind, str) and kind == "asm":
            return self.target.assembly(self.module)
        raise ArgumentError(f"there is no source {short(kind)}", cure="choose llvm or asm")

    def cost(self) -> Cost:
        """What the code costs: registers, spills, instructions, bytes, the floor by roofline."""
        return cost_of(self._request, self.source("asm"))

    def export(self, directory: str | Path) -> Path:
        """Writes the kernel for programs without Python, and its ABI in words; returns the
        directory."""
        return export(self, Path(directory))

    def __repr__(self) -> str:
        return f"<{self._request.called(self.target.name)}>"
