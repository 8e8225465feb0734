"""The base of the functions that kernels call, which exist only while a kernel is translated.

Each is a function in Python whose docstring is its documentation. It takes the `Site` of its call,
and returns a value of `lang.values`.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Callable, Mapping
from functools import update_wrapper
from typing import Any, Concatenate, NoReturn, ParamSpec

from tilewright.dtypes import DType, dtype
from tilewright.errors import KernelError, UnsupportedError
from tilewright.ir.expr import Expr
from tilewright.lang.elements import Elements
from tilewright.lang.source import calling_place
from tilewright.lang.values import Array, Vector

_BUILTINS: dict[str, Builtin] = {}


P = ParamSpec("P")


class Builtin:
    """A function that only kernels call."""

    def __init__(self, function: Callable[..., Any]) -> None:
        update_wrapper(self, function)
        self.name = function.__name__.rstrip("_")
        self.in_words = f"the function tw.{self.name}"
        self._function = function
        self.by_elements = False
        whole = inspect.signature(function)
        parameters = list(whole.parameters.values())[1:]
        self.__signature__ = whole.replace(parameters=parameters)

    def run(self, site: Site) -> Any:
        """The result of a call."""
        site.called(self.name)
        args, keywords = site.arguments()
        try:
            bound = self.__signature__.bind(*args, **keywords)
        except TypeError as error:
            signature = str(self.__signature__).replace(": Any", "")
            raise site.refuse(
                f"tw.{self.name}: {error}", cure=f"call tw.{self.name}{signature}"
            ) from None
        bound.apply_defaults()
        if self.by_elements and any(isinstance(value, Vector) for value in bound.args):
            return site.scope.by_elements(
                lambda *elements: self._function(site, *elements), bound.args
            )
        return self._function(site, *bound.args, **bound.kwargs)

    def __call__(self, *args: object, **keywords: object) -> NoReturn:
        raise KernelError(
            f"tw.{self.name} is called outside of a kernel",
            where=calling_place(sys._getframe(1)),
            why="work-items run it, and Python is none",
            cure="call it in a function with @tw.kernel or @tw.function",
        )

    def __repr__(self) -> str:
        return f"<tw.{self.name} of kernels>"


def builtin(function: Callable[Concatenate[Site, P], Any]) -> Callable[P, Any]:
    """Makes ``function`` one that kernels call as ``tw.NAME``. For type checkers it returns
    anything, as its result in a kernel is no value of Python."""
    return _listed(Builtin(function))


def elementwise(function: Callable[Concatenate[Site, P], Any]) -> Callable[P, Any]:
    """`builtin` for a function of numbers, which is applied to vectors element by element."""
    elementwise_function = Builtin(function)
    elementwise_function.by_elements = True
    return _listed(elementwise_function)


def _listed(function: Builtin) -> Callable[..., Any]:
    _BUILTINS[function.name] = function
    return function


def builtins() -> Mapping[str, Builtin]:
    """All of them, by name."""
    return _BUILTINS


def known_builtin(module: str, name: str) -> Builtin | None:
    """The function of kernels that ``name`` of a module stands for, if it is one: of tilewright, or
    an equal one of Python's math."""
    if module in ("tilewright", "math"):
        return _BUILTINS.get(name)
    return None


class Site:
    """A call under translation."""

    def __init__(self, scope: Elements, node: ast.Call) -> None:
        self.scope = scope
        self.node = node
        self.name = ""
        self.emitter = scope.emitter
        self.arithmetic = scope.arithmetic
        self.translation = scope.translation

    def called(self, name: str) -> None:
        """Sets the name of the function, for errors."""
        self.name = name

    def values(self) -> list[Any]:
        """The positional arguments; refuses keywords."""
        if self.node.keywords:
            raise self.refuse("keywords in this call", cure="pass arguments in their order")
        return self.arguments()[0]

    def arguments(self) -> tuple[list[Any], dict[str, Any]]:
        """The arguments by place and by name, evaluated in order."""
        nodes = self.node.args
        if any(keyword.arg is None for keyword in self.node.keywords):
            raise self.refuse("** in a call of a kernel", cure="write the arguments")
        starred = any(isinstance(node, ast.Starred) for node in nodes)
        if starred:
            placed = list(self.scope.value(ast.copy_location(ast.Tuple(nodes), self.node)))
            return placed, {e.arg: self.scope.value(e.value) for e in self.node.keywords if e.arg}
        values = self.scope.in_order([*nodes, *(keyword.value for keyword in self.node.keywords)])
        named = {
            keyword.arg: value
            for keyword, value in zip(self.node.keywords, values[len(nodes) :], strict=True)
            if keyword.arg is not None
        }
        return values[: len(nodes)], named

    def refuse(self, what: str, why: str | None = None, cure: str = "") -> KernelError:
        """The error about the call."""
        return self.scope.refuse(what, why, cure, at=self.node)

    def number(self, value: Any, what: str = "the value") -> Any:
        """``value``, which has to be a number."""
        self.scope._check_number(value, f"{what} of tw.{self.name}", self.node)
        return value

    def typed(self, value: Any, type_: DType | None = None) -> Expr:
        """A number as an expression."""
        return self.arithmetic.typed(self.number(value), type_)

    def static_integer(self, value: Any, what: str, low: int, high: int) -> int:
        """An integer within bounds that is known at compile time."""
        if isinstance(value, int) and not isinstance(value, bool) and low <= value <= high:
            return value
        from_to = f"a whole number from {low} to {high}, known when the kernel is compiled"
        raise self.refuse(
            f"the {what} of tw.{self.name} is {_short(value)}", cure=f"give {from_to}"
        )

    def flag(self, value: Any, what: str) -> bool:
        """A flag that is known at compile time."""
        if isinstance(value, bool):
            return value
        raise self.refuse(
            f"{what}= of tw.{self.name} is {_short(value)}",
            "it is part of the kernel's code",
            "write True or False",
        )

    def one_of(self, value: Any, what: str, choices: tuple[str, ...]) -> str:
        """One of several words."""
        if isinstance(value, str) and value in choices:
            return value
        raise self.refuse(
            f"the {what} of tw.{self.name} is {_short(value)}",
            cure="write one of " + ", ".join(f'"{choice}"' for choice in choices),
        )

    def element_type(self, value: Any) -> DType:
        """An element type."""
        try:
            return dtype(value)
        except UnsupportedError as error:
            raise self.refuse(f"tw.{self.name}: {error.what}", cure=error.cure or "") from None

    def array(self, value: Any) -> Array:
        """An array."""
        if not isinstance(value, Array):
            raise self.refuse(f"tw.{self.name} of what is no array", cure="pass an array")
        return value

    def let(self, name: str, value: Any) -> Any:
        """A name for a number."""
        return self.scope.named(name, value)


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
