"""Kernels of Python files: functions with `@tw.kernel`."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Mapping
from contextlib import redirect_stdout
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

from tilewright.errors import ProblemError, TilewrightError
from tilewright.ir.stmt import Kernel
from tilewright.lang import KernelFunction


def python_kernels(path: Path, name: str) -> tuple[Kernel, ...]:
    """The kernels that the file defines, or the one called ``name``, for ranges of any size, with
    the decorator's local size, if any.

    Raises `ProblemError` for a file that does not run, and the errors of making kernels.
    """
    module = _loaded(path)
    functions = [
        value
        for value in vars(module).values()
        if isinstance(value, KernelFunction) and Path(value.file).resolve() == path.resolve()
    ]
    chosen = [function for function in functions if not name or function.name == name]
    if not chosen and not name:
        raise ProblemError(
            f"{path} has no kernels",
            where=f"kernel {path}",
            cure="decorate functions with @tw.kernel",
        )
    if not chosen:
        # The caller lists the names in its error.
        return tuple(function.as_kernel() for function in functions)
    return tuple(function.as_kernel() for function in chosen)


class _Source(SourceFileLoader):
    """Reads the text each time: Python's stored code may be that of another text of the same
    length, written in the same second."""

    def path_stats(self, path: str) -> Mapping[str, Any]:
        raise OSError("no code is kept of kernel files")


def _loaded(path: Path) -> ModuleType:
    """The file, imported as a module. Its output goes to the standard error, as other programs read
    a command's standard output."""
    loader = _Source(path.stem, str(path))
    spec = importlib.util.spec_from_file_location(path.stem, path, loader=loader)
    if not path.exists() or spec is None or spec.loader is None:
        raise ProblemError(
            f"cannot read the kernel file {path}",
            where=f"kernel {path}",
            why="No such file or directory",
            cure="give FILE or FILE:NAME",
        )
    module = importlib.util.module_from_spec(spec)
    folder = str(path.parent.resolve())
    sys.path.insert(0, folder)
    sys.modules[path.stem] = module
    try:
        with redirect_stdout(sys.stderr):
            spec.loader.exec_module(module)
    except TilewrightError:
        raise
    except (Exception, SystemExit) as error:
        raise ProblemError(
            f"{path} does not run: {type(error).__name__}: {error}",
            where=f"kernel {path}",
            cure="correct it: importing it must not fail; what it does as a program belongs under "
            'if __name__ == "__main__"',
        ) from error
    finally:
        sys.path.remove(folder)
    return module
