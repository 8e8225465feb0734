"""Object code -> functions in this process, through LLVM's JIT linker (ORC).

JITLink rather than the older RuntimeDyld: it loads as fast (0.25 ms for a kernel), takes less
memory, and puts all sections in one block, so that no relocation can overflow.
"""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Iterable
from contextlib import suppress
from functools import cache, lru_cache
from types import TracebackType
from typing import Any

import llvmlite.binding as llvm

from tilewright.errors import CompilationError
from tilewright.targets.llvm.backend import LLVM_LOCK

# ORC keeps 10 KB for each program that was ever loaded, until the linker itself is freed. So a new
# linker (0.8 ms) is made every so many programs; an old one lives as long as one of its programs.
PROGRAMS_PER_LINKER = 64

_serial = itertools.count()


class Program:
    """Object code that is loaded into this process.

    Undefined symbols are looked up in the process: libm (``expf``), libc (``memcpy``). The code
    stays until `close`, or until the object is garbage, so a caller has to hold the object.
    """

    def __init__(self, object_code: bytes, names: Iterable[str]) -> None:
        """Load ``object_code`` (an ELF object file) for the functions and variables ``names``.

        Raises `CompilationError` if it is none, lacks one of them, or needs an unknown symbol.
        """
        serial = next(_serial)
        builder = llvm.JITLibraryBuilder().add_object_img(object_code).add_current_process()
        names = tuple(names)
        for name in names:
            builder.export_symbol(name)
        try:
            with LLVM_LOCK:
                linker = _linker(serial // PROGRAMS_PER_LINKER)
                self._library: Any = builder.link(linker, f"tilewright-{serial}")
        except RuntimeError as error:
            raise CompilationError(
                "the object code cannot be loaded",
                where=", ".join(names),
                why=str(error).strip(),
                cure="if it comes from the disk cache, clear that: tilewright cache --clear",
            ) from error
        self._addresses = {name: int(self._library[name]) for name in names}

    def address(self, name: str) -> int:
        """Address of ``name``, one of the names it was loaded for.

        Raises `CompilationError` when it is not, or when the program is closed.
        """
        address = self._addresses.get(name)
        if address is None:
            raise CompilationError(
                f"the program has no symbol {name!r}",
                why="it is closed" if self._library is None else "it was not loaded for it",
            )
        return address

    def close(self) -> None:
        """Unload the code. Its addresses are invalid from now on. Closing twice is fine."""
        with LLVM_LOCK:
            library, self._library = self._library, None
            self._addresses = {}
            if library is not None:
                library.close()

    def __enter__(self) -> Program:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


@lru_cache(maxsize=1)
def _linker(generation: int) -> Any:
    _initialize()
    return llvm.create_lljit_compiler(use_jit_link=True, suppress_errors=True)


@cache
def _initialize() -> None:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    # Python usually has libm loaded, but not if it is a static build.
    with suppress(OSError):
        ctypes.CDLL("libm.so.6", mode=ctypes.RTLD_GLOBAL)
