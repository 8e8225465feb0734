"""Gathers, scatters, and slices at places that are computed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.dtypes import s64
from tilewright.errors import ProblemError
from tilewright.frontends.stablehlo.attributes import Record
from tilewright.frontends.stablehlo.regions import (
    arrays_of,
    combiner_of,
    named_combiner,
    parts_of,
    region_of,
    replaces,
)
from tilewright.frontends.stablehlo.syntax import Operation
from tilewright.frontends.stablehlo.translation import (
    Translation,
    arrays,
    flag,
    integer,
    integers,
    wrong,
)
from tilewright.frontends.stablehlo.values import Array, Value
from tilewright.frontends.stablehlo.view_operations import sizes_of
from tilewright.ir.expr import cast
from tilewright.problems.functions import clamped
from tilewright.tensor import indexing
from tilewright.tensor.indexing import Windows
from tilewright.tensor.places import axes
from tilewright.tensor.reductions import Combine


def _fields(o: Operation, name: str, kind: str, names: Sequence[str]) -> Mapping[str, Any]:
    record = o.attributes.get(name)
    if not isinstance(record, Record) or record.name != kind:
        raise wrong(o, name, f"#stablehlo.{kind}<...>")
    unknown = sorted(set(record.fields) - set(names))
    if unknown:
        raise wrong(o, name, f"made of {', '.join(names)} (not {unknown[0]})")
    values = {}
    for field in names:
        value = record.fields.get(field, 0 if field == "index_vector_dim" else [])
        if field == "index_vector_dim":
            fits = isinstance(value, int)
        else:
            fits = isinstance(value, list) and all(isinstance(n, int) for n in value)
        if not fits:
            raise wrong(o, name, "made of lists of dims")
        values[field] = value
    return values


_GATHER = (
    "offset_dims",
    "collapsed_slice_dims",
    "operand_batching_dims",
    "start_indices_batching_dims",
    "start_index_map",
    "index_vector_dim",
)
_SCATTER = (
    "update_window_dims",
    "inserted_window_dims",
    "input_batching_dims",
    "scatter_indices_batching_dims",
    "scatter_dims_to_operand_dims",
    "index_vector_dim",
)


def _windows(fields: Mapping[str, Any], names: Sequence[str]) -> Windows:
    window, collapsed, batching, index_batching, addressed, vector = (fields[n] for n in names)
    return Windows(
        tuple(window),
        tuple(collapsed),
        tuple(addressed),
        vector,
        tuple(batching),
        tuple(index_batching),
    )


def _gather(t: Translation, o: Operation, operands: Sequence[Value]) -> list[Array]:
    sources = arrays(o, operands)
    if len(sources) not in (2, 3):
        raise ProblemError(f"{o.name} takes a tensor and indices", where=o.span, cure="give both")
    fields = _fields(o, "dimension_numbers", "gather", _GATHER)
    sizes = sizes_of(t, o, sources[2]) if len(sources) == 3 else integers(o, "slice_sizes")
    windows = _windows(fields, _GATHER)
    parts = tuple(
        indexing.gather(part, sources[1].parts[0], windows, sizes) for part in sources[0].parts
    )
    return [Array(sources[0].element, parts)]


def _scatter(t: Translation, o: Operation, operands: Sequence[Value]) -> list[Array]:
    sources = arrays(o, operands)
    count = (len(sources) - 1) // 2
    if count < 1 or len(sources) != 2 * count + 1:
        raise ProblemError(
            f"{o.name} takes tensors, indices, and as many updates",
            where=o.span,
            cure="give an odd number of operands",
        )
    tensors, indices, updates = sources[:count], sources[count], sources[count + 1 :]
    elements = [tensor.element for tensor in tensors]
    windows = _windows(_fields(o, "scatter_dimension_numbers", "scatter", _SCATTER), _SCATTER)
    region = region_of(o, takes=2 * count)
    combiner: str | Combine | None = None
    if count == 1:
        combiner = named_combiner(region, elements[0])
    if combiner is None and not (count == 1 and replaces(region)):
        combiner = combiner_of(t, region, elements)
    results = indexing.scatter(
        parts_of(tensors),
        indices.parts[0],
        parts_of(updates),
        windows,
        combiner,
        unique=flag(o, "unique_indices"),
    )
    return arrays_of(results, elements)


def _dynamic_slice(t: Translation, o: Operation, operands: Sequence[Value]) -> list[Array]:
    sources = arrays(o, operands)
    starts = [array.parts[0] for array in sources[1:]]
    sizes = integers(o, "slice_sizes")
    contents = sources[0].known
    firsts = [array.known for array in sources[1:]]
    if contents is not None and len(sizes) == len(firsts) == contents.ndim:
        places = [
            min(max(int(first), 0), whole - size)
            for first, size, whole in zip(firsts, sizes, contents.shape, strict=True)
            if first is not None and first.ndim == 0 and 0 <= size <= whole
        ]
        if len(places) == len(sizes):
            cut = tuple(slice(a, a + size) for a, size in zip(places, sizes, strict=True))
            return [t.constant_of(contents[cut], sources[0].element)]
    parts = tuple(indexing.dynamic_slice(part, starts, sizes) for part in sources[0].parts)
    return [Array(sources[0].element, parts)]


def _dynamic_update_slice(t: Translation, o: Operation, operands: Sequence[Value]) -> list[Array]:
    sources = arrays(o, operands)
    if len(sources) < 2 or sources[0].element != sources[1].element:
        raise ProblemError(
            f"{o.name} takes a tensor, an update of its element type, and where it begins",
            where=o.span,
            cure="give all of them",
        )
    starts = [array.parts[0] for array in sources[2:]]
    parts = tuple(
        indexing.dynamic_update_slice(part, update, starts)
        for part, update in zip(sources[0].parts, sources[1].parts, strict=True)
    )
    return [Array(sources[0].element, parts)]


def _index_select(t: Translation, o: Operation, operands: Sequence[Value]) -> list[Array]:
    """Elements along one dim whose places are data; the first ``batch_dims`` dims are those of the
    places, too."""
    array, indices = arrays(o, operands, 2)
    dim, batch = integer(o, "dim"), integer(o, "batch_dims", 0)
    if not 0 <= batch <= min(indices.rank, dim) or not dim < array.rank:
        raise wrong(o, "dim", f"a dim of {array.type}, behind {batch} that both have")
    chosen = indices.shape[batch:]
    shape = (*array.shape[:dim], *chosen, *array.shape[dim + 1 :])
    places = axes(len(shape))
    behind = dim + len(chosen)
    place = cast(s64, indices.parts[0].at(*places[:batch], *places[dim:behind]))
    within = clamped(place, 0, max(0, array.shape[dim] - 1))
    index = (*places[:dim], within, *places[behind:])
    parts = tuple(indexing.taken(part, shape, index) for part in array.parts)
    return [Array(array.element, parts)]


HANDLERS = {
    "stablehlo.dynamic_gather": _gather,
    "stablehlo.dynamic_slice": _dynamic_slice,
    "stablehlo.dynamic_update_slice": _dynamic_update_slice,
    "stablehlo.gather": _gather,
    "stablehlo.scatter": _scatter,
    "stablehlo.torch_index_select": _index_select,
}
