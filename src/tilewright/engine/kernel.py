"""What a user holds: a compiled kernel, called on arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.engine.cost import Cost, cost_of
from tilewright.engine.export import export
from tilewright.engine.fitting import Fitting, PackCode
from tilewright.engine.placing import Packed, Placing
from tilewright.engine.program import Code
from tilewright.engine.request import Request
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
        self._fitting = Fitting(signature, signature.forms, packs, code, target.name)

    @property
    def packed(self) -> tuple[str, ...]:
        """The arguments that `pack` has to prepare."""
        return tuple(self._packs)

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
            memory = placing.pack(array, name, source, self._fitting.bytes(name))
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
        fitting = self._fitting
        placing = fitting.placing
        if placing is None:
            self.code.run(fitting.pointers(arrays, stream), self.threads)
        else:
            placing.run(fitting.place(placing, arrays, stream))
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
        fitting = self._fitting
        placing = fitting.placing
        if placing is None:
            pointers = fitting.pointers(arrays, stream)
            call: Callable[[], None] = self.code.bound(pointers, self.threads)
        else:
            placed = fitting.place(placing, arrays, stream)
            call, keep = placing.bound(placed), placed.keep

        def bound(_keep: Any = (arrays, keep, self), _call: Callable[[], None] = call) -> None:
            _call()

        return bound

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
            if not results:
                raise ArgumentError("the kernel has no results", cure="leave out=... out")
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
                arrays[name] = self._fitting.empty(name, arrays, stream)

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
