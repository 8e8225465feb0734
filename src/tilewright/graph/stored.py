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
from tilewright.errors import Span, TilewrightError
from tilewright.graph.cutting import Cut, Launch, cut_graph
from tilewright.graph.passes.pipeline import optimized
from tilewright.graph.preparing import prepare
from tilewright.ir.buffer import Buffer, buffer
from tilewright.ir.parser import parse_kernel, parse_kernels
from tilewright.ir.printer import to_text
from tilewright.ir.stmt import Allocate, Block, Compute, Kernel, Opaque, Param
from tilewright.ir.verify import verify
from tilewright.ir.visit import walk_stmts
from tilewright.newest import Newest
from tilewright.runtime.steps import steps_as_json, steps_from_json
from tilewright.schedule.queries.place import fresh

_KIND = b"cut of a graph"
_SIZE = struct.Struct("<Q")
# What is kept in memory: entries, and bytes of one.
_LONGEST = 1 << 22
_memory: Newest[str, bytes] = Newest(32)
# What comes of reading an entry that somebody damaged.
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


def kept_cut(graph: Kernel, identity: str) -> Cut:
    """`cut_graph` of ``graph`` behind the passes over graphs, of which ``identity`` says all; from
    memory or disk, where they have it. Of the graph itself, it has the parameters."""
    return _kept(
        identity,
        lambda: cut_graph(optimized(graph)),
        lambda found: _written(found, graph),
        lambda data: _read(data, graph),
    )


def kept_prepared(graph: Kernel, constant: Collection[str]) -> PreparedCut:
    """`prepare` of ``graph``, with both parts cut as `kept_cut` does; from memory or disk, where
    they have it."""

    def made() -> PreparedCut:
        found = prepare(graph, constant)
        first = None if found.before is None else cut_graph(optimized(found.before))
        return PreparedCut(cut_graph(optimized(found.kernel)), found.constant, first)

    return _kept(
        f"prepared {json.dumps(sorted(constant))} {to_text(graph)}",
        made,
        lambda found: _written_prepared(found, graph),
        lambda data: _read_prepared(data, graph, constant),
    )


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
    found = None if data is None else read(data)
    if found is None:
        found = make()
        data = write(found)
        cache.put(key, data, {})
    assert data is not None
    if len(data) <= _LONGEST:
        _memory[key] = data
    return found


def forget_cuts() -> None:
    """Drops the cuts that are kept in memory."""
    _memory.clear()


def _written_prepared(found: PreparedCut, original: Kernel) -> bytes:
    """A line of JSON, then the cuts."""
    cuts = [_written(each, original) for each in (found.cut, found.before) if each is not None]
    head = json.dumps({"constant": dict(found.constant), "sizes": [*map(len, cuts)]}).encode()
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
        found = PreparedCut(cut, dict(head["constant"]), before)
        return found if _fits(found, original, constant) else None
    except _UNFIT:
        return None


def _fits(found: PreparedCut, original: Kernel, constant: Collection[str]) -> bool:
    """Whether both parts take what there is, and give the results of ``original``."""
    given, results = _forms(original.arrays)
    known = {name: form for name, form in given.items() if name in constant}
    if found.before is not None:
        taken, made = _forms(found.before.graph.arrays)
        if not taken.items() <= known.items():
            return False
        known |= {name: form.removeprefix("out ") for name, form in made.items()}
    taken, made = _forms(found.cut.graph.arrays)
    if not found.constant.keys() <= taken.keys():
        return False
    rest = {name: form for name, form in taken.items() if name not in found.constant}
    fixed = all(taken[name] == known.get(each) for name, each in found.constant.items())
    return fixed and rest.items() <= given.items() and made == results


def _forms(params: Sequence[Param]) -> tuple[dict[str, str], dict[str, str]]:
    """Of arguments and of results by name: their types, shapes and layouts; of results the access,
    too."""
    found: tuple[dict[str, str], dict[str, str]] = ({}, {})
    for each in params:
        if each.digest is None:
            form = repr(replace(each.buffer, name="x"))
            result = each.access != "in"
            found[result][each.name] = f"{each.access} {form}" if result else form
    return found


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
    return buffer(fresh("nothing", {each.name for each in graph.params}), s64, (1,))


def _read(payload: bytes, original: Kernel) -> Cut | None:
    """The cut; None for an entry that does not fit ``original``."""
    try:
        found = _cut(payload, original)
    except _UNFIT:
        return None
    return found if _passed(found.graph) == _passed(original) else None


def _cut(payload: bytes, original: Kernel) -> Cut:
    """The cut. Raises one of ``_UNFIT`` where the entry is none."""
    (size,) = _SIZE.unpack_from(payload)
    data = json.loads(zlib.decompress(payload[_SIZE.size : _SIZE.size + size]))
    kernels = parse_kernels(data["kernels"])
    for kernel in kernels:
        verify(kernel)
    known = dict(original.constants)
    start = _SIZE.size + size
    for digest, name, count in data["constants"]:
        known[digest] = np.frombuffer(payload, type_of(name).numpy, count, start)
        start += known[digest].nbytes
    graph = parse_kernel(data["graph"])
    used = {each.digest for each in graph.arrays}
    graph = replace(graph, constants={d: array for d, array in known.items() if d in used})
    return _from_data(data, graph, kernels, dict(_spans(original)))


def _passed(graph: Kernel) -> list[str]:
    """What calls pass."""
    return [f"{p.access} {p.buffer!r}" for p in graph.arrays if p.digest is None]


def _data(cut: Cut) -> dict[str, Any]:
    """All of ``cut`` but its kernels, as JSON holds it: buffers are numbers."""
    numbers = {each: n for n, each in enumerate(_buffers(cut.graph, cut.between))}
    # Those of different blocks may have one name.
    named = [replace(each, name=f"b{n}") for n, each in enumerate(cut.between)]
    holder = Kernel("buffers", (), Block(tuple(map(Allocate, named))))

    def launch(step: Launch) -> dict[str, Any]:
        buffers = [numbers[each] for each in step.buffers]
        return {"kernel": step.kernel, "buffers": buffers, "computes": list(step.computes)}

    return {
        "names": [each.name for each in cut.between],
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
        found = [each.buffer for each in walk_stmts(held) if isinstance(each, Allocate)]
        allocated += [
            replace(each, name=name) for each, name in zip(found, data["names"], strict=True)
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
    number, passed = data["kernel"], tuple(buffers[each] for each in data["buffers"])
    params = [each.buffer for each in kernels[number].arrays]
    for one, other in zip(passed, params, strict=True):
        if (one.dtype, one.sizes, one.bytes) != (other.dtype, other.sizes, other.bytes):
            raise ValueError("another buffer")
    computes = tuple(data["computes"])
    span = next((spans[each] for each in computes if each in spans), None)
    return Launch(number, passed, computes, span)


def _buffers(graph: Kernel, between: Sequence[Buffer]) -> list[Buffer]:
    return [*(each.buffer for each in graph.arrays), *between]


def _spans(graph: Kernel) -> Iterator[tuple[str, Span]]:
    for stmt in walk_stmts(graph.body):
        if isinstance(stmt, Compute | Opaque) and stmt.span is not None:
            yield stmt.name, stmt.span
