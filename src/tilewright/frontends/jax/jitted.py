"""``jit(f)``: JAX traces and lowers the function, and we compile and run what comes of it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from tilewright.engine import CompiledKernel
from tilewright.frontends.stablehlo import StableHLO, from_stablehlo
from tilewright.graph.program import compile_graph


class Jitted:
    """A function of JAX arrays, compiled for each combination of shapes and types that it is called
    with. `graph` and `compiled` show what comes of a call."""

    def __init__(
        self,
        function: Callable[..., Any],
        target: str,
        threads: int | None,
        static: Sequence[str],
    ) -> None:
        self._static = tuple(static)
        # What is not used is an argument all the same, so that arrays and inputs go in pairs.
        self._jitted = jax.jit(function, keep_unused=True, static_argnames=self._static)
        self._target, self._threads = target, threads
        self._kept: dict[Any, tuple[CompiledKernel, StableHLO, Any]] = {}
        functools.update_wrapper(self, function)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """The results, as the function gives them: arrays of JAX, in its containers."""
        leaves = self._leaves(arguments, named)
        kernel, graph, tree = self._found(arguments, named, leaves)
        given = {
            name: _real(np.asarray(leaf).astype(jax.numpy.result_type(leaf)))
            for name, leaf in zip(graph.inputs, leaves, strict=True)
        }
        found = kernel(**given)
        several = len(graph.outputs) > 1
        values = [found[name] if several else found for name in graph.results]
        made = [
            jax.numpy.asarray(_complex(value, wanted.dtype))
            for value, wanted in zip(values, jax.tree_util.tree_leaves(tree), strict=True)
        ]
        return jax.tree_util.tree_unflatten(jax.tree_util.tree_structure(tree), made)

    def graph(self, *arguments: Any, **named: Any) -> StableHLO:
        """The graph of a call with such arguments."""
        return self._found(arguments, named, self._leaves(arguments, named))[1]

    def compiled(self, *arguments: Any, **named: Any) -> CompiledKernel:
        """The program that runs a call with such arguments."""
        return self._found(arguments, named, self._leaves(arguments, named))[0]

    def _leaves(self, arguments: Sequence[Any], named: dict[str, Any]) -> list[Any]:
        traced = {name: value for name, value in named.items() if name not in self._static}
        found: list[Any] = jax.tree_util.tree_leaves((tuple(arguments), traced))
        return found

    def _found(
        self, arguments: Sequence[Any], named: dict[str, Any], leaves: Sequence[Any]
    ) -> tuple[CompiledKernel, StableHLO, Any]:
        shapes = tuple((np.shape(leaf), jax.numpy.result_type(leaf).name) for leaf in leaves)
        structure = jax.tree_util.tree_structure((tuple(arguments), named))
        static = tuple((name, named[name]) for name in self._static if name in named)
        key = (structure, shapes, static)
        if key not in self._kept:
            lowered = self._jitted.lower(*arguments, **named)
            graph = from_stablehlo(lowered.as_text())
            kernel = compile_graph(graph, self._target, self._threads)
            self._kept[key] = (kernel, graph, lowered.out_info)
        return self._kept[key]


def jit(
    function: Callable[..., Any] | None = None,
    *,
    target: str = "x86",
    threads: int | None = None,
    static_argnames: Sequence[str] = (),
) -> Any:
    """``function``, compiled for ``target`` as ``jax.jit`` would compile it for its own: a function
    with the same arguments and results, or a decorator.

    It is compiled when it is first called, once for each combination of shapes and types;
    ``static_argnames`` are arguments that it is compiled anew for. Raises `UnsupportedError` for an
    operation that is not translated.
    """
    if function is None:
        return functools.partial(
            jit, target=target, threads=threads, static_argnames=static_argnames
        )
    return Jitted(function, target, threads, static_argnames)


def _real(array: Any) -> Any:
    """Complex numbers as pairs in a last dim."""
    if array.dtype.kind != "c":
        return array
    part = np.float64 if array.dtype == np.complex128 else np.float32
    return np.ascontiguousarray(array)[..., None].view(part)


def _complex(array: Any, type_: Any) -> Any:
    """Pairs in a last dim as complex numbers, where the result is to have them."""
    if np.dtype(type_).kind != "c":
        return array
    return np.ascontiguousarray(array).view(type_)[..., 0]
