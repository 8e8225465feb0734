"""A compiled kernel as files for programs without Python."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tilewright.errors import ArgumentError

if TYPE_CHECKING:
    from tilewright.engine.kernel import CompiledKernel

_HEADER = """/* {kernel}: made by Tilewright for {target}. */
#ifndef {guard}
#define {guard}
#ifdef __cplusplus
extern "C" {{
#endif

/* args: pointers to {arguments}{workspaces}.
   parallel(pool, phase, args, threads) must call phase(args, t, threads) for t = 0 .. threads-1,
   in any order or at once, and return when all are done. With threads = 1 it is not called, and
   parallel and pool may be null. */
typedef void (*tw_phase)(void **args, long long thread, long long threads);
typedef void (*tw_parallel)(void *pool, tw_phase phase, void **args, long long threads);
void {entry}(void **args, tw_parallel parallel, void *pool, long long threads);

#ifdef __cplusplus
}}
#endif
#endif
"""


def export(kernel: CompiledKernel, directory: Path) -> Path:
    """Writes ``NAME.o``, ``NAME.h``, ``NAME.ll`` and ``ABI.md`` (and the same for packing)."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ArgumentError(
            f"cannot write to {directory}", why=str(error), cure="choose another directory"
        ) from error
    codes = {kernel.code.entry_name: kernel.code}
    codes.update({pack.code.entry_name: pack.code for pack in kernel._packs.values()})
    for name, code in codes.items():
        (directory / f"{name}.o").write_bytes(code.binary)
        (directory / f"{name}.h").write_text(_header(kernel, name))
    (directory / f"{kernel.code.entry_name}.ll").write_text(kernel.source("llvm"))
    (directory / "ABI.md").write_text(_abi(kernel))
    return directory


def _argument_names(kernel: CompiledKernel, entry: str) -> list[str]:
    for name, pack in kernel._packs.items():
        if pack.code.entry_name == entry:
            return [name, f"{name}_packed"]
    return [f"{n}_packed" if n in kernel.packed else n for n in kernel._names]


def _workspaces(kernel: CompiledKernel, entry: str) -> tuple[int, ...]:
    for pack in kernel._packs.values():
        if pack.code.entry_name == entry:
            return pack.code.workspaces
    return kernel.code.workspaces


def _header(kernel: CompiledKernel, entry: str) -> str:
    spaces = _workspaces(kernel, entry)
    return _HEADER.format(
        kernel=repr(kernel),
        target=kernel.target.name,
        guard=f"TILEWRIGHT_{entry.upper()}_H",
        arguments=", ".join(_argument_names(kernel, entry)),
        workspaces=f", then workspaces of {', '.join(map(str, spaces))} bytes" if spaces else "",
        entry=entry,
    )


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
    for position, argument in enumerate(kernel.op.arguments):
        form = kernel._forms[argument.name]
        pack = kernel._packs.get(argument.name)
        row = (argument.name, argument.access, form.dtype, form.shape, form.strides)
        if pack is not None:
            row = (f"{argument.name}_packed", "in", pack.form.dtype, pack.form.shape, (1,))
        lines.append(f"| {position} | " + " | ".join(str(part) for part in row) + " |")
    for number, size in enumerate(kernel.code.workspaces):
        position = len(kernel.op.arguments) + number
        lines.append(f"| {position} | workspace | scratch | u8 | ({size},) | (1,) |")
    lines += ["", "Each pointer is aligned to its element; workspaces to 64 bytes."]
    for name, pack in kernel._packs.items():
        lines += [
            "",
            f"`{pack.code.entry_name}(args = {{{name}, {name}_packed}}, ...)` fills "
            f"`{name}_packed` from `{name}` (row-major, logical shape); zero it first.",
        ]
    return "\n".join(lines) + "\n"
