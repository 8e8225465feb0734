"""The arguments of one specialization: parameters of the IR, and the values of their names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tilewright.dtypes import DType, s64
from tilewright.ir.buffer import Layout, Size, buffer, part, product
from tilewright.ir.expr import Expr, Var, var
from tilewright.ir.stmt import Param, ScalarParam
from tilewright.lang.annotations import ArrayType, Constant
from tilewright.lang.identities import MOST
from tilewright.lang.places import Place
from tilewright.lang.specialization import Specialization
from tilewright.lang.translation import Translation
from tilewright.lang.tunables import Tunable
from tilewright.lang.values import Array

_MOST_SIZE_WIDE = 2**40


class SizeOfArrays(NamedTuple):
    """A number that is the size of arrays, too: of ``dtype``, and a symbol of s64."""

    dtype: DType
    symbol: Var


class Arguments(NamedTuple):
    """The annotations of a kernel: of the ``parameters`` that launches pass, and of all; and the
    defaults of the others, by name."""

    parameters: Mapping[str, Any]
    annotations: Mapping[str, Any]
    defaults: Mapping[str, Tunable]

    def of(
        self, translation: Translation, choice: Specialization
    ) -> tuple[list[Param | ScalarParam], dict[str, Any]]:
        """The parameters in the IR, and the values of their names."""
        types, constants = dict(choice.types), dict(choice.constants)
        tunables, places = dict(choice.tunables), dict(choice.places)
        constants |= {name: tunables[default.name] for name, default in self.defaults.items()}
        arrays = _Arrays(translation, types)
        sizes = arrays.sizes
        named = {
            size
            for a in self.parameters.values()
            if isinstance(a, ArrayType)
            for size in a.shape
            if isinstance(size, str)
        }
        params: list[Param | ScalarParam] = []
        values: dict[str, Any] = {}
        for name, annotation in self.annotations.items():
            if isinstance(annotation, Constant):
                values[name] = constants[name]
            elif isinstance(annotation, ArrayType):
                place = places.get(name, Place())
                if place.same:
                    values[name] = values[place.same]
                    continue
                names = [name, *(other for other, value in places.items() if value.same == name)]
                shapes = [self.annotations[name].shape for name in names]
                values[name] = arrays.one(name, annotation.dtype, _merged(shapes), place)
                params.append(Param(values[name].buffer, "in"))
            else:
                dtype = annotation if isinstance(annotation, DType) else types[annotation.name]
                if name in named:
                    sizes.setdefault(name, _size(name, choice.shape.wide))
                    symbol = sizes[name].var
                    values[name] = symbol if dtype is s64 else SizeOfArrays(dtype, symbol)
                else:
                    params.append(ScalarParam(var(name, dtype)))
                    values[name] = var(name, dtype)
        return [*sizes.values(), *arrays.gaps, *params], values


class _Arrays:
    """Makes the arrays; ``sizes`` and ``gaps`` are the numbers that they depend on."""

    def __init__(self, translation: Translation, types: Mapping[str, DType]) -> None:
        self._translation, self._types = translation, types
        self.sizes: dict[str, ScalarParam] = {}
        self.gaps: list[ScalarParam] = []

    def one(
        self,
        name: str,
        dtype: DType | str,
        shape: Sequence[int | str | None],
        place: Place,
    ) -> Array:
        """The array of the parameter ``name``."""
        element = self._types[dtype] if isinstance(dtype, str) else dtype
        extents: list[Expr | int] = []
        for dim, size in enumerate(shape):
            if isinstance(size, int):
                extents.append(size)
                continue
            symbol = size if size is not None else self._fresh(f"{name}_{dim}")
            extents.append(self._sized(symbol).var)
        layout = self._layout(name, extents, place) if place.order else None
        return Array(buffer(name, element, extents, layout), tuple(extents), parameter=True)

    def _layout(self, name: str, extents: Sequence[Expr | int], place: Place) -> Layout:
        inside: Size = 1
        strides: list[Size] = [0] * len(extents)
        for dim in place.order:
            strides[dim] = inside if dim not in place.gaps else inside + self._gap(name, dim)
            inside = product(strides[dim], extents[dim])
        return Layout(tuple(part(dim, extents[dim], step) for dim, step in enumerate(strides)))

    def _sized(self, symbol: str) -> ScalarParam:
        return self.sizes.setdefault(symbol, _size(symbol, self._translation.shape.wide))

    def _gap(self, array: str, dim: int) -> Expr:
        name = self._fresh(f"{array}_gap_{dim}")
        self._translation.gaps.append((array, dim, name))
        self.gaps.append(ScalarParam(var(name, s64), 0, _MOST_SIZE_WIDE))
        return self.gaps[-1].var

    def _fresh(self, name: str) -> str:
        return self._translation.emitter.fresh(name)


def _merged(shapes: Sequence[tuple[int | str | None, ...]]) -> list[int | str | None]:
    """What the annotations of one array say about each dim: a number, else a name."""
    merged: list[int | str | None] = []
    for sizes in zip(*shapes, strict=True):
        said = sorted(
            (size for size in sizes if size is not None), key=lambda size: isinstance(size, str)
        )
        merged.append(said[0] if said else None)
    return merged


def _size(name: str, wide: bool) -> ScalarParam:
    return ScalarParam(var(name, s64), 0, _MOST_SIZE_WIDE if wide else MOST)
