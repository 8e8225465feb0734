"""The forms of values in configs: what each field may be, by its type, in words and as a check."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cache
from typing import Any

from tilewright.errors import ScheduleError

# A number of which 0 stands for none, unlike a size.
Count = int


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0


def _is_size(value: Any) -> bool:
    return type(value) is int and value >= 1


def _is_names(value: Any) -> bool:
    texts = isinstance(value, tuple) and all(isinstance(name, str) for name in value)
    return texts and len(set(value)) == len(value)


def _is_sizes(value: Any) -> bool:
    return isinstance(value, Mapping) and all(
        isinstance(name, str) and _is_size(size) for name, size in value.items()
    )


def _is_swizzles(value: Any) -> bool:
    return isinstance(value, Mapping) and all(
        isinstance(name, str)
        and isinstance(given, tuple)
        and len(given) == 3
        and all(_is_count(each) for each in given)
        for name, given in value.items()
    )


def _is_splits(value: Any) -> bool:
    return isinstance(value, tuple) and all(
        isinstance(pair, tuple) and len(pair) == 2 and _is_sizes(dict([pair])) for pair in value
    )


def _is_fusions(value: Any) -> bool:
    return isinstance(value, tuple) and all(_is_names(each) and len(each) == 3 for each in value)


def _is_choice(value: Any) -> bool:
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        return False
    try:
        return bool(ast.literal_eval(repr(dict(value))) == value)
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
        return False


# By the type of the field: what a value is, and whether it is that.
_FORMS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "str": ("a name in quotes", lambda value: isinstance(value, str)),
    "bool": ("True or False", lambda value: isinstance(value, bool)),
    "int": ("a whole number, 1 or more", _is_size),
    "Count": ("a whole number, 0 or more", _is_count),
    "Mapping[str, int]": ("a dict of dims with sizes, which are 1 or more", _is_sizes),
    "Mapping[str, tuple[int, int, int]]": (
        "a dict of operands with (bits, base, shift)",
        _is_swizzles,
    ),
    "tuple[str, ...]": ("a tuple of dims, each once", _is_names),
    "tuple[tuple[str, int], ...]": ("a tuple of (dim, factor)", _is_splits),
    "Mapping[str, Any]": ("a dict of names with literals", _is_choice),
    "tuple[tuple[str, str, str], ...]": ("a tuple of (outer, inner, new name)", _is_fusions),
}


def with_form(words: str, holds: Callable[[Any], bool], annotation: str) -> None:
    """Adds the form of the fields of a type: values are ``words``, and ``holds`` says of which it
    is so."""
    _FORMS[annotation] = words, holds


class Printed:
    """Prints as the call that makes it, without what is as it is by default."""

    def __repr__(self) -> str:
        given = (
            f"{each.name}={getattr(self, each.name)!r}"
            for each in fields(_kind(self))
            if getattr(self, each.name) != _usual(each)
        )
        return f"{type(self).__name__}({', '.join(given)})"


def _usual(given: Field[Any]) -> Any:
    return given.default if given.default_factory is MISSING else given.default_factory()


def check_forms(config: Any) -> None:
    """Refuses a value of another form than its field has: configs come from texts and files."""
    for name, form, holds in _forms(_kind(config)):
        value = getattr(config, name)
        if not holds(value):
            raise ScheduleError(
                f"{name}={value!r} is not {form}",
                where=f"config {type(config).__name__}",
                cure=f"write {name} as {form}",
            )


def forms_of(config: Any) -> dict[str, str]:
    """What each field of a kind of config takes, in words; of a part of it, each of its fields, as
    ``part.field``."""
    return dict(_words(config))


def _words(config: Any) -> Iterator[tuple[str, str]]:
    for name, form, _ in _forms(_kind(config)):
        value = getattr(config, name)
        if is_dataclass(value):
            yield from ((f"{name}.{inner}", words) for inner, words in _words(value))
        else:
            yield name, form


def _kind(config: Any) -> Any:
    return type(config)


@cache
def _forms(kind: Any) -> tuple[tuple[str, str, Callable[[Any], bool]], ...]:
    """The fields of a kind of config, with the forms of their values."""
    return tuple((each.name, *_FORMS[str(each.type)]) for each in fields(kind))
