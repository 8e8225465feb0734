"""What names mean at a place of a model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.tensor.tensor import Tensor


class Scope:
    """Values by name: tensors of the graph, and contents where they are known."""

    def __init__(self) -> None:
        self.tensors: dict[str, Tensor] = {}
        self.known: dict[str, np.ndarray[Any, Any]] = {}
        self.shapes: dict[str, tuple[int, ...] | None] = {}

    def take(self, inner: Scope, name: str, own: str) -> None:
        """A value of another scope becomes ``own`` here; none where this has no name."""
        if not own:
            return
        if name in inner.known:
            self.known[own] = inner.known[name]
        elif name in inner.tensors:
            self.tensors[own] = inner.tensors[name]

    def put(self, names: Sequence[str], values: Sequence[Any]) -> None:
        """Values get names, but for empty ones."""
        for name, value in zip(names, values, strict=True):
            if name and isinstance(value, Tensor):
                self.tensors[name] = value
            elif name:
                self.known[name] = value
