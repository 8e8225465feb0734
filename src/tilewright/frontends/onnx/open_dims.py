"""Sizes of a model's inputs that calls pass: dims that it calls by names, and those that it leaves
out."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from operator import add, floordiv, mul, sub
from typing import Any

import onnx

from tilewright.errors import ArgumentError, one_of
from tilewright.tensor.names import identifier, unused

_CALCULATED: dict[type, Callable[[int, int], int]] = {
    ast.Add: add,
    ast.Sub: sub,
    ast.Mult: mul,
    ast.FloorDiv: floordiv,
    ast.Div: floordiv,
}


class Dims:
    """The dims of some inputs of a model that calls pass. ``names`` are what their parameters are
    called, by the names that the model has for them. A name that is an expression of others (``past
    + length``) is no size of its own."""

    def __init__(self, inputs: Sequence[onnx.ValueInfoProto]) -> None:
        dims = [(_text(info, n), info) for info in inputs for n in range(len(_dims(info)))]
        texts = list(dict.fromkeys(text for text, _ in dims if text is not None))
        plain = dict.fromkeys((text for text in texts if text.isidentifier()), 2)
        taken = dict.fromkeys((identifier(info.name) for info in inputs), 2)
        self.names = {
            text: unused(_parameter(text), taken)
            for text in texts
            if text in plain or _calculated(text, plain) is None
        }

    def shape(self, info: onnx.ValueInfoProto, values: Mapping[str, int]) -> tuple[int, ...] | None:
        """The sizes of a value, where parameters have these ``values``; None where the model does
        not say them all."""
        if not info.type.tensor_type.HasField("shape"):
            return None
        numbers = {text: values[name] for text, name in self.names.items()}
        shape: list[int] = []
        for n, dim in enumerate(_dims(info)):
            text = _text(info, n)
            size = dim.dim_value if text is None else _calculated(text, numbers)
            if size is None:
                return None
            shape.append(size)
        return tuple(shape)


def checked_sizes(names: Sequence[str], sizes: Mapping[str, int]) -> None:
    """Raises `ArgumentError` for a size that is none of ``names``, or no number."""
    for name, size in sizes.items():
        if name not in names:
            raise ArgumentError(
                f"the model has no size {name!r}",
                where="sizes",
                cure=one_of(name, names) if names else "leave it out: all its sizes are numbers",
            )
        if isinstance(size, bool) or not isinstance(size, int) or size < 0:
            raise ArgumentError(
                f"the size {name!r} is {size!r}", where="sizes", cure="give a whole number"
            )


def cure_of(names: Sequence[str]) -> str:
    """What to do where these sizes have to be numbers."""
    left = ", ".join(f"{name!r}: ..." for name in names)
    return f"give sizes as numbers: from_onnx(model, sizes={{{left}}})"


def _parameter(text: str) -> str:
    """What the parameter of a size is called: as no dim of a compute is (``m``, ``batch``)."""
    name = identifier(text)
    return name if name.endswith("size") else f"{name}_size"


def _dims(info: onnx.ValueInfoProto) -> Any:
    return info.type.tensor_type.shape.dim


def _text(info: onnx.ValueInfoProto, n: int) -> str | None:
    """What the model calls a dim, or what it is called here where it has no name; None for a
    number."""
    dim = _dims(info)[n]
    return None if dim.HasField("dim_value") else dim.dim_param.strip() or f"{info.name}_{n}"


def _calculated(text: str, values: Mapping[str, int]) -> int | None:
    """A size that is said by a name or an expression of names; None where it is neither."""
    if text in values:
        return values[text]
    try:
        return _value(ast.parse(text, mode="eval").body, values)
    except (ArithmeticError, KeyError, SyntaxError, TypeError, ValueError):
        return None


def _value(node: ast.AST, values: Mapping[str, int]) -> int:
    if isinstance(node, ast.BinOp):
        return _CALCULATED[type(node.op)](_value(node.left, values), _value(node.right, values))
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.Name):
        return values[node.id]
    raise TypeError(node)
