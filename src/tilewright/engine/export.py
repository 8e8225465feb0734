"""A compiled kernel as files for programs without Python."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from tilewright.engine.disk_cache import content_key
from tilewright.engine.fitting import PackCode
from tilewright.engine.request import Request
from tilewright.engine.signature import Signature, form_of
from tilewright.errors import ArgumentError
from tilewright.ir.printer import to_text
from tilewright.ir.stmt import Kernel, Param, ScalarParam
from tilewright.passes import run
from tilewright.recipes.config import Config
from tilewright.recipes.start import Start
from tilewright.schedule.schedule import KernelSchedule
from tilewright.targets.c_names import checked_name
from tilewright.targets.program import Abi, abi_of
from tilewright.targets.target import Target

_NOT_NAME = re.compile(r"[^A-Za-z0-9]+")


class Exportable(Protocol):
    """What files say of a compiled kernel."""

    request: Request
    target: Target
    config: Config
    signature: Signature

    @property
    def packing(self) -> Mapping[str, PackCode]: ...

    @property
    def schedule(self) -> KernelSchedule: ...

    @property
    def start(self) -> Start: ...


@dataclass(frozen=True)
class _Exported:
    """One function of the files."""

    binary: bytes
    abi: Abi
    llvm: str


def export(kernel: Exportable, directory: Path, name: str | None = None) -> Path:
    """Writes what the target's programs without Python take, ``NAME.ll``, ``NAME.md`` (how it is
    called), and ``NAME_example.c`` where that calls it. Every file's name begins with the kernel's,
    so several share a folder.

    Raises `ArgumentError` for a name that C has no use for, and for a file, which it names, that
    cannot be written.
    """
    name = _symbol(kernel) if name is None else checked_name(name)
    kernel_schedule = kernel.schedule
    code = _named(kernel, kernel_schedule.kernel, name)
    packs = {
        stem: _named(kernel, pack, f"{name}_pack_{stem}")
        for stem, pack in kernel_schedule.packed.items()
    }
    files: dict[str, bytes] = {}
    for exported in (code, *packs.values()):
        files |= kernel.target.files(exported.binary, exported.abi, repr(kernel))
    constants = {
        constant.name: f"{name}_{constant.name}.bin" for constant in kernel.signature.constants
    }
    for constant in kernel.signature.constants:
        bytes_of = kernel.start.kernel.constants
        files[constants[constant.name]] = bytes_of[str(constant.digest)].tobytes()
    files[f"{name}.ll"] = code.llvm.encode()
    pack_abis = {stem: pack.abi for stem, pack in packs.items()}
    program = kernel.target.example(code.abi, pack_abis, constants)
    if program:
        files[f"{name}_example.c"] = program.encode()
    files[f"{name}.md"] = _words(kernel, code.abi, pack_abis, constants, bool(program)).encode()
    write_files(directory, {file: [contents] for file, contents in files.items()})
    return directory


def write_files(directory: Path, files: Mapping[str, Iterable[bytes]]) -> None:
    """Writes files of these contents, in parts, to ``directory``. Raises `ArgumentError` for one
    that cannot be written, which it names."""
    path = directory
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for file, parts in files.items():
            path = directory / file
            with path.open("wb") as stream:
                stream.writelines(parts)
    except OSError as error:
        raise ArgumentError(
            f"cannot write to {path}",
            why=error.strerror or str(error),
            cure="choose another directory",
        ) from error


def _symbol(kernel: Exportable) -> str:
    """The name of a kernel of the user's own; of an op, one that says which problem it is, and that
    differs wherever its code does what other code does not."""
    request = kernel.request
    if isinstance(request.what, Kernel):
        return request.name
    title = _NOT_NAME.sub("_", request.title()).strip("_")[:80]
    digest = content_key(request.identity.encode(), kernel.target.name.encode())[:8]
    return f"{request.name}_{title}_{digest}"


def _named(kernel: Exportable, scheduled: Kernel, name: str) -> _Exported:
    """The code of a kernel under another name, of which nothing but the name differs."""
    target = kernel.target
    named = replace(scheduled, name=name)
    module = target.lower(run(named) if target.schedules else named)
    return _Exported(target.assemble(module), abi_of(named, module), module.text)


def _rows(
    kernel: Exportable, argument: Param | ScalarParam, constants: Mapping[str, str]
) -> Iterator[tuple[object, ...]]:
    """What a caller passes for one argument: names, access, types, shapes and strides."""
    name = argument.name
    if isinstance(argument, ScalarParam):
        yield name, "number", argument.dtype, f"`{to_text(argument)}`", ""
        return
    if argument.buffer.symbols:
        yield name, argument.access, argument.dtype, f"`{to_text(argument.buffer)}`", ""
        return
    buffer = argument.buffer
    form = form_of(buffer.shape, buffer.dtype, buffer.layout)
    pack = kernel.packing.get(name)
    if pack is not None:
        for packed_name, packed in zip(_made(pack), pack.forms, strict=True):
            yield packed_name, "in", packed.dtype, packed.shape, packed.strides
        return
    access = argument.access
    if name in constants:
        access = f"constant, the bytes of `{constants[name]}`"
    yield name, access, form.dtype, form.shape, form.strides


def _made(pack: PackCode) -> list[str]:
    """The names of what is made of an argument before the kernel runs."""
    return [parameter.name for parameter in pack.code.abi.parameters[1:]]


def _words(
    kernel: Exportable,
    abi: Abi,
    packs: Mapping[str, Abi],
    constants: Mapping[str, str],
    program: bool,
) -> str:
    """What ``NAME.md`` says; ``constants`` are the files of constants, ``program``: there is one
    that calls the kernel."""
    lines = [
        f"# {kernel!r}",
        "",
        f"Runs on {kernel.target.made_for}.",
        "",
        f"Target: {kernel.target.identity}",
        "",
        f"Config: `{kernel.config!r}`",
        "",
        "| position | argument | access | type | shape | strides (elements) |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    rows = [row for param in kernel.signature.params for row in _rows(kernel, param, constants)]
    for position, row in enumerate(rows):
        lines.append(f"| {position} | " + " | ".join(str(part) for part in row) + " |")
    for number, size in enumerate(abi.workspaces):
        position = len(rows) + number
        lines.append(f"| {position} | workspace | scratch | u8 | ({size},) | (1,) |")
    lines += ["", kernel.target.calling(abi), *_packing(kernel, packs)]
    if program:
        lines += ["", f"`{abi.entry}_example.c` calls it; its first lines say how to compile it."]
    return "\n".join(lines) + "\n"


def _packing(kernel: Exportable, packs: Mapping[str, Abi]) -> Iterator[str]:
    for name, abi in packs.items():
        yield from (
            "",
            f"`{abi.entry}` takes `{name}` (row-major, logical shape) and "
            + ", ".join(f"`{parameter.name}`" for parameter in abi.parameters[1:])
            + ", which it fills from the first; zero them before.",
            "",
            kernel.target.calling(abi),
        )
