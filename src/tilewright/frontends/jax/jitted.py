"""``jit(f)``: JAX traces and lowers the function, and we compile and run what comes of it."""

from __future__ import annotations

import ctypes
import functools
import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from tilewright.engine import CompiledKernel
from tilewright.errors import ArgumentError, one_of, short
from tilewright.frontends.stablehlo import StableHLO, from_stablehlo
from tilewright.graph.compiling import compile_graph

# What programs keep the integers of 4 bits in.
_BYTES = {np.dtype(jax.numpy.int4): np.int8, np.dtype(jax.numpy.uint4): np.uint8}


@dataclass(frozen=True)
class _Made:
    """What a call runs, and of what form its results are: their shapes and types, and the
    function's containers."""

    kernel: CompiledKernel
    graph: StableHLO
    wanted: tuple[Any, ...]
    containers: Any


class Jitted:
    """A function of JAX arrays, compiled for each combination of shapes and types that it is called
    with. `graph` and `compiled` show what comes of a call."""

    def __init__(
        self,
        function: Callable[..., Any],
        target: str,
        threads: int | None,
        static: Sequence[str],
        donated: Mapping[str, Any],
    ) -> None:
        self._static = tuple(static)
        self._places = _places(function, self._static)
        # What is not used is an argument all the same, so that arrays and inputs go in pairs.
        self._jitted = jax.jit(function, keep_unused=True, static_argnames=self._static, **donated)
        self._target, self._threads = target, threads
        self._kept: dict[Any, _Made] = {}
        functools.update_wrapper(self, function)

    def __get__(self, owner: Any, kind: type | None = None) -> Any:
        """As a method, with ``self`` in front."""
        return self if owner is None else functools.partial(self, owner)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """The results, as the function gives them: arrays of JAX, in its containers.

        Raises `ArgumentError` for what is no array of JAX's types, and what the function raises
        while JAX traces it.
        """
        compiled, leaves = self._found(arguments, named)
        graph = compiled.graph
        values_of: dict[str, Any] = {}
        updated: dict[str, Any] = {}
        for name, leaf in zip(graph.inputs, leaves, strict=True):
            if name in graph.outputs:
                updated[name] = _donated(leaf)
                values_of[name] = _writable(updated[name])
            else:
                values_of[name] = _passed(leaf)
        outputs = compiled.kernel(**values_of)
        several = len(graph.outputs) > 1
        values = [outputs[name] if several else outputs for name in graph.results]
        results = [
            updated[name] if name in updated else _returned(value, form)
            for name, value, form in zip(graph.results, values, compiled.wanted, strict=True)
        ]
        return jax.tree_util.tree_unflatten(compiled.containers, results)

    def graph(self, *arguments: Any, **named: Any) -> StableHLO:
        """The graph of a call with such arguments."""
        return self._found(arguments, named)[0].graph

    def compiled(self, *arguments: Any, **named: Any) -> CompiledKernel:
        """The program that runs a call with such arguments."""
        return self._found(arguments, named)[0].kernel

    def _traced(self, arguments: Sequence[Any], named: dict[str, Any]) -> tuple[Any, ...]:
        """The arguments that are not static."""
        ordered = tuple(argument for n, argument in enumerate(arguments) if n not in self._places)
        return ordered, {name: value for name, value in named.items() if name not in self._static}

    def _found(
        self, arguments: Sequence[Any], named: dict[str, Any]
    ) -> tuple[_Made, Sequence[Any]]:
        """What runs a call, and the arrays and numbers in the arguments that are not static."""
        traced = self._traced(arguments, named)
        placed, structure = jax.tree_util.tree_flatten_with_path(traced)
        leaves = [_checked(path, leaf) for path, leaf in placed]
        static: list[Any] = [(n, arguments[n]) for n in self._places if n < len(arguments)]
        static += [(name, named[name]) for name in self._static if name in named]
        # Numbers of Python give way to the types of arrays, and 1, 1.0 and True are equal.
        shapes = tuple(map(jax.typeof, leaves))
        types = tuple(type(value) for _, value in static)
        # (What 1.0 is says whether there are types of 64 bits.)
        key = (structure, shapes, tuple(static), types, jax.typeof(1.0))
        try:
            compiled = self._kept.get(key)
        except TypeError as error:
            raise ArgumentError(
                "a static argument is not hashable",
                where=", ".join(self._static),
                why=str(error),
                cure="pass a tuple for a list, or leave it out of static_argnames",
            ) from error
        if compiled is None:
            lowered = self._jitted.lower(*arguments, **named)
            graph = from_stablehlo(lowered.as_text())
            kernel = compile_graph(graph, self._target, self._threads)
            wanted, containers = jax.tree_util.tree_flatten(lowered.out_info)
            compiled = self._kept[key] = _Made(kernel, graph, tuple(wanted), containers)
        return compiled, leaves


def jit(
    function: Callable[..., Any] | None = None,
    *,
    target: str = "x86",
    threads: int | None = None,
    static_argnames: Sequence[str] = (),
    donate_argnums: int | Sequence[int] = (),
    donate_argnames: str | Sequence[str] = (),
) -> Any:
    """``function``, compiled for ``target`` as ``jax.jit`` would compile it for its own: a function
    with the same arguments and results, or a decorator.

    It is compiled when it is first called, once for each combination of shapes and types;
    ``static_argnames`` are arguments that it is compiled anew for. Arguments of ``donate_argnums``
    and ``donate_argnames`` are given away, as `jax.jit` has it: results of the same sizes and types
    are written in their place, and who still holds them finds that they are deleted. Raises
    `UnsupportedError` for an operation that is not translated, `ArgumentError` for what is no
    function, or no name of an argument. What JAX transforms goes inside: ``jit(jax.grad(f))``.
    """
    names = (static_argnames,) if isinstance(static_argnames, str) else static_argnames
    if not isinstance(names, Sequence) or not all(isinstance(name, str) for name in names):
        raise ArgumentError(
            f"{short(names)} are no names of arguments",
            where="static_argnames",
            cure='pass a name, or several: static_argnames=("size",)',
        )
    if function is None:
        return functools.partial(
            jit,
            target=target,
            threads=threads,
            static_argnames=names,
            donate_argnums=donate_argnums,
            donate_argnames=donate_argnames,
        )
    donated = {"donate_argnums": donate_argnums, "donate_argnames": donate_argnames}
    return Jitted(function, target, threads, names, _checked_donations(function, donated))


def _checked_donations(function: Any, donated: Mapping[str, Any]) -> dict[str, Any]:
    """Those that say something, as `jax.jit` takes them: it raises for what makes no sense."""
    said = {name: value for name, value in donated.items() if value not in ((), [])}
    if not said or not callable(function):
        return said
    try:
        jax.jit(function, **said)
    except (TypeError, ValueError) as error:
        raise ArgumentError(
            "the arguments that are donated make no sense",
            where=", ".join(said),
            why=str(error).splitlines()[0],
            cure="give places or names of the function's arguments",
        ) from error
    return said


def _places(function: Any, static: Sequence[str]) -> tuple[int, ...]:
    """Where static arguments stand that are passed by their order."""
    if not callable(function):
        raise ArgumentError(f"{short(function)} is no function", cure="pass a function of arrays")
    try:
        parameters = inspect.signature(function).parameters
    except ValueError:  # of C
        return ()
    open_ended = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    nameless = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.VAR_POSITIONAL)
    names = [name for name, parameter in parameters.items() if parameter.kind not in nameless]
    for name in static:
        if name not in names and (name in parameters or not open_ended):
            raise ArgumentError(
                f"the function has no argument {name!r} that calls can name",
                where="static_argnames",
                cure=one_of(name, names) if names else "pass it as an array, or bind it first",
            )
    ordered = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    by_order = [name for name, parameter in parameters.items() if parameter.kind in ordered]
    return tuple(n for n, name in enumerate(by_order) if name in static)


def _type_of(leaf: Any) -> Any:
    """The type that JAX gives it."""
    return jax.typeof(leaf).dtype


def _checked(path: Any, leaf: Any) -> Any:
    """An argument, or a part of one, which has to be an array or a number."""
    if isinstance(leaf, jax.core.Tracer):
        raise ArgumentError(
            "an argument is being traced by JAX",
            where=_place(path),
            why="jax.jit, jax.grad and jax.vmap do not look into compiled code",
            cure="transform the function inside: jit(jax.grad(f))",
        )
    try:
        jax.typeof(leaf)
    except (TypeError, ValueError, OverflowError) as error:
        raise ArgumentError(
            f"{short(leaf)} is no array of JAX's",
            where=_place(path),
            why=str(error).splitlines()[0],
            cure="pass arrays of numpy or JAX, and numbers; others by static_argnames",
        ) from error
    return leaf


def _place(path: Any) -> str:
    return f"arguments{jax.tree_util.keystr(path[1:])}"


def _is_key(type_: Any) -> bool:
    return bool(jax.numpy.issubdtype(type_, jax.dtypes.prng_key))


def _passed(leaf: Any) -> Any:
    """The array of numpy that the program takes for an argument."""
    type_ = _type_of(leaf)
    if _is_key(type_):
        return np.asarray(jax.random.key_data(leaf))
    array = np.asarray(leaf)
    return _real(array.astype(_BYTES.get(type_, type_), order="C", copy=False))


# What it gives has the memory of what it takes, which is deleted; where others hold that, a copy.
_moved = jax.jit(lambda array: array, donate_argnums=0)


def _donated(leaf: Any) -> Any:
    """An array of JAX's that nobody else has, of the contents of ``leaf``, which is given away."""
    with warnings.catch_warnings():
        # Of what cannot be taken, JAX says so; it is copied.
        warnings.simplefilter("ignore")
        return _moved(jax.numpy.array(leaf) if not isinstance(leaf, jax.Array) else leaf)


def _writable(array: jax.Array) -> Any:
    """The memory of ``array`` as the array of numpy that the program writes."""
    array.block_until_ready()
    raw = jax.random.key_data(array) if _is_key(array.dtype) else array
    memory = (ctypes.c_uint8 * raw.nbytes).from_address(raw.unsafe_buffer_pointer())
    type_ = np.dtype(raw.dtype)
    shaped = np.frombuffer(memory, np.uint8).view(_BYTES.get(type_, type_)).reshape(raw.shape)
    return _real(shaped)


def _returned(value: Any, wanted: Any) -> Any:
    """An array of the program's as what the function gives."""
    if not _is_key(wanted.dtype):
        return jax.numpy.asarray(_complex(value, wanted.dtype), wanted.dtype)
    kinds: list[Any] = []
    jax.eval_shape(lambda key: kinds.append(jax.random.key_impl(key)), wanted)
    return jax.random.wrap_key_data(jax.numpy.asarray(value), impl=kinds[0])


def _real(array: Any) -> Any:
    """Complex numbers as pairs in a last dim."""
    if array.dtype.kind != "c":
        return array
    part = np.float64 if array.dtype == np.complex128 else np.float32
    return array[..., None].view(part)


def _complex(array: Any, type_: Any) -> Any:
    """Pairs in a last dim as complex numbers, where the result is to have them."""
    if np.dtype(type_).kind != "c":
        return array
    return np.ascontiguousarray(array).view(type_)[..., 0]
