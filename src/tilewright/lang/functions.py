"""`@tw.function`: functions in Python that kernels call, written out where they are called."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import update_wrapper
from types import FunctionType
from typing import Any

from tilewright.calls import checked_call
from tilewright.errors import KernelError, short
from tilewright.lang.builtin import Site
from tilewright.lang.parameters import check_plain, defaults_of
from tilewright.lang.source import captured, source_of
from tilewright.lang.translation import Function


class HelperFunction:
    """A function with `@tw.function`: it is inlined where kernels call it."""

    def __init__(self, function: FunctionType) -> None:
        update_wrapper(self, function)
        self.name = function.__name__
        self._python = function
        self._source = source_of(function)
        check_plain(self._source)
        self.defaults = defaults_of(function)
        self._signature = inspect.signature(function)

    @property
    def function(self) -> Function:
        """The function under translation, with the present values of its free names."""
        return Function(self._source, captured(self._python))

    def inline(self, site: Site) -> Any:
        """The result of a call."""
        args, keywords = site.arguments()
        try:
            bound = self._signature.bind(*args, **keywords)
        except TypeError as error:
            raise site.refuse(
                f"{self.name}: {error}", cure=f"call {self.name}{self._signature}"
            ) from None
        bound.apply_defaults()
        named = {
            name: site.let(name, site.translation.tuned(site.scope, name, value))
            for name, value in bound.arguments.items()
        }
        return site.translation.call(self, site.scope, named)

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        """Outside of kernels it is the function in Python."""
        return self._python(*args, **keywords)


@checked_call
def function(function: Callable[..., Any]) -> HelperFunction:
    """Makes a function one that kernels call: it is written out at each call, for the types that it
    is called with. Raises `KernelError`."""
    return HelperFunction(plain_function(function, "tw.function"))


def plain_function(function: object, decorator: str) -> FunctionType:
    """``function``, if ``def`` defines it. Raises `KernelError` for what ``decorator`` does not
    take."""
    if not isinstance(function, FunctionType) or function.__name__ == "<lambda>":
        raise KernelError(
            f"@{decorator} of {short(function)}",
            where=f"@{decorator}",
            cure="decorate a function that def defines",
        )
    return function
