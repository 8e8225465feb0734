"""A graph's cut as an entry of the disk cache, and back: who compiles a graph again, in another
process, finds its steps there, and its kernels each in an entry of its own. A graph that is divided
(`preparing`) is an entry with the cuts of both parts."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from tilewright.dtypes import dtype as type_of
from tilewright.dtypes import s64
from tilewright.engine.disk_cache import content_key, open_disk_cache
from tilewright.engine.generator import generator_identity
from tilewright.engine.request import Request
from tilewright.errors import Span, TilewrightError
from tilewright.graph.cutting import Cut, cut_graph
from tilewright.graph.launches import Launch
from tilewright.graph.passes.pipeline import optimized
from tilewright.graph.predicting import Ahead, Deciding, chains_by
from tilewright.graph.preparing import prepare
from tilewright.graph.workers import Helpers
from tilewright.ir.buffer import Buffer, buffer
from tilewright.ir.parser import parse_kernel, parse_kernels
from tilewright.ir.printer import to_text
from tilewright.ir.stmt import Allocate, Block, Compute, Kernel, Opaque, Param
from tilewright.ir.verify import verify
from tilewright.ir.visit import walk_stmts
from tilewright.newest import Newest
from tilewright.recipes.users import registered_identity
from tilewright.runtime.steps import steps_as_json, steps_from_json
from tilewright.schedule.queries.place import fresh, sequence
from tilewright.targets.target import Target

_KIND = b"cut of a graph"
_SIZE = struct.Struct("<Q")
# What is kept in memory: entries, and bytes of one.
_LONGEST = 1 << 22
_memory: Newest[str, bytes] = Newest(32)
# What reading a damaged entry raises.
_UNFIT = (
    *(zlib.error, struct.error, TilewrightError),
    *(LookupError, TypeError, ValueError, AttributeError),
)


_Made = TypeVar("_Made")


@dataclass(frozen=True, eq=False)
class PreparedCut:
    """`preparing.Prepared`, with both parts cut."""

    cut: Cut
    constant: Mapping[str, str]
    before: Cut | None


def kept_cut(request: Request, target: Target, helpers: Helpers) -> Cut:
    """`cut_graph` of the graph of ``request`` after the passes over graphs for ``target``; from
    memory or disk, where they have it, and otherwise with ``helpers``. Of the graph itself, it has
    the parameters."""
    start = request.start()
    graph = start.kernel

    def make() -> Cut:
        helpers.begin(len(sequence(graph.body)))
        deciding = Deciding.on(target.machine, start.constant, _ahead(target, helpers))
        return cut_graph(optimized(graph, deciding=deciding), chains_by(deciding), deciding)

    return _kept(
        f"{_decided_by(target)} {request.identity}",
        make,
        lambda cut: _written(cut, graph),
        lambda data: _read(data, graph),
    )


def kept_prepared(
    graph: Kernel, constant: Collection[str], target: Target, helpers: Helpers
) -> PreparedCut:
    """`prepare` of ``graph`` for ``target``, with both parts cut as `kept_cut` does; from memory or
    disk, where they have it, and otherwise with ``helpers``."""

    def make() -> PreparedCut:
        helpers.begin(len(sequence(graph.body)))
        prepared = prepare(graph, constant, Deciding.on(target.machine, constant))
        first = None if prepared.before is None else cut_graph(optimized(prepared.before))
        deciding = Deciding.on(target.machine, prepared.constant, _ahead(target, helpers))
        kernel = optimized(prepared.kernel, deciding=deciding)
        rest = cut_graph(kernel, chains_by(deciding), deciding)
        return PreparedCut(rest, prepared.constant, first)

    return _kept(
        f"{_decided_by(target)} prepared {json.dumps(sorted(constant))} {to_text(graph)}",
        make,
        lambda cut: _written_prepared(cut, graph),
        lambda data: _read_prepared(data, graph, constant),
    )


def _ahead(target: Target, helpers: Helpers) -> Ahead:
    """Predicts times with ``helpers``."""
    return lambda tasks: helpers.predict(tasks, target.machine, target.name)


def _decided_by(target: Target) -> str:
    """What passes decide by: kernels that are predicted to take the least time."""
    return f"{target.identity} {target.machine.costs!r} {registered_identity()}"


def _kept(
    identity: str,
    make: Callable[[], _Made],
    write: Callable[[_Made], bytes],
    read: Callable[[bytes], _Made | None],
) -> _Made:
    """What memory or disk have for ``identity``, or what ``make`` makes, which they have then."""
    key = content_key(_KIND, generator_identity().encode(), identity.encode())
    cache = open_disk_cache()
    data = _memory.get(key)
    if data is None:
        entry = cache.get(key)
        data = None if entry is None else entry.payload
    value = None if data is None else read(data)
    if value is None:
        value = make()
        data = write(value)
        cache.put(key, data, {})
    assert data is not None
    if len(data) <= _LONGEST:
        _memory[key] = data
    return value


def forget_cuts() -> None:
    """Drops the cuts that are kept in memory."""
    _memory.clear()


def _written_prepared(prepared: PreparedCut, original: Kernel) -> bytes:
    """A line of JSON, then the cuts."""
    cuts = [_written(cut, original) for cut in (prepared.cut, prepared.before) if cut is not None]
    head = json.dumps({"constant": dict(prepared.constant), "sizes": [*map(len, cuts)]}).encode()
    return b"".join([_SIZE.pack(len(head)), head, *cuts])


def _read_prepared(
    payload: bytes, original: Kernel, constant: Collection[str]
) -> PreparedCut | None:
    """The cuts; None for an entry that does not fit ``original``."""
    try:
        (size,) = _SIZE.unpack_from(payload)
        start = _SIZE.size + size
        head = json.loads(payload[_SIZE.size : start])
        cuts: list[Cut] = []
        for length in head["sizes"]:
            cuts.append(_cut(payload[start : start + length], original))
            start += length
        cut, before = cuts[0], cuts[1] if len(cuts) > 1 else None
        prepared = PreparedCut(cut, dict(head["constant"]), before)
        return prepared if _fits(prepared, original, constant) else None
    except _UNFIT:
        return None


def _fits(prepared: PreparedCut, original: Kernel, constant: Collection[str]) -> bool:
    """Whether both parts take what there is, and give the results of ``original``."""
    arguments, results = _forms(original.arrays)
    fixed = {name: form for name, form in arguments.items() if name in constant}
    if prepared.before is not None:
        taken, outputs = _forms(prepared.before.graph.arrays)
        if not taken.items() <= fixed.items():
            return False
        fixed |= {name: form.removeprefix("out ") for name, form in outputs.items()}
    taken, outputs = _forms(prepared.cut.graph.arrays)
    if not prepared.constant.keys() <= taken.keys():
        return False
    rest = {name: form for name, form in taken.items() if name not in prepared.constant}
    unchanged = all(taken[name] == fixed.get(source) for name, source in prepared.constant.items())
    return unchanged and rest.items() <= arguments.items() and outputs == results


def _forms(params: Sequence[Param]) -> tuple[dict[str, str], dict[str, str]]:
    """Of arguments and of results by name: their types, shapes and layouts; of results the access,
    too."""
    forms: tuple[dict[str, str], dict[str, str]] = ({}, {})
    for param in params:
        if param.digest is None:
            form = repr(replace(param.buffer, name="x"))
            result = param.access != "in"
            forms[result][param.name] = f"{param.access} {form}" if result else form
    return forms


def _written(cut: Cut, original: Kernel) -> bytes:
    """``cut``, of what passes made of ``original``, with the constants that are new: a line of
    JSON, compressed, then their contents."""
    data = _data(cut)
    data["kernels"] = "\n".join(map(to_text, cut.kernels))
    params = replace(cut.graph, body=Block((Allocate(_anything(cut.graph)),)), constants={})
    data["graph"] = to_text(params)
    new = {
        digest: array
        for digest, array in cut.graph.constants.items()
        if digest not in original.constants
    }
    data["constants"] = [[digest, array.dtype.name, len(array)] for digest, array in new.items()]
    head = zlib.compress(json.dumps(data).encode(), 1)
    return b"".join([_SIZE.pack(len(head)), head, *(array.tobytes() for array in new.values())])


def _anything(graph: Kernel) -> Buffer:
    """A buffer whose name is no parameter's: a kernel has a statement."""
    return buffer(fresh("nothing", {param.name for param in graph.params}), s64, (1,))


def _read(payload: bytes, original: Kernel) -> Cut | None:
    """The cut; None for an entry that does not fit ``original``."""
    try:
        cut = _cut(payload, original)
    except _UNFIT:
        return None
    return cut if _passed(cut.graph) == _passed(original) else None


def _cut(payload: bytes, original: Kernel) -> Cut:
    """The cut. Raises one of ``_UNFIT`` where the entry is none."""
    (size,) = _SIZE.unpack_from(payload)
    data = json.loads(zlib.decompress(payload[_SIZE.size : _SIZE.size + size]))
    kernels = parse_kernels(data["kernels"])
    for kernel in kernels:
        verify(kernel)
    constants = dict(original.constants)
    start = _SIZE.size + size
    for digest, name, count in data["constants"]:
        constants[digest] = np.frombuffer(payload, type_of(name).numpy, count, start)
        start += constants[digest].nbytes
    graph = parse_kernel(data["graph"])
    used = {param.digest for param in graph.arrays}
    graph = replace(graph, constants={d: array for d, array in constants.items() if d in used})
    return _from_data(data, graph, kernels, dict(_spans(original)))


def _passed(graph: Kernel) -> list[str]:
    """What calls pass."""
    return [f"{p.access} {p.buffer!r}" for p in graph.arrays if p.digest is None]


def _data(cut: Cut) -> dict[str, Any]:
    """All of ``cut`` but its kernels, as JSON holds it: buffers are numbers."""
    numbers = {buffer: n for n, buffer in enumerate(_buffers(cut.graph, cut.between))}
    # Those of different blocks may have one name.
    named = [replace(buffer, name=f"b{n}") for n, buffer in enumerate(cut.between)]
    holder = Kernel("buffers", (), Block(tuple(map(Allocate, named))))

    def launch(step: Launch) -> dict[str, Any]:
        buffers = [numbers[buffer] for buffer in step.buffers]
        return {"kernel": step.kernel, "buffers": buffers, "computes": list(step.computes)}

    return {
        "names": [buffer.name for buffer in cut.between],
        "between": to_text(holder) if named else "",
        "steps": steps_as_json(cut.steps, launch, numbers.__getitem__),
        "loops": [sorted(map(numbers.__getitem__, inside)) for inside in cut.loops],
    }


def _from_data(
    data: Mapping[str, Any],
    graph: Kernel,
    kernels: Sequence[Kernel],
    spans: Mapping[str, Span],
) -> Cut:
    allocated: list[Buffer] = []
    if data["between"]:
        held = parse_kernel(data["between"]).body
        unnamed = [stmt.buffer for stmt in walk_stmts(held) if isinstance(stmt, Allocate)]
        allocated += [
            replace(buffer, name=name) for buffer, name in zip(unnamed, data["names"], strict=True)
        ]
    buffers = _buffers(graph, allocated)
    steps = steps_from_json(
        data["steps"], lambda held: _launch(held, buffers, kernels, spans), buffers.__getitem__
    )
    loops = tuple(frozenset(map(buffers.__getitem__, inside)) for inside in data["loops"])
    return Cut(graph, tuple(kernels), steps, tuple(allocated), loops)


def _launch(
    data: Mapping[str, Any],
    buffers: Sequence[Buffer],
    kernels: Sequence[Kernel],
    spans: Mapping[str, Span],
) -> Launch:
    """The launch of JSON. Raises `LookupError` or `ValueError` for what is none."""
    number, passed = data["kernel"], tuple(buffers[number] for number in data["buffers"])
    params = [param.buffer for param in kernels[number].arrays]
    for one, other in zip(passed, params, strict=True):
        if (one.dtype, one.sizes, one.bytes) != (other.dtype, other.sizes, other.bytes):
            raise ValueError("another buffer")
    computes = tuple(data["computes"])
    span = next((spans[name] for name in computes if name in spans), None)
    return Launch(number, passed, computes, span)


def _buffers(graph: Kernel, between: Sequence[Buffer]) -> list[Buffer]:
    return [*(param.buffer for param in graph.arrays), *between]


def _spans(graph: Kernel) -> Iterator[tuple[str, Span]]:
    for stmt in walk_stmts(graph.body):
        if isinstance(stmt, Compute | Opaque) and stmt.span is not None:
            yield stmt.name, stmt.span
