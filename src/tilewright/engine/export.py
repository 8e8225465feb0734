"""A compiled kernel as files for programs without Python."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tilewright.errors import ArgumentError

if TYPE_CHECKING:
    from tilewright.engine.kernel import CompiledKernel


def export(kernel: CompiledKernel, directory: Path) -> Path:
    """Writes what the target's programs without Python take, ``NAME.ll`` and ``ABI.md``.

    Raises `ArgumentError`, which names the file, for one that cannot be written.
    """
    files: dict[str, bytes] = {}
    for code in (kernel.code, *(pack.code for pack in kernel._packs.values())):
        files |= kernel.target.files(code.binary, code.abi, repr(kernel))
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
    arguments = kernel.signature.arguments
    for position, argument in enumerate(arguments):
        form = kernel.signature.forms[argument.name]
        pack = kernel._packs.get(argument.name)
        row = (argument.name, argument.access, form.dtype, form.shape, form.strides)
        if pack is not None:
            row = (f"{argument.name}_packed", "in", pack.form.dtype, pack.form.shape, (1,))
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
