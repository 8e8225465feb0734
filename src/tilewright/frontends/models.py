"""Models of other frameworks, which need not be installed: what users call."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tilewright.calls import checked_call
from tilewright.errors import UnsupportedError
from tilewright.graph.graph import Graph


@checked_call
def from_torch(exported: Any) -> Graph:
    """The graph of ``torch.export.export(model, arguments)``, for `compile`.

    Parameters and buffers are constants of it; one that the program updates is an argument,
    which it reads and writes. Inputs are called as the model calls them, results ``output0``,
    ``output1``, ... All arrays are row-major.

    Raises `ArgumentError` for what is no exported program, and `UnsupportedError` for one of
    unknown sizes, for an op that is not there (saying where in the model it stands), and where
    PyTorch is not installed.
    """
    try:
        from tilewright.frontends.torch import from_torch as read
    except ImportError as error:
        raise _missing("PyTorch", "torch") from error
    return read(exported)


def load_exported(path: Path) -> Any:
    """The exported program of PyTorch in a file, for `from_torch`.

    Raises `ArgumentError` for a file that is none, and `UnsupportedError` where PyTorch is not
    installed.
    """
    try:
        from tilewright.frontends.torch.exported import load_exported as load
    except ImportError as error:
        raise _missing("PyTorch", "torch") from error
    return load(path)


@checked_call
def from_onnx(
    model: Any, known: Mapping[str, Any] | None = None, sizes: Mapping[str, int] | None = None
) -> Graph:
    """The graph of an ONNX model: a path, or what ``onnx.load`` gives; for `compile`.

    Initializers are constants of it; inputs and results are called as the model calls them. All
    arrays are row-major. ``known`` are contents of inputs on which shapes depend, by their names;
    calls do not pass these. Dims of inputs that have a name instead of a number stay open: shapes
    of a call's arrays tell them. ``sizes`` are numbers for some of them, by these names.

    Raises `ArgumentError` for what is no model, or an ill-formed one, and `UnsupportedError` for
    one whose open sizes have to be numbers, for an op that is not there (saying which node it is),
    and where the package ``onnx`` is not installed.
    """
    try:
        from tilewright.frontends.onnx import from_onnx as read
    except ImportError as error:
        raise _missing("the package onnx", "onnx") from error
    return read(model, known, sizes)


def _missing(what: str, extra: str) -> UnsupportedError:
    return UnsupportedError(
        f"{what} is not installed", cure=f"python3 -m pip install 'tilewright[{extra}]'"
    )
