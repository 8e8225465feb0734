"""Whether what a transform is given is of the types that it takes."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from tilewright.errors import ScheduleError
from tilewright.schedule.records.record import VALUES, signature_of, step_function


def check_arguments(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Raises `ScheduleError` where the transform called ``name`` does not take such arguments."""
    signature = signature_of(name)
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError as error:
        raise ScheduleError(
            f"{name}: {error}", where=f"{name}(...)", cure=f"call it as {_usage(name)}"
        ) from None
    for key, value in bound.arguments.items():
        wanted = _hints(name)[key]
        if not _fits(value, wanted):
            raise ScheduleError(
                f"{name}: {key}={_shortened(value)} is of another type",
                where=f"{name}(...)",
                why=f"{key} takes {_said(wanted)}",
                cure=f"call it as {_usage(name)}",
            )


def _usage(name: str) -> str:
    parts: list[str] = []
    keyword = False
    for parameter in signature_of(name).parameters.values():
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY and not keyword:
            parts.append("*")
            keyword = True
        parts.append(
            parameter.name
            if parameter.default is inspect.Parameter.empty
            else f"{parameter.name}=..."
        )
    return f"{name}({', '.join(parts)})"


@cache
def _hints(name: str) -> Mapping[str, Any]:
    return get_type_hints(inspect.unwrap(step_function(name)))


def _shortened(value: Any) -> str:
    try:
        text = repr(value)
    except ValueError:  # Python writes no integers of thousands of digits.
        return "an integer of thousands of digits"
    return text if len(text) <= 60 else text[:57] + "..."


def _said(wanted: Any) -> str:
    """A type in words."""
    origin, inner = get_origin(wanted), get_args(wanted)
    if origin is Literal:
        return " or ".join(repr(option) for option in inner)
    if origin in (Union, UnionType):
        return " or ".join(_said(kind) for kind in inner)
    if origin is tuple:
        return "(" + ", ".join(_said(kind) for kind in inner) + ")"
    if origin in (Sequence, Collection):
        return f"a list of {_said(inner[0])}"
    if origin is Mapping:
        return f"a dict from {_said(inner[0])} to {_said(inner[1])}"
    names = {str: "a name", int: "a whole number", bool: "True or False", NoneType: "None"}
    return names.get(wanted, getattr(wanted, "__name__", str(wanted)))


def _fits(value: Any, wanted: Any) -> bool:
    origin, inner = get_origin(wanted), get_args(wanted)
    if origin is Literal:
        return any(type(value) is type(option) and value == option for option in inner)
    if origin in (Union, UnionType):
        return any(_fits(value, kind) for kind in inner)
    if origin is tuple:
        if not isinstance(value, tuple) or len(value) != len(inner):
            return False
        return all(map(_fits, value, inner))
    if origin in (Sequence, Collection):
        kinds = (list, tuple) if origin is Sequence else (list, tuple, set, frozenset)
        return isinstance(value, kinds) and all(_fits(item, inner[0]) for item in value)
    if origin is Mapping:
        return isinstance(value, Mapping) and all(
            _fits(key, inner[0]) and _fits(entry, inner[1]) for key, entry in value.items()
        )
    if wanted in VALUES.values():
        # Python checks no types of what a dataclass is made of.
        hints = get_type_hints(wanted)
        return isinstance(value, wanted) and all(
            _fits(getattr(value, name), hint) for name, hint in hints.items()
        )
    if wanted is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, wanted)
