"""Choices: frozen dataclasses whose fields say what may be chosen, by the forms of their types; and
what their checks look at, and how they refuse."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, fields
from functools import cache, cached_property
from typing import Annotated, Any, ClassVar, TypeAlias, dataclass_transform, get_type_hints

from tilewright.errors import ScheduleError
from tilewright.ir.stmt import Compute
from tilewright.machines.machine import Machine
from tilewright.recipes.roles import Roles, extents, roles


@dataclass(frozen=True)
class Form:
    """What a value is: in ``words``, and as a check."""

    words: str
    holds: Callable[[Any], bool]


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0


def _is_size(value: Any) -> bool:
    return type(value) is int and value >= 1


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)


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
        and isinstance(entry, tuple)
        and len(entry) == 3
        and all(_is_count(count) for count in entry)
        for name, entry in value.items()
    )


def _is_splits(value: Any) -> bool:
    return isinstance(value, tuple) and all(
        isinstance(pair, tuple) and len(pair) == 2 and _is_sizes(dict([pair])) for pair in value
    )


def _is_fusions(value: Any) -> bool:
    return isinstance(value, tuple) and all(_is_names(entry) and len(entry) == 3 for entry in value)


# A number of which 0 stands for none, unlike a size.
Count: TypeAlias = Annotated[int, Form("a whole number, 0 or more", _is_count)]
_FORMS: dict[Any, Form] = {
    str: Form("a name in quotes", lambda value: isinstance(value, str)),
    bool: Form("True or False", lambda value: isinstance(value, bool)),
    int: Form("a whole number, 1 or more", _is_size),
    float: Form("a finite number", _is_number),
    Mapping[str, int]: Form("a dict of dims with sizes, which are 1 or more", _is_sizes),
    Mapping[str, tuple[int, int, int]]: Form(
        "a dict of operands with (bits, base, shift)", _is_swizzles
    ),
    tuple[str, ...]: Form("a tuple of dims, each once", _is_names),
    tuple[tuple[str, int], ...]: Form("a tuple of (dim, factor)", _is_splits),
    tuple[tuple[str, str, str], ...]: Form("a tuple of (outer, inner, new name)", _is_fusions),
}


@dataclass_transform(eq_default=False, frozen_default=True)
class Choices:
    """What was chosen, by name. A subclass is a frozen dataclass: a field is a choice, its type
    says what may be chosen, and a type without a form is annotated with one.

    Prints as the call that makes it, without what is as it is by default. Raises `ScheduleError`
    for a value of another form than its choice has: configs come from texts and files.
    """

    # All of them, by name, as texts call them.
    kinds: ClassVar[dict[str, type[Choices]]] = {}

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    def __init_subclass__(cls) -> None:
        shipped = Choices.kinds.get(cls.__name__)
        if shipped is not None and cls.__module__ != shipped.__module__ and _ships(shipped):
            raise ScheduleError(
                f"{cls.__name__} is a config of a recipe that ships", cure="name it otherwise"
            )
        Choices.kinds[cls.__name__] = dataclass(frozen=True, eq=False, repr=False)(cls)

    def __post_init__(self) -> None:
        for name, form in _forms(_kind(self)):
            value = getattr(self, name)
            if not form.holds(value):
                raise ScheduleError(
                    f"{name}={value!r} is not {form.words}",
                    where=f"config {type(self).__name__}",
                    cure=f"write {name} as {form.words}",
                )

    def __repr__(self) -> str:
        return self._text

    @cached_property
    def _text(self) -> str:
        chosen = (
            f"{name}={getattr(self, name)!r}"
            for name, default in _defaults(_kind(self))
            if getattr(self, name) != default
        )
        return f"{type(self).__name__}({', '.join(chosen)})"

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.names())

    def __hash__(self) -> int:
        return hash(repr(self))

    @classmethod
    def names(cls) -> list[str]:
        """The names of the choices."""
        return [field.name for field in fields(cls)]

    def forms(self) -> dict[str, str]:
        """What each choice may be, in words; of one that is choices, each of these, as
        ``choice.name``."""
        return dict(self._words())

    def _words(self) -> Iterator[tuple[str, str]]:
        for name, form in _forms(_kind(self)):
            value = getattr(self, name)
            if isinstance(value, Choices):
                yield from ((f"{name}.{inner}", words) for inner, words in value._words())
            else:
                yield name, form.words


def _ships(kind: type[Choices]) -> bool:
    return kind.__module__.startswith("tilewright.")


def _kind(choices: Choices) -> Any:
    return type(choices)


@cache
def _defaults(kind: Any) -> tuple[tuple[str, Any], ...]:
    """The names of the choices, with the values that they have where none is given."""
    return tuple(
        (field.name, field.default if field.default_factory is MISSING else field.default_factory())
        for field in fields(kind)
    )


@cache
def _forms(kind: Any) -> tuple[tuple[str, Form], ...]:
    """The names of the choices, with the forms of their values."""
    try:
        types = get_type_hints(kind, include_extras=True)
        return tuple((field.name, _form(types[field.name])) for field in fields(kind))
    except (KeyError, NameError, TypeError) as error:
        raise ScheduleError(
            f"the type of a choice of {kind.__name__} has no form: {error}",
            why="types that have one: " + ", ".join(map(_spelled, _FORMS)),
            cure="choose one of these, or annotate the type with what its values are: "
            "Annotated[..., Form(words, check)] (tilewright.recipes.parts.forms)",
        ) from error


def _spelled(kind: Any) -> str:
    return kind.__name__ if type(kind) is type else str(kind).removeprefix("collections.abc.")


def _form(kind: Any) -> Form:
    if isinstance(kind, type) and issubclass(kind, Choices):
        return Form(f"a {kind.__name__}(...)", lambda value: isinstance(value, kind))
    forms = [form for form in getattr(kind, "__metadata__", ()) if isinstance(form, Form)]
    return forms[0] if forms else _FORMS[kind]


def refusal(config: object, what: str, why: str | None, cure: str) -> ScheduleError:
    """What is said to a config that asks for ``what`` it cannot have."""
    return ScheduleError(what, where=f"config {config!r}", why=why, cure=cure)


@dataclass(frozen=True)
class Asked:
    """A config (whose file imports this one), the contraction that it is for, whose dims were
    combined, and the machine."""

    config: Any
    main: Compute
    machine: Machine

    @cached_property
    def sizes(self) -> dict[str, int]:
        """The extents of the dims."""
        return extents(self.main)

    @cached_property
    def roles(self) -> Roles:
        """The roles of the dims."""
        return roles(self.main)

    @property
    def operands(self) -> tuple[str, ...]:
        """The names of A and B."""
        return tuple(operand.var.name for operand in self.main.operands[:2])

    def refusal(self, what: str, why: str | None, cure: str) -> ScheduleError:
        """What is said to this config."""
        return refusal(self.config, what, why, cure)

    def check_names(
        self, what: str, names: Iterable[str], allowed: Sequence[str], noun: str = "dim"
    ) -> None:
        """Refuses what ``what`` may not name."""
        for name in names:
            if name not in allowed:
                raise self.refusal(
                    f"{what}={name!r} is no {noun} that this may name",
                    f"the op's dims are {self.sizes}, of which {sorted(self.roles.k)} are reduced",
                    "choose one of " + ", ".join(allowed),
                )
