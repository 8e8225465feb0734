"""Calls of public functions with arguments that their signatures do not have."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from typing import ParamSpec, TypeVar

from tilewright.errors import ArgumentError, TilewrightError, one_of

P = ParamSpec("P")
R = TypeVar("R")


def checked_call(function: Callable[P, R]) -> Callable[P, R]:
    """``function``, which raises `ArgumentError` where Python would say that a call does not fit
    its signature."""

    @wraps(function)
    def call(*args: P.args, **keywords: P.kwargs) -> R:
        try:
            return function(*args, **keywords)
        except TypeError as error:
            # One that is raised further in is the function's, not the call's.
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
    name = f"tw.{function.__name__}"
    parameters = inspect.signature(function).parameters
    unknown = [each for each in keywords if each not in parameters]
    text = _descriptor(args)
    if unknown:
        named = [each.name for each in parameters.values() if each.kind is not each.POSITIONAL_ONLY]
        cure = one_of(unknown[0], named) if named else "leave it out"
    elif text and _takes(function, text):
        cure = f"write the shapes as one text: {name}({text!r})"
    else:
        cure = f"call {name}{_plain_signature(parameters.values())}"
    return ArgumentError(why.replace(f"{function.__name__}()", name), where=name, cure=cure)


def _descriptor(args: Sequence[object]) -> str | None:
    """The text that several shapes are as one problem, None for anything else."""
    said = [_shape(each) for each in args]
    if len(said) < 2 or None in said:
        return None
    return ":".join(map(str, said))


def _shape(given: object) -> str | None:
    if isinstance(given, str):
        return given
    if (
        isinstance(given, tuple | list)
        and given
        and all(type(each) is int and abs(each) < 2**63 for each in given)
    ):
        return "x".join(map(str, given))
    return None


def _takes(function: Callable[..., object], text: str) -> bool:
    try:
        function(text)
    except (TilewrightError, TypeError):
        return False
    return True


def _plain_signature(parameters: Iterable[inspect.Parameter]) -> str:
    """The signature without types, which are in the documentation."""
    plain = [each.replace(annotation=inspect.Parameter.empty) for each in parameters]
    return str(inspect.Signature(plain))
