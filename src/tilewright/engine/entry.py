"""A compiled kernel as an entry of the disk cache, and back.

The checksum of an entry says that it is what somebody wrote, not that it makes sense: code that is
called with another ABI than its own reads and writes anywhere. So an entry has a seal, which ties
its metadata to its code, and is taken only if both fit what is asked for: arguments, types, sizes,
places. Everything else means that the kernel is compiled again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cache
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from tilewright.dtypes import dtype
from tilewright.engine.disk_cache import Entry, content_key
from tilewright.engine.kept import KeptSteps
from tilewright.engine.request import Request
from tilewright.engine.signature import ArrayForm
from tilewright.errors import CompilationError, TilewrightError
from tilewright.recipes.config import Config, parse_config
from tilewright.runtime.steps import launches
from tilewright.targets.calling import Calling
from tilewright.targets.program import Abi, Parameter, Scalar, parameters_of

_KEY = re.compile(r"[0-9a-f]{64}")
# Beyond any machine: sums of such sizes are still numbers of 64 bits.
_MOST_BYTES = 2**48


@dataclass(frozen=True)
class PackedForm:
    """What a kernel reads in place of an argument; ``key`` tells packings apart."""

    forms: tuple[ArrayForm, ...]
    key: str


@dataclass(frozen=True)
class Part:
    """Code and its ABI: the kernel's, or of what makes the ``packed`` form of an argument."""

    binary: bytes
    abi: Abi
    packed: PackedForm | None = None


class _ForeignError(Exception):
    """The entry is not what this kernel needs."""


def write_entry(
    key: str, config: Config, parts: Mapping[str, Part], steps: KeptSteps
) -> tuple[bytes, dict[str, Any]]:
    """Payload and metadata of the entry for ``key``; ``parts`` by the packed argument's name, and
    the kernel's as ``""``. The payload ends with the ``steps`` of the schedule."""
    payload = b"".join([*(part.binary for part in parts.values()), steps.data])
    written: dict[str, Any] = {}
    start = 0
    for name, part in parts.items():
        size = len(part.binary)
        packed = None
        if part.packed is not None:
            forms = [[form.dtype.name, form.extent] for form in part.packed.forms]
            packed = {"forms": forms, "key": part.packed.key}
        written[name] = {"start": start, "size": size, "packed": packed, "abi": part.abi.as_json()}
        start += size
    meta = {"config": repr(config), "parts": written, "steps": start}
    return payload, {**meta, "seal": _seal(key, meta, payload)}


def read_entry(entry: Entry, request: Request) -> tuple[Config, dict[str, Part], KeptSteps] | None:
    """What `write_entry` was given; None for an entry that does not fit ``request``. The steps are
    not looked at."""
    try:
        meta = {name: value for name, value in entry.meta.items() if name != "seal"}
        _need(entry.meta.get("seal") == _seal(entry.key, meta, entry.payload))
        parts = {name: _part(part, entry.payload) for name, part in meta["parts"].items()}
        _check(parts, request)
        start = meta["steps"]
        _need(conforms(int)(start) and 0 <= start <= len(entry.payload))
        return parse_config(meta["config"]), parts, KeptSteps(entry.payload[start:])
    except (
        _ForeignError,
        TilewrightError,
        ArithmeticError,
        AttributeError,
        LookupError,
        RecursionError,
        TypeError,
        ValueError,
    ):
        return None


def write_refusal(error: CompilationError) -> dict[str, Any]:
    """Metadata of an entry that says that the kernel cannot be compiled, and why."""
    return {"refused": [error.what, error.where, error.why, error.cure]}


def read_refusal(entry: Entry) -> CompilationError | None:
    """The error that `write_refusal` was given; None for another entry."""
    said = entry.meta.get("refused")
    if not isinstance(said, list) or len(said) != 4:
        return None
    if not isinstance(said[0], str) or not all(isinstance(s, str | None) for s in said):
        return None
    what, where, why, cure = said
    return CompilationError(what, where=where, why=why, cure=cure)


def _need(fits: bool) -> None:
    if not fits:
        raise _ForeignError


def _seal(key: str, meta: dict[str, Any], payload: bytes) -> str:
    """Differs for other metadata, other code, another key."""
    return content_key(key.encode(), json.dumps(meta).encode(), payload)


def _part(entry: dict[str, Any], payload: bytes) -> Part:
    start, size = entry["start"], entry["size"]
    _need(conforms(int)(start) and conforms(int)(size))
    _need(start >= 0 and size > 0 and start + size <= len(payload))
    packed = None
    if entry["packed"] is not None:
        key = entry["packed"]["key"]
        _need(bool(_KEY.fullmatch(key)))
        packed = PackedForm(tuple(_packed_form(*form) for form in entry["packed"]["forms"]), key)
    abi = Abi.from_json(entry["abi"])
    _need(conforms(Abi)(abi))
    return Part(payload[start : start + size], abi, packed)


def _packed_form(name: str, extent: int) -> ArrayForm:
    _need(conforms(int)(extent) and 0 <= extent < _MOST_BYTES)
    return ArrayForm(dtype(name), (extent,), (1,), extent)


def _check(parts: Mapping[str, Part], request: Request) -> None:
    """Raises `_ForeignError` for parts that are not those of this kernel."""
    signature = request.signature()
    needed: list[Parameter | Scalar] = []
    for parameter in parameters_of(signature.params):
        pack = parts.get(parameter.name)
        if pack is None or isinstance(parameter, Scalar):
            _need(pack is None)
            needed.append(parameter)
            continue
        source, *results = pack.abi.parameters
        if pack.packed is None:
            raise _ForeignError
        _need(parameter.access == "in" and source == parameter)
        _need(0 < len(results) == len(pack.packed.forms))
        for result, form in zip(results, pack.packed.forms, strict=True):
            if not isinstance(result, Parameter):
                raise _ForeignError
            _need(result.access == "out" and result.dtype is form.dtype)
            _need(result.bytes == form.extent * form.dtype.bytes)
            needed.append(replace(result, access="in"))
    main = parts[""]
    _need(main.packed is None and main.abi.parameters == tuple(needed))
    _need(set(parts) <= {"", *(argument.name for argument in signature.arguments)})
    for name, part in parts.items():
        # Of a kernel that was cut, the group that takes the argument has a number.
        called = re.escape(request.name) + (rf"(_[0-9]+)?_pack_{re.escape(name)}" if name else "")
        _need(re.fullmatch(called, part.abi.entry) is not None)
        _check_sizes(part.abi)


def _check_sizes(abi: Abi) -> None:
    """What no ABI can have: negative sizes, launches of nothing, maps of what is not there."""
    numbers = [size for size in abi.workspaces if isinstance(size, int)]
    _need(all(0 <= size < _MOST_BYTES for size in numbers))
    # What depends on nothing is a number.
    _need(bool(abi.scalars) or len(numbers) == len(abi.workspaces))
    parameters = [
        parameter.bytes if isinstance(parameter, Parameter) else 0 for parameter in abi.parameters
    ]
    sizes = [*parameters, *abi.workspaces]
    for launch in abi.launches:
        groups = launch.groups if isinstance(launch.groups, int) else 1
        _need(isinstance(launch.groups, int) or bool(abi.scalars or abi.steps))
        _need(min(groups, launch.items, launch.cluster) > 0 and launch.shared >= 0)
        for launch_map in launch.maps:
            _need(
                0 <= launch_map.argument < len(sizes)
                and isinstance(sizes[launch_map.argument], int)
            )
        _need(launch.result is None or 0 <= launch.result < len(abi.workspaces))
    _need(min(launches(abi.steps), default=0) >= 0)
    Calling(abi)  # what a step or a size says has to parse, and to be there


_Check = Callable[[object], bool]


@cache
def conforms(hint: Any) -> _Check:
    """Tells whether a value is what an annotation says; to Python, a bool would pass for an int."""
    if get_origin(hint) is tuple:
        inner = conforms(get_args(hint)[0])
        return lambda value: type(value) is tuple and all(map(inner, value))
    if get_origin(hint) in (Union, UnionType):
        choices = [conforms(arg) for arg in get_args(hint)]
        return lambda value: any(choice(value) for choice in choices)
    kind = get_origin(hint) or hint
    if is_dataclass(kind):
        types = get_type_hints(kind)
        parameters = dict(zip(getattr(kind, "__parameters__", ()), get_args(hint), strict=True))
        parts = [(field.name, _applied(types[field.name], parameters)) for field in fields(kind)]
        # Asked for when there is a value: the steps of a host hold steps.
        return lambda value: (
            type(value) is kind
            and all(conforms(part)(getattr(value, name)) for name, part in parts)
        )
    return lambda value: type(value) is kind


def _applied(hint: Any, parameters: Mapping[Any, Any]) -> Any:
    """``hint`` with the arguments that a generic class has."""
    if hint in parameters:
        return parameters[hint]
    mentioned = getattr(hint, "__parameters__", ())
    return hint[tuple(parameters[name] for name in mentioned)] if mentioned else hint
