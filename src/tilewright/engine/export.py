"""A compiled kernel as files for programs without Python."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tilewright.engine.signature import form_of
from tilewright.errors import ArgumentError
from tilewright.ir.printer import to_text
from tilewright.ir.stmt import Param, ScalarParam

if TYPE_CHECKING:
    from tilewright.engine.kernel import CompiledKernel


def export(kernel: CompiledKernel, directory: Path) -> Path:
    """Writes what the target's programs without Python take, ``NAME.ll`` and ``ABI.md``.

    Raises `ArgumentError`, which names the file, for one that cannot be written.
    """
    files: dict[str, bytes] = {}
    for code in (kernel.code, *(pack.code for pack in kernel._packs.values())):
        files |= kernel.target.files(code.binary, code.abi, repr(kernel))
    for constant in kernel.signature.constants:
        known = kernel.start.kernel.constants
        files[f"{constant.name}.bin"] = known[str(constant.digest)].tobytes()
    files[f"{kernel.code.abi.entry}.ll"] = kernel.source("llvm").encode()
    files["ABI.md"] = _abi(kernel).encode()
    path = directory
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, contents in files.items():
            path = directory / name
            path.write_bytes(contents)
    except OSError as error:
        raise ArgumentError(
            f"cannot write to {path}",
            why=error.strerror or str(error),
            cure="choose another directory",
        ) from error
    return directory


def _row(kernel: CompiledKernel, argument: Param | ScalarParam) -> tuple[object, ...]:
    """What a caller passes for one argument: its name, access, type, shape and strides."""
    name = argument.name
    if isinstance(argument, ScalarParam):
        return name, "number", argument.dtype, f"`{to_text(argument)}`", ""
    if argument.buffer.symbols:
        return name, argument.access, argument.dtype, f"`{to_text(argument.buffer)}`", ""
    buffer = argument.buffer
    form = form_of(buffer.shape, buffer.dtype, buffer.layout)
    pack = kernel._packs.get(name)
    if pack is not None:
        return f"{name}_packed", "in", pack.form.dtype, pack.form.shape, (1,)
    access = argument.access if argument.digest is None else f"constant, the bytes of `{name}.bin`"
    return name, access, form.dtype, form.shape, form.strides


def _abi(kernel: CompiledKernel) -> str:
    lines = [
        f"# {kernel!r}",
        "",
        f"Target: {kernel.target.identity}",
        "",
        f"Config: `{kernel.config!r}`",
        "",
        "| position | argument | access | type | shape | strides (elements) |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    arguments = kernel.signature.params
    for position, argument in enumerate(arguments):
        row = _row(kernel, argument)
        lines.append(f"| {position} | " + " | ".join(str(part) for part in row) + " |")
    for number, size in enumerate(kernel.code.abi.workspaces):
        position = len(arguments) + number
        lines.append(f"| {position} | workspace | scratch | u8 | ({size},) | (1,) |")
    lines += ["", "Each pointer is aligned to its element; workspaces to 64 bytes."]
    lines += ["", kernel.target.calling(kernel.code.abi)]
    for name, pack in kernel._packs.items():
        lines += [
            "",
            f"`{pack.code.abi.entry}` takes `{name}` and `{name}_packed`, and fills the second "
            "from the first (row-major, logical shape); zero it before.",
            "",
            kernel.target.calling(pack.code.abi),
        ]
    return "\n".join(lines) + "\n"
