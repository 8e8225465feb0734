"""What makes a function a transform: it is listed by name, and what it returns is simplified."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Concatenate, ParamSpec

from tilewright.ir.stmt import Kernel
from tilewright.simplify import simplify_kernel

P = ParamSpec("P")
Transform = Callable[Concatenate[Kernel, P], Kernel]

TRANSFORMS: dict[str, Callable[..., Kernel]] = {}


def transform(function: Transform[P]) -> Transform[P]:
    """Lists ``function`` in `TRANSFORMS` and simplifies the kernels that it returns.

    A transform that had nothing to do returns the same object.
    """

    @functools.wraps(function)
    def run(kernel: Kernel, /, *args: P.args, **kwargs: P.kwargs) -> Kernel:
        changed = function(kernel, *args, **kwargs)
        return kernel if changed is kernel else simplify_kernel(changed)

    TRANSFORMS[function.__name__] = run
    return run
