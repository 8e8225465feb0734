"""Entries of the disk cache with a right checksum that say what is not so: compiled again."""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from compiled import check, inputs, packed, small
from tilewright.dtypes import boolean
from tilewright.engine import compile
from tilewright.engine.disk_cache import Entry, decode, encode
from tilewright.engine.entry import _seal, conforms, read_entry, write_entry
from tilewright.engine.request import Request, request_of
from tilewright.ir.expr import var
from tilewright.ops.op import Op
from tilewright.runtime.steps import IfStep, ReadStep, WhileStep
from tilewright.targets.llvm.module import DeviceStep, Launch

KERNELS: dict[str, tuple[Op, str]] = {
    "packed": (small(), "x86"),
    "workspaces": (
        tw.convolution("mb2ic8ih6oc16kh3ph1", direction="bwd_weights", dtype="bf16", src="nhwc"),
        "x86",
    ),
    "launches": (tw.matmul("64x32:32x48"), "spirv:gpu"),
    "maps": (tw.matmul("128x64:64x128", dtype="bf16"), "nvidia:sm_90a"),
}  # fmt: skip
ODD: list[Any] = [
    *(None, True, -1, 0, 1, 63, 2**31, 2**62, 2**70, 1.5, float("inf"), "", "x", "f64", "0"),
    *([], [1], [[]], {}, {"x": 1}),
]


def stored(folder: Path, op: Op, target: str) -> tuple[Entry, Request, Path]:
    """What compiling leaves on disk."""
    tw.compile(op, target=target, threads=1)
    (path,) = [entry for entry in folder.rglob("*") if entry.is_file()]
    return _read(path), request_of(op), path


_left: dict[str, tuple[Path, bytes]] = {}


def kept(folder: Path, which: str) -> tuple[Entry, Request, Path]:
    """What compiling one of `KERNELS` leaves on disk, in ``folder``: it is compiled once."""
    op, target = KERNELS[which]
    if which not in _left:
        _, _, path = stored(folder, op, target)
        _left[which] = path.relative_to(folder), path.read_bytes()
        compile.forget()
    name, data = _left[which]
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return _read(path), request_of(op), path


def _read(path: Path) -> Entry:
    entry = decode(path.name, path.read_bytes())
    assert entry is not None
    return entry


def changed(value: Any) -> Iterator[tuple[str, Any]]:
    """``value`` with one thing in it changed, removed, or given twice; and which."""
    for odd in ODD:
        if type(odd) is not type(value) or odd != value:
            yield "", odd
    if isinstance(value, dict):
        for name in value:
            yield f".{name} removed", {key: part for key, part in value.items() if key != name}
            for where, other in changed(value[name]):
                yield f".{name}{where}", value | {name: other}
        yield " with more", value | {"more": 1}
    elif isinstance(value, list):
        for position, part in enumerate(value):
            yield f"[{position}] removed", value[:position] + value[position + 1 :]
            yield f"[{position}] twice", [*value[:position], part, *value[position:]]
            for where, other in changed(part):
                yield f"[{position}]{where}", [*value[:position], other, *value[position + 1 :]]


@pytest.mark.parametrize("which", KERNELS)
def test_no_metadata_but_its_own_is_taken(own_cache: Path, which: str) -> None:
    entry, request, _ = kept(own_cache, which)
    assert read_entry(entry, request) is not None
    count = 0
    for where, meta in changed(entry.meta):
        other = Entry(entry.key, entry.payload, meta)
        if isinstance(meta, dict):
            assert read_entry(other, request) is None, where
            count += 1
    assert count > 500


@pytest.mark.parametrize("which", KERNELS)
def test_metadata_with_a_seal_of_its_own(own_cache: Path, which: str) -> None:
    """Whoever makes the seal, too, finds no error but ours: none; and arguments as they should be.

    What only the code knows (its workspaces, its launches, the config that made it) is not checked
    further than that it makes sense."""
    entry, request, _ = kept(own_cache, which)
    right = read_entry(entry, request)
    assert right is not None
    unsealed = {name: value for name, value in entry.meta.items() if name != "seal"}
    taken = set()
    for where, meta in changed(unsealed):
        if not isinstance(meta, dict):
            continue
        sealed = meta | {"seal": _seal(entry.key, meta, entry.payload)}
        result = read_entry(Entry(entry.key, entry.payload, sealed), request)
        if result is None:
            continue
        taken.add(where)
        for name, part in right[1].items():
            assert result[1][name].abi.parameters == part.abi.parameters, where
            assert result[1][name].abi.entry == part.abi.entry, where
            assert min([*result[1][name].abi.workspaces, 0]) >= 0, where
    beyond = (
        "workspaces",
        "launches",
        ".config",
        ".start",
        ".size",
        ".steps",
        ".more",
        " with more",
    )
    assert {where for where in taken if not any(word in where for word in beyond)} == set()


@pytest.mark.parametrize("which", KERNELS)
def test_entries_come_back_as_they_were(own_cache: Path, which: str) -> None:
    entry, request, _ = kept(own_cache, which)
    result = read_entry(entry, request)
    assert result is not None
    payload, meta = write_entry(entry.key, *result)
    assert payload == entry.payload and json.loads(json.dumps(meta)) == entry.meta
    op, target = KERNELS[which]
    assert tw.compile(op, target=target, threads=1).from_cache


def test_configs_as_they_once_printed_are_a_miss(own_cache: Path) -> None:
    entry, request, path = stored(own_cache, tw.matmul("64x32:32x48"), "spirv:gpu")
    meta = {name: value for name, value in entry.meta.items() if name != "seal"}
    assert meta["config"].startswith("WorkgroupConfig(product=Product(")
    meta["config"] = "WorkgroupConfig(instruction='', lanes='n', group={'n': 8}, item={}, order=())"
    sealed = meta | {"seal": _seal(entry.key, meta, entry.payload)}
    assert read_entry(Entry(entry.key, entry.payload, sealed), request) is None
    path.write_bytes(b"".join(encode(entry.key, entry.payload, sealed)))
    compile.forget()
    assert not tw.compile(tw.matmul("64x32:32x48"), target="spirv:gpu", threads=1).from_cache


def test_an_entry_of_another_kernel_or_key(own_cache: Path) -> None:
    entry, request, _ = stored(own_cache, small(), "x86")
    assert read_entry(Entry("0" * 64, entry.payload, entry.meta), request) is None
    assert read_entry(Entry(entry.key, entry.payload + b"\0", entry.meta), request) is None
    for other in (small(dtype="bf16"), tw.matmul("4x4:4x4")):
        assert read_entry(entry, request_of(other)) is None


def _lies(meta: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Calls with these would read or write where nothing is."""
    for path, value in (
        (("parts", "", "abi", "workspaces"), []),
        (("parts", "", "abi", "parameters"), []),
        (("parts", "", "abi", "entry"), "exit"),
        (("parts", "", "start"), 64),
        (("parts", "", "size"), 10**9),
        (("parts", "weights", "packed", "extent"), 1),
        (("parts", "weights", "abi", "parameters"), []),
        (("parts", "weights"), None),
        (("config",), "(" * 10_000),
    ):
        lying = copy.deepcopy(meta)
        place = lying
        for name in path[:-1]:
            place = place.get(name) or {}
        if path[-1] in place:
            place[path[-1]] = value
            yield lying


@pytest.mark.parametrize("which", ["packed", "workspaces"])
def test_lies_are_not_called(own_cache: Path, which: str) -> None:
    entry, _, path = kept(own_cache, which)
    lies = [lie for lie in _lies(entry.meta) if lie != entry.meta]
    assert len(lies) >= 5
    for lie in lies:
        path.write_bytes(b"".join(encode(entry.key, entry.payload, lie)))
        compile.forget()
        kernel = tw.compile(KERNELS[which][0], threads=1)
        assert not kernel.from_cache
        check(kernel)
        compile.forget()
        assert tw.compile(KERNELS[which][0], threads=1).from_cache, "it was written again"


def test_a_pipe_in_the_place_of_an_entry(own_cache: Path) -> None:
    _, _, path = stored(own_cache, small(), "x86")
    for target in (None, "/dev/zero"):
        path.unlink()
        if target is None:
            os.mkfifo(path)
        else:
            path.symlink_to(target)
        compile.forget()
        kernel = tw.compile(small(), threads=1)
        assert not kernel.from_cache and path.is_file() and not path.is_symlink()
        arrays = packed(kernel, inputs(kernel))
        compile.forget()
        again = tw.compile(small(), threads=1)
        assert again.from_cache
        np.testing.assert_array_equal(again(**arrays), kernel(**arrays))


def test_annotations() -> None:
    numbers, maybe, launch = conforms(tuple[int, ...]), conforms(int | None), conforms(Launch)
    assert numbers((1, 2)) and numbers(())
    assert not numbers([1]) and not numbers((1, "2"))
    assert not conforms(int)(True) and not conforms(int)(1.0)
    assert maybe(None) and not maybe("")
    assert launch(Launch("f", 1, 2, 3)) and not launch(None)
    assert not launch(Launch("f", 1, "2", 3))  # type: ignore[arg-type] # on purpose


def test_annotations_of_generic_classes() -> None:
    steps = conforms(tuple[DeviceStep, ...])
    read = ReadStep(var("go", boolean), 1)
    assert steps((0, WhileStep((read,), "go", (IfStep("m < 2", (1,), ()),))))
    wrong: tuple[Any, ...] = (
        *("0", True, None, ReadStep(var("go", boolean), "1")),
        *(IfStep(1, (), ()), IfStep("m < 2", (IfStep("m < 2", ("1",), ()),), ())),
        WhileStep([read], "go", ()),  # type: ignore[arg-type] # on purpose
    )
    for data in wrong:
        assert not steps((0, data)), data
