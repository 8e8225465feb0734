"""An op's kernel for symbolic sizes, derived from its kernels at some sizes: if these differ only
in numbers, and the numbers are sums of products of sizes, such sums replace them.
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

# The upper bound of sizes that such a kernel promises.
GREATEST = 4096
# Two values of each size: primes, as other numbers in kernels are hardly primes.
_PROBES = ((101, 211), (103, 223), (107, 227), (109, 229))
# Another value of each, to check the result.
_CHECKED = (131, 137, 139, 149)
_NUMBER = re.compile(r"(?<![\w.])\d+(?:\.0)?(?![\w.])")
_DIM = re.compile(r"D(\d+)")

# A sum of products of sizes: the factor of each set of sizes.
_Sum = dict[frozenset[str], Fraction]


def resized(problem: Problem, name: str, size: int) -> Problem:
    """``problem`` with another ``size``: MB is the minibatch, D0 and so on are dims of its shapes
    (except those of size 1), and other names are the problem's own (M, N, K, IC, OC).

    Raises `ProblemError` for a name that the problem does not have.
    """
    data: Any = problem  # a dataclass, with the fields of its kind of problem
    values = {field.name: getattr(problem, field.name) for field in fields(data)}
    if name.isupper() and type(values.get(name.lower())) is int:
        return cast(Problem, replace(data, **{name.lower(): size}))
    if name == "MB":
        return problem.with_mb(size)
    match = _DIM.fullmatch(name)
    position = int(match[1]) if match else -1
    # A problem with a shape has other tuples that are no shapes: orders, amounts and so on.
    lists = {"shape": values["shape"]} if "shape" in values else values
    shapes = {
        key: (*shape[:position], size, *shape[position + 1 :])
        for key, shape in lists.items()
        if match and _is_shape(shape) and position < len(shape) and shape[position] != 1
    }
    if not shapes:
        names = [key.upper() for key, value in values.items() if type(value) is int]
        ranks = [len(shape) for shape in lists.values() if _is_shape(shape)]
        names += [f"D{n}" for n in range(max(ranks, default=0))]
        raise ProblemError(
            f"{problem.driver} has no size {name}",
            where="--symbolic",
            cure="choose from " + ", ".join(["MB", *names]) + ", but no dim of 1",
        )
    return cast(Problem, replace(data, **shapes))


def _is_shape(value: object) -> bool:
    return isinstance(value, tuple) and bool(value) and all(type(size) is int for size in value)


def symbolic_kernel(
    kernel_at: Callable[[Mapping[str, int]], Kernel], names: Sequence[str]
) -> Kernel:
    """The kernel with parameters ``names`` for sizes; ``kernel_at`` gives the kernel for numbers.

    Raises `ProblemError` for too many names, and `UnsupportedError` where more than numbers depends
    on sizes, or numbers are no sums of products of sizes.
    """
    if len(names) > len(_PROBES) or len(set(names)) != len(names):
        raise ProblemError(
            "too many sizes" if len(names) > len(_PROBES) else "a size is named twice",
            where="--symbolic",
            cure=f"name up to {len(_PROBES)}, each once",
        )
    probes = _PROBES[: len(names)]
    corners = list(itertools.product(*probes))
    texts = [to_text(kernel_at(dict(zip(names, corner, strict=True)))) for corner in corners]
    _check_form(texts, names)
    numbers = [_NUMBER.findall(text) for text in texts]
    sums = [_fitted([n[i] for n in numbers], names, probes) for i in range(len(numbers[0]))]
    replacements = iter(zip(sums, numbers[0], strict=True))
    text = _NUMBER.sub(lambda _: _written(*next(replacements)), texts[0])
    at = dict(zip(names, _CHECKED, strict=False))
    expected = to_text(kernel_at(at))
    _check_form([texts[0], expected], names)
    for sum_, number in zip(sums, _NUMBER.findall(expected), strict=True):
        whole = all(factor.denominator == 1 for factor in sum_.values())
        if not whole or _value(sum_, at) != Fraction(number):
            raise _refusal(names, f"one is {number} where sizes are {at}")
    sizes = "".join(f"{name}: s64 in 1..{GREATEST}, " for name in names)
    try:
        return parse_kernel(_in_memory(text.replace("(", "(" + sizes, 1), names))
    except ParseError as error:
        raise _refusal(names, f"a constant number depends on them: {error.what}") from error


def _refusal(names: Sequence[str], why: str) -> UnsupportedError:
    return UnsupportedError(
        f"{', '.join(names)} cannot be sizes that calls pass",
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
    """The sum of products that equals each of ``numbers`` at its corner."""
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


def _value(sum_: _Sum, at: Mapping[str, int]) -> Fraction:
    total = Fraction(0)
    for key, factor in sum_.items():
        for name in key:
            factor = factor * at[name]
        total += factor
    return total


def _written(sum_: _Sum, number: str) -> str:
    """``sum_`` in the language of kernels; ``number`` itself if it depends on no size."""
    if not any(sum_):
        return number
    terms = [
        " * ".join([*([str(factor)] if factor != 1 or not key else []), *sorted(key)])
        for key, factor in sorted(sum_.items(), key=lambda pair: (-len(pair[0]), sorted(pair[0])))
    ]
    text = terms[0] if len(terms) == 1 and " " not in terms[0] else f"({' + '.join(terms)})"
    return f"f32{text if text[0] == '(' else f'({text})'}" if "." in number else text


def _in_memory(text: str, names: Sequence[str]) -> str:
    """``text`` with buffers of symbolic sizes in memory, instead of registers."""
    sized = re.compile(rf"\b({'|'.join(names)})\b")
    return "\n".join(
        line.removesuffix(" private") if sized.search(line) else line for line in text.split("\n")
    )
