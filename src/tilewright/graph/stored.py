"""A graph's cut as an entry of the disk cache, and back: who compiles a graph again, in another
process, finds its steps there, and its kernels each in an entry of its own."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tilewright.dtypes import dtype as type_of
from tilewright.dtypes import s64
from tilewright.engine.disk_cache import content_key, open_disk_cache
from tilewright.engine.generator import generator_identity
from tilewright.errors import Span, TilewrightError
from tilewright.graph.cutting import Choose, Cut, Launch, Repeat, Step, cut_graph
from tilewright.graph.passes.pipeline import optimized
from tilewright.ir.buffer import Buffer, buffer
from tilewright.ir.parser import parse_kernel, parse_kernels
from tilewright.ir.printer import to_text
from tilewright.ir.stmt import Allocate, Block, Compute, Kernel, Opaque
from tilewright.ir.verify import verify
from tilewright.ir.visit import walk_stmts
from tilewright.newest import Newest
from tilewright.schedule.place import fresh

_KIND = b"cut of a graph"
_SIZE = struct.Struct("<Q")
# What is kept in memory: entries, and bytes of one.
_LONGEST = 1 << 22
_memory: Newest[str, bytes] = Newest(32)


def kept_cut(graph: Kernel, identity: str) -> Cut:
    """`cut_graph` of ``graph`` behind the passes over graphs, of which ``identity`` says all; from
    memory or disk, where they have it. Of the graph itself, it has the parameters."""
    key = content_key(_KIND, generator_identity().encode(), identity.encode())
    cache = open_disk_cache()
    data = _memory.get(key)
    if data is None:
        entry = cache.get(key)
        data = None if entry is None else entry.payload
    found = None if data is None else _read(data, graph)
    if found is None:
        found = cut_graph(optimized(graph))
        data = _written(found, graph)
        cache.put(key, data, {})
    assert data is not None
    if len(data) <= _LONGEST:
        _memory[key] = data
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
        if _passed(graph) != _passed(original):
            return None
        return _from_data(data, graph, kernels, dict(_spans(original)))
    except (zlib.error, struct.error, TilewrightError, LookupError, TypeError, ValueError):
        return None


def _passed(graph: Kernel) -> list[str]:
    """What calls pass."""
    return [f"{p.access} {p.buffer!r}" for p in graph.arrays if p.digest is None]


def _data(cut: Cut) -> dict[str, Any]:
    """All of ``cut`` but its kernels, as JSON holds it: buffers are numbers."""
    numbers = {each: n for n, each in enumerate(_buffers(cut.graph, cut.between))}
    # Those of different blocks may have one name.
    named = [replace(each, name=f"b{n}") for n, each in enumerate(cut.between)]
    holder = Kernel("buffers", (), Block(tuple(map(Allocate, named))))
    return {
        "names": [each.name for each in cut.between],
        "between": to_text(holder) if named else "",
        "steps": [_step_data(each, numbers) for each in cut.steps],
    }


def _step_data(step: Step, numbers: Mapping[Buffer, int]) -> dict[str, Any]:
    match step:
        case Launch():
            buffers = [numbers[each] for each in step.buffers]
            return {"kernel": step.kernel, "buffers": buffers, "computes": list(step.computes)}
        case Repeat():
            return {
                "asks": _step_data(step.asks, numbers),
                "flag": numbers[step.flag],
                "body": [_step_data(each, numbers) for each in step.body],
                "own": sorted(numbers[each] for each in step.own if each in numbers),
            }
        case Choose():
            return {
                "asks": _step_data(step.asks, numbers),
                "flag": numbers[step.flag],
                "then": [_step_data(each, numbers) for each in step.then],
                "orelse": [_step_data(each, numbers) for each in step.orelse],
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
    steps = _Steps(_buffers(graph, allocated), spans, kernels)
    made = tuple(map(steps.step, data["steps"]))
    return Cut(graph, tuple(kernels), made, tuple(allocated))


class _Steps:
    """Makes steps of JSON. Raises `LookupError` or `ValueError` for what is no step."""

    def __init__(
        self, buffers: Sequence[Buffer], spans: Mapping[str, Span], kernels: Sequence[Kernel]
    ) -> None:
        self._buffers, self._spans, self._kernels = buffers, spans, kernels

    def step(self, data: Mapping[str, Any]) -> Step:
        if "kernel" in data:
            return self._launch(data)
        asks, flag = self._launch(data["asks"]), self._buffers[data["flag"]]
        if "body" in data:
            own = frozenset(self._buffers[each] for each in data["own"])
            return Repeat(asks, flag, tuple(map(self.step, data["body"])), own)
        then, orelse = tuple(map(self.step, data["then"])), tuple(map(self.step, data["orelse"]))
        return Choose(asks, flag, then, orelse)

    def _launch(self, data: Mapping[str, Any]) -> Launch:
        number, buffers = data["kernel"], tuple(self._buffers[each] for each in data["buffers"])
        params = [each.buffer for each in self._kernels[number].arrays]
        for given, wanted in zip(buffers, params, strict=True):
            if (given.dtype, given.sizes, given.bytes) != (
                wanted.dtype,
                wanted.sizes,
                wanted.bytes,
            ):
                raise ValueError("another buffer")
        computes = tuple(data["computes"])
        span = next((self._spans[each] for each in computes if each in self._spans), None)
        return Launch(number, buffers, computes, span)


def _buffers(graph: Kernel, between: Sequence[Buffer]) -> list[Buffer]:
    return [*(each.buffer for each in graph.arrays), *between]


def _spans(graph: Kernel) -> Iterator[tuple[str, Span]]:
    for stmt in walk_stmts(graph.body):
        if isinstance(stmt, Compute | Opaque) and stmt.span is not None:
            yield stmt.name, stmt.span
