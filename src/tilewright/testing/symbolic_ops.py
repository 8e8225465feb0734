"""An op's kernel for sizes that calls pass, from its kernels for some: where these differ in
numbers alone, and the numbers are sums of products of sizes, these stand in their place.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from fractions import Fraction
from typing import Any, cast

from tilewright.errors import ParseError, ProblemError, UnsupportedError
from tilewright.ir.parser import parse_kernel
from tilewright.ir.printer import to_text
from tilewright.ir.stmt import Kernel
from tilewright.problems import Problem

# The greatest size that such a kernel promises to be called with.
GREATEST = 4096
# Two lengths of each size: primes, which numbers of other meaning hardly are.
_PROBES = ((101, 211), (103, 223), (107, 227), (109, 229))
# And one more, at which what was found has to hold.
_CHECKED = (131, 137, 139, 149)
_NUMBER = re.compile(r"(?<![\w.])\d+(?:\.0)?(?![\w.])")
_DIM = re.compile(r"D(\d+)")

# A sum of products of sizes: what each set of sizes is multiplied by.
_Sum = dict[frozenset[str], Fraction]


def resized(problem: Problem, name: str, size: int) -> Problem:
    """``problem`` with another ``size``: MB is the minibatch, D0 and so on are dims of its shapes,
    those of 1 excepted, and anything else is what the problem itself calls so (M, N, K, IC, OC).

    Raises `ProblemError` for a name that says nothing here.
    """
    data: Any = problem  # each kind of problem is a dataclass, of other fields
    own = {each.name: getattr(problem, each.name) for each in fields(data)}
    if name.isupper() and type(own.get(name.lower())) is int:
        return cast(Problem, replace(data, **{name.lower(): size}))
    if name == "MB":
        return problem.with_mb(size)
    found = _DIM.fullmatch(name)
    position = int(found[1]) if found else -1
    # Beside a problem's shape, its other lists are orders, amounts and the like.
    lists = {"shape": own["shape"]} if "shape" in own else own
    shapes = {
        key: (*shape[:position], size, *shape[position + 1 :])
        for key, shape in lists.items()
        if found and _is_shape(shape) and position < len(shape) and shape[position] != 1
    }
    if not shapes:
        names = [key.upper() for key, value in own.items() if type(value) is int]
        ranks = [len(shape) for shape in lists.values() if _is_shape(shape)]
        names += [f"D{n}" for n in range(max(ranks, default=0))]
        raise ProblemError(
            f"{problem.driver} has no size {name}",
            where="--symbolic",
            cure="choose from " + ", ".join(["MB", *names]) + ", but no dim of 1",
        )
    return cast(Problem, replace(data, **shapes))


def _is_shape(value: object) -> bool:
    return isinstance(value, tuple) and bool(value) and all(type(each) is int for each in value)


def symbolic_kernel(
    kernel_at: Callable[[Mapping[str, int]], Kernel], names: Sequence[str]
) -> Kernel:
    """The kernel whose parameters ``names`` are sizes, where ``kernel_at`` gives it for numbers.

    Raises `ProblemError` for too many names, and `UnsupportedError` where sizes decide more than
    numbers that are sums of products of them.
    """
    if len(names) > len(_PROBES) or len(set(names)) != len(names):
        raise ProblemError(
            "too many sizes" if len(names) > len(_PROBES) else "a size is named twice",
            where="--symbolic",
            cure=f"name up to {len(_PROBES)}, each once",
        )
    probes = _PROBES[: len(names)]
    corners = list(itertools.product(*probes))
    texts = [to_text(kernel_at(dict(zip(names, each, strict=True)))) for each in corners]
    _check_form(texts, names)
    numbers = [_NUMBER.findall(text) for text in texts]
    found = [_fitted([n[i] for n in numbers], names, probes) for i in range(len(numbers[0]))]
    known = iter(zip(found, numbers[0], strict=True))
    text = _NUMBER.sub(lambda _: _written(*next(known)), texts[0])
    at = dict(zip(names, _CHECKED, strict=False))
    wanted = to_text(kernel_at(at))
    _check_form([texts[0], wanted], names)
    for each, number in zip(found, _NUMBER.findall(wanted), strict=True):
        whole = all(factor.denominator == 1 for factor in each.values())
        if not whole or _value(each, at) != Fraction(number):
            raise _refusal(names, f"one is {number} where sizes are {at}")
    sizes = "".join(f"{name}: s64 in 1..{GREATEST}, " for name in names)
    try:
        return parse_kernel(_in_memory(text.replace("(", "(" + sizes, 1), names))
    except ParseError as error:
        raise _refusal(names, f"there, a number is no size: {error.what}") from error


def _refusal(names: Sequence[str], why: str) -> UnsupportedError:
    return UnsupportedError(
        f"{', '.join(names)} cannot be what a call passes",
        where="--symbolic",
        why=f"the kernel's numbers are no sums of products of them: {why}",
        cure="name other sizes",
    )


def _check_form(texts: Sequence[str], names: Sequence[str]) -> None:
    forms = {_NUMBER.sub("#", text) for text in texts}
    if len(forms) > 1:
        raise _refusal(names, "it has other statements for other sizes")


def _fitted(
    numbers: Sequence[str], names: Sequence[str], probes: Sequence[tuple[int, int]]
) -> _Sum:
    """The sum of products that is each of ``numbers`` at its corner."""
    if not names:
        return {frozenset(): Fraction(numbers[0])}
    half = len(numbers) // 2
    low, high = probes[0]
    first = _fitted(numbers[:half], names[1:], probes[1:])
    second = _fitted(numbers[half:], names[1:], probes[1:])
    result: _Sum = {}
    for key in {*first, *second}:
        slope = (second.get(key, Fraction(0)) - first.get(key, Fraction(0))) / (high - low)
        result[key] = first.get(key, Fraction(0)) - slope * low
        result[key | {names[0]}] = slope
    return {key: value for key, value in result.items() if value}


def _value(found: _Sum, at: Mapping[str, int]) -> Fraction:
    total = Fraction(0)
    for key, factor in found.items():
        for name in key:
            factor = factor * at[name]
        total += factor
    return total


def _written(found: _Sum, number: str) -> str:
    """``found`` in the language of kernels; ``number`` as it was where it depends on no size."""
    if not any(found):
        return number
    terms = [
        " * ".join([*([str(factor)] if factor != 1 or not key else []), *sorted(key)])
        for key, factor in sorted(found.items(), key=lambda pair: (-len(pair[0]), sorted(pair[0])))
    ]
    text = terms[0] if len(terms) == 1 and " " not in terms[0] else f"({' + '.join(terms)})"
    return f"f32{text if text[0] == '(' else f'({text})'}" if "." in number else text


def _in_memory(text: str, names: Sequence[str]) -> str:
    """``text`` with buffers of sizes that calls pass in memory, where they have to be."""
    sized = re.compile(rf"\b({'|'.join(names)})\b")
    return "\n".join(
        line.removesuffix(" private") if sized.search(line) else line for line in text.split("\n")
    )
