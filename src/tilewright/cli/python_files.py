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
    """The kernels that the file defines, or that called ``name``, for ranges of any size: of the
    local size that the decorator says, if it does.

    Raises `ProblemError` for a file that does not run, and what making the kernels raises.
    """
    module = _loaded(path)
    found = [
        each
        for each in vars(module).values()
        if isinstance(each, KernelFunction) and Path(each.file).resolve() == path.resolve()
    ]
    chosen = [each for each in found if not name or each.name == name]
    if not chosen and not name:
        raise ProblemError(
            f"{path} has no kernels",
            where=f"kernel {path}",
            cure="decorate functions with @tw.kernel",
        )
    if not chosen:
        # The caller says which names there are.
        return tuple(each.as_kernel() for each in found)
    return tuple(each.as_kernel() for each in chosen)


class _Source(SourceFileLoader):
    """Reads the text each time: code that Python keeps beside it may be that of another text, as
    long and written in the same second."""

    def path_stats(self, path: str) -> Mapping[str, Any]:
        raise OSError("no code is kept of kernel files")


def _loaded(path: Path) -> ModuleType:
    """The file as a module: what it does when imported is done. What it prints is no part of a
    command's output, which other programs read, and goes to the standard error."""
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
