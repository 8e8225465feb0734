"""Programs as files for callers without Python: several with common kernels and constants."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tilewright.engine import CompiledKernel, compile_kernel
from tilewright.engine.export import write_files
from tilewright.engine.signature import Signature
from tilewright.errors import ArgumentError, UnsupportedError
from tilewright.graph.parts import Group
from tilewright.ir.stmt import For, LoopKind, Stmt
from tilewright.ir.visit import nested, with_nested
from tilewright.runtime.results import aligned_memory
from tilewright.runtime.steps import map_steps
from tilewright.targets.c_names import checked_name, unique_names
from tilewright.targets.linking import ALIGNMENT, Base, Place, Plan, Run
from tilewright.targets.program import Abi
from tilewright.targets.standalone import (
    HEAD,
    ConstantsFile,
    Standalone,
    StandaloneArgument,
    StandaloneFunction,
)
from tilewright.targets.target import Target

_OWN = ("open", "close", "use_pool")


class Exportable(Protocol):
    """What files say of a `program.GraphProgram`."""

    target: Target
    threads: int
    signature: Signature
    groups: tuple[Group, ...]
    plan: Plan

    @property
    def packed(self) -> tuple[str, ...]: ...

    @property
    def host_contents(self) -> Sequence[NDArray[Any]]: ...


def export_programs(programs: Mapping[str, Exportable], directory: Path, name: str) -> Path:
    """Writes ``programs``, of one target, as one: on x86 a static library with a C header, and how
    it is called in words, for devices modules with a plan in JSON; ``NAME.bin`` has the constants.
    An entry point is called ``NAME_`` and what its program is called here.

    Kernels and constants that several programs have are written once. Raises `ArgumentError` for a
    name that C has no use for and for a file that cannot be written, `UnsupportedError` for a
    program that takes packed arguments, or whose host looks at data where no plan can.
    """
    checked_name(name)
    if not programs:
        raise ArgumentError("there is no program to write", cure="give one at least")
    target = next(iter(programs.values())).target
    common = _Common()
    symbols = unique_names(programs, taken=_OWN)
    functions = tuple(
        _function(f"{name}_{symbol}", title, program, common)
        for symbol, (title, program) in zip(symbols, programs.items(), strict=True)
    )
    constants = common.constants(f"{name}.bin")
    threads = max(program.threads for program in programs.values())
    standalone = Standalone(name, functions, tuple(common.kernels), constants, threads)
    files: dict[str, Iterable[bytes]] = {
        file: (contents,) for file, contents in target.standalone_files(standalone).items()
    }
    if constants is not None:
        files[constants.name] = _contents(constants, common)
    write_files(directory, files)
    return directory


@dataclass
class _Common:
    """What programs share: kernels by their code, and constants by their contents."""

    kernels: list[tuple[bytes, Abi]] = field(default_factory=list)
    arrays: list[memoryview] = field(default_factory=list)
    end: int = HEAD
    _kernels: dict[bytes, int] = field(default_factory=dict)
    _places: dict[bytes, int] = field(default_factory=dict)

    def kernel(self, binary: bytes, abi: Abi) -> int:
        """The number of a kernel."""
        number = self._kernels.setdefault(binary, len(self.kernels))
        if number == len(self.kernels):
            self.kernels.append((binary, abi))
        return number

    def place(self, array: NDArray[Any]) -> int:
        """The offset of an array in the file."""
        data = memoryview(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
        digest = hashlib.sha256(data).digest()
        if digest not in self._places:
            self._places[digest] = self.end
            self.arrays.append(data)
            self.end += len(data) + -len(data) % ALIGNMENT
        return self._places[digest]

    def constants(self, name: str) -> ConstantsFile | None:
        """The file of all arrays that have a place; None without any."""
        if not self.arrays:
            return None
        digest = hashlib.sha256(b"".join(self._places)).digest()
        return ConstantsFile(name, digest, self.end)


def _contents(constants: ConstantsFile, common: _Common) -> Iterator[bytes]:
    yield constants.head
    for data in common.arrays:
        yield data  # type: ignore[misc]  # files take it as bytes
        yield bytes(-len(data) % ALIGNMENT)


def _function(symbol: str, title: str, program: Exportable, common: _Common) -> StandaloneFunction:
    """The entry point of a program."""
    if program.packed:
        raise UnsupportedError(
            f"{title} takes packed arguments",
            where=", ".join(program.packed),
            why="what packs them would have to be written, too",
            cure="leave constant=... out, or make them constants of the graph",
        )
    numbers = [
        common.kernel(group.compiled.code.binary, group.compiled.code.abi)
        for group in program.groups
    ]
    offsets = [common.place(array) for array in program.host_contents]

    def place(old: Place) -> Place:
        return Place(old.base, offsets[old.number]) if old.base is Base.CONSTANT else old

    def run(old: Run) -> Run:
        places = tuple(map(place, old.places))
        return replace(old, program=numbers[old.program], places=places)

    steps = map_steps(program.plan.steps, run, place)
    return StandaloneFunction(
        symbol, title, tuple(_arguments(program)), replace(program.plan, steps=steps)
    )


def _arguments(program: Exportable) -> Iterator[StandaloneArgument]:
    for param in program.signature.arguments:
        form = program.signature.forms[param.name]
        size = 0 if 0 in form.shape else form.extent * form.dtype.bytes
        yield StandaloneArgument(
            param.name, form.dtype, form.shape, form.strides, param.access, size
        )


def packed_here(kernel: CompiledKernel, name: str, array: NDArray[Any]) -> list[NDArray[Any]]:
    """What ``kernel.pack(name, array)`` makes, by this processor, whatever the kernel's target."""
    pack = kernel.schedule.packed[name]
    host = compile_kernel(replace(pack, body=_in_turn(pack.body)), "x86", 1)
    forms = kernel.packing[name].forms
    arrays = [aligned_memory(form.extent, form.dtype, zero=True) for form in forms]
    host.code.run([int(memory.ctypes.data) for memory in (array, *arrays)], 1)
    return arrays


_ON_DEVICE = frozenset(
    {LoopKind.GRID, LoopKind.CLUSTER, LoopKind.WORKGROUP, LoopKind.SUBGROUP, LoopKind.LANE}
)


def _in_turn(stmt: Stmt) -> Stmt:
    """``stmt`` with work-items that run one after the other: those that pack only copy."""
    stmt = with_nested(stmt, tuple(map(_in_turn, nested(stmt))))
    if isinstance(stmt, For) and stmt.kind in _ON_DEVICE:
        return replace(stmt, kind=LoopKind.SERIAL)
    return stmt
