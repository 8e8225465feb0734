"""Functions of Python that kernels call by their own names, and similar ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.dtypes import boolean, f32, s32
from tilewright.lang.builtin import Site, builtin, elementwise
from tilewright.lang.values import Array, Range, Vector, is_literal


@builtin
def range_(site: Site, start: Any, stop: Any = None, step: Any = 1) -> Range:
    """The numbers that a loop counts, as in Python: it stays a loop in the kernel."""
    return _range(site, start, stop, step, static=False)


@builtin
def static_range(site: Site, start: Any, stop: Any = None, step: Any = 1) -> Range:
    """As ``range``, with bounds that are known when the kernel is compiled: the loop is
    unrolled."""
    return _range(site, start, stop, step, static=True)


def _range(site: Site, start: Any, stop: Any, step: Any, static: bool) -> Range:
    if stop is None:
        start, stop = 0, start
    for bound in (start, stop, step):
        site.number(bound, "a bound")
        if not site.arithmetic.type_of(bound).is_integer:
            raise site.refuse(
                f"a range of {site.arithmetic.type_of(bound)}",
                site.arithmetic.why_typed(bound) or None,
                "count in integers: tw.s32(x)",
            )
        if static and not is_literal(bound):
            raise site.refuse(
                "a static_range of numbers that work-items compute",
                "its body is written out when the kernel is compiled",
                "write range",
            )
    if static and step == 0:
        raise site.refuse("a range in steps of 0", cure="give a step that is not 0")
    return Range(start, stop, step, static)


def _extreme(site: Site, op: str, values: tuple[Any, ...]) -> Any:
    if len(values) == 1 and isinstance(values[0], tuple):
        values = values[0]
    if not values:
        raise site.refuse(f"{op} of nothing", cure="give it numbers")
    extreme = site.number(values[0])
    for value in values[1:]:
        extreme = site.arithmetic.binary(op, extreme, site.number(value))
    return extreme


@elementwise
def min_(site: Site, *values: Any) -> Any:
    """The least of several numbers; NaN where one is."""
    return _extreme(site, "min", values)


@elementwise
def max_(site: Site, *values: Any) -> Any:
    """The greatest of several numbers; NaN where one is."""
    return _extreme(site, "max", values)


@elementwise
def abs_(site: Site, x: Any) -> Any:
    """The number without its sign."""
    return site.arithmetic.unary("abs", site.number(x))


@elementwise
def round_(site: Site, x: Any) -> Any:
    """The nearest whole number as a float of the same type, ties to even."""
    return site.arithmetic.function("round", site.number(x))


@elementwise
def pow_(site: Site, a: Any, b: Any) -> Any:
    """``a`` to the power of ``b``, of floats."""
    return site.arithmetic.binary("pow", site.number(a), site.number(b))


@builtin
def len_(site: Site, x: Any) -> Any:
    """The number of elements of a tuple or a vector; of an array, its size along the first dim."""
    if isinstance(x, Array):
        return x.sizes[0]
    if isinstance(x, Vector):
        return len(x.parts)
    if not isinstance(x, tuple | str):
        raise site.refuse("len of what has no length", cure="give a tuple, a vector or an array")
    return len(x)


@elementwise
def float_(site: Site, x: Any) -> Any:
    """The number as f32. For texts that Python takes, as in ``float("-inf")``, their number."""
    if isinstance(x, str):
        try:
            return float(x)
        except ValueError:
            raise site.refuse(f"float of {x!r}", cure='write float("inf"), or "nan"') from None
    site.number(x)
    return float(x) if is_literal(x) else site.arithmetic.convert(x, f32)


def _converting(name: str, dtype: Any, of_literal: Callable[[Any], Any], doc: str) -> None:
    def run(site: Site, x: Any) -> Any:
        site.number(x)
        return of_literal(x) if is_literal(x) else site.arithmetic.convert(x, dtype)

    run.__name__, run.__doc__ = name, doc
    elementwise(run)


_converting("int", s32, int, "The number as s32: floats go towards 0.")
_converting("bool", boolean, bool, "Whether the number is not 0.")


@builtin
def printf(site: Site, text: Any, *values: Any) -> None:
    """Prints ``text`` with the values in place of its ``{}``, as ``str.format`` does, when the
    launch is over: by work-items, in the order of their ids."""
    if not isinstance(text, str):
        raise site.refuse("tw.printf without a text", cure='write tw.printf("x is {}", x)')
    typed = [site.typed(value) for value in values]
    try:
        text.format(*(0.0 if value.type.is_float else 0 for value in typed))
    except (IndexError, KeyError, ValueError, AttributeError) as error:
        raise site.refuse(
            f"the text {text!r} for {len(typed)} values: {error}",
            cure="write {} for each value, with a format of its type: {:.3f} of a float",
        ) from None
    site.translation.messages.say(text, typed, site.emitter.span)


@builtin
def print_(site: Site, *values: Any) -> None:
    """Prints values, texts among them, with spaces between, as `printf` does."""
    words = [
        value.replace("{", "{{").replace("}", "}}") if isinstance(value, str) else "{}"
        for value in values
    ]
    typed = [site.typed(value) for value in values if not isinstance(value, str)]
    site.translation.messages.say(" ".join(words), typed, site.emitter.span)
