"""Errors for calls that do not fit the signature of a public function."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from typing import ParamSpec, TypeVar

from tilewright.errors import ArgumentError, TilewrightError, one_of

P = ParamSpec("P")
R = TypeVar("R")


def checked_call(function: Callable[P, R]) -> Callable[P, R]:
    """``function``, with `ArgumentError` in place of Python's error for a call that does not fit
    its signature."""

    @wraps(function)
    def call(*args: P.args, **keywords: P.kwargs) -> R:
        try:
            return function(*args, **keywords)
        except TypeError as error:
            # An error that is raised deeper is the function's own.
            if error.__traceback__ is None or error.__traceback__.tb_next is not None:
                raise
            refused = _refused(function, args, keywords, str(error))
        raise refused

    return call


def _refused(
    function: Callable[..., object],
    args: Sequence[object],
    keywords: Mapping[str, object],
    why: str,
) -> ArgumentError:
    name = function.__qualname__
    parameters = dict(inspect.signature(function).parameters)
    if "." in name:
        parameters.pop("self", None)
    else:
        name = f"tw.{name}"
    unknown = [keyword for keyword in keywords if keyword not in parameters]
    text = _descriptor(args)
    if unknown:
        names = [
            parameter.name
            for parameter in parameters.values()
            if parameter.kind is not parameter.POSITIONAL_ONLY
        ]
        cure = one_of(unknown[0], names) if names else "leave it out"
    elif text and _takes(function, text):
        cure = f"write the shapes as one text: {name}({text!r})"
    else:
        cure = f"call {name}{_plain_signature(parameters.values())}"
    return ArgumentError(why.replace(f"{function.__qualname__}()", name), where=name, cure=cure)


def _descriptor(args: Sequence[object]) -> str | None:
    """The text of several shapes as one problem; None for other arguments."""
    texts = [_shape(argument) for argument in args]
    if len(texts) < 2 or None in texts:
        return None
    return ":".join(map(str, texts))


def _shape(shape: object) -> str | None:
    if isinstance(shape, str):
        return shape
    if (
        isinstance(shape, tuple | list)
        and shape
        and all(type(size) is int and abs(size) < 2**63 for size in shape)
    ):
        return "x".join(map(str, shape))
    return None


def _takes(function: Callable[..., object], text: str) -> bool:
    try:
        function(text)
    except (TilewrightError, TypeError):
        return False
    return True


def _plain_signature(parameters: Iterable[inspect.Parameter]) -> str:
    """The signature without types, which are in the documentation."""
    plain = [parameter.replace(annotation=inspect.Parameter.empty) for parameter in parameters]
    return str(inspect.Signature(plain))
