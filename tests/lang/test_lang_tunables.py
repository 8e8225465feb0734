"""Tunables: where they stand, how launches choose them, and what is refused."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from lang_texts import defined
from tilewright.engine.database_file import TuningWarning
from tilewright.errors import ArgumentError, KernelError, TilewrightError
from tilewright.lang.launch import Launch
from tilewright.lang.ranges import Grid
from tilewright.lang.tuned import LaunchConfig
from tilewright.tune.database import Database, Row

TILE = tw.tunable("TILE", (4, 2, 8))
LANES = tw.tunable("LANES", (4, 16))
GROUP = tw.tunable("GROUP", (None, (1, 4), (4, 4)))
BY = tw.tunable("BY", (2.0, 3.0))


@tw.kernel(local=(TILE, TILE))
def transpose(x: tw.array("f32", 2), y: tw.array("f32", 2)):
    tile = tw.local((TILE, TILE + 1), "f32")
    row, col = tw.local_id(0), tw.local_id(1)
    top, left = tw.group_id(0) * TILE, tw.group_id(1) * TILE
    tile[row, col] = x[top + row, left + col]
    tw.barrier()
    y[left + row, top + col] = tile[col, row]


@tw.function
def scaled(value, more=tw.tunable("MORE", (1, 5))):
    return value * BY + more


@tw.kernel
def filled(
    x: tw.array("f32", 2),
    add: tw.constant = tw.tunable("ADD", (0, 10)),
) -> None:
    i, j = tw.global_id(0), tw.global_id(1)
    x[i, j] = scaled(tw.f32(add))


@tw.kernel(subgroup=LANES)
def lanes(x: tw.array("s32", 1)) -> None:
    x[tw.global_id(0)] = tw.subgroup_size() * 100 + tw.lane_id()


@tw.kernel
def ids(x: tw.array("s32", 1), of: tw.constant) -> None:
    x[tw.global_id(0)] = of


@pytest.mark.parametrize("target", ["x86", "interpreter"])
@pytest.mark.parametrize("tile", [None, 2, 4, 8, np.int64(8)])
def test_a_constant_and_the_local_size(target: str, tile: int | None) -> None:
    x = np.arange(8 * 16, dtype=np.float32).reshape(8, 16)
    y = np.zeros((16, 8), np.float32)
    tunables = {} if tile is None else {"TILE": tile}
    transpose.launch((8, 16), x, y, target=target, tunables=tunables)
    assert (y == x.T).all()
    text = str(transpose.as_kernel(tunables))
    assert f"f32[{tile or 4}, {(tile or 4) + 1}]" in text


def test_parameters_and_functions() -> None:
    """Defaults are no arguments of launches, and functions bring their own."""
    assert set(filled.tunables) == {"ADD", "BY", "MORE"}
    assert list(filled.parameters) == ["x"]
    x = np.zeros((2, 4), np.float32)
    filled.launch((2, 4), x)
    assert (x == 1).all()
    filled.launch((2, 4), x, tunables={"ADD": 10, "BY": 3.0, "MORE": 5})
    assert (x == 35).all()


def test_subgroups() -> None:
    x = np.zeros(32, np.int32)
    for size in (4, 16):
        lanes.launch(32, x, tunables={"LANES": size})
        assert (x == size * 100 + np.arange(32) % size).all()


def test_ranges_and_local_sizes_of_launches() -> None:
    """With tunables of their own, and by functions of what is chosen."""
    x = np.zeros((4, 8), np.float32)
    for local in GROUP.values:
        kernel = filled.specialized((4, 8), x, local=GROUP, tunables={"GROUP": local})
        assert ("in 4:" in str(kernel)) == (local is not None)
    x[:] = 0
    wanted = {"ADD": 10}
    rows = lambda chosen: (chosen["ADD"] // 5, 8)  # noqa: E731
    for _ in range(3):  # of which the last ones would be bound
        filled.launch(rows, x, local=lambda chosen: (1, 4), tunables=wanted)
        assert (x[:2] == 21).all() and not x[2:].any()


def test_functions_that_give_other_ranges_each_time() -> None:
    """A launch is not bound to what the function gave before."""
    x, count = np.zeros(8, np.int32), [2]
    size = lambda _: count[0]  # noqa: E731
    for _ in range(3):
        ids.launch(size, x, 1)
    count[0] = 8
    ids.launch(size, x, 1)
    assert x.all()


def test_modules_and_compile() -> None:
    module = ModuleType("sizes_of_a_test")
    module.COUNT = tw.tunable("COUNT", (1, 7))
    sys.modules[module.__name__] = module
    try:
        kernel: Any = defined(
            "import sizes_of_a_test as sizes\n"
            "@tw.kernel\ndef k(x: tw.array('f32', 1)):\n    x[tw.global_id(0)] = sizes.COUNT\n"
        )["k"]
    finally:
        del sys.modules[module.__name__]
    x = np.zeros(4, np.float32)
    compiled = tw.compile(kernel, threads=1, tunables={"COUNT": 7})
    compiled(x=x, global_0=4)
    assert (x == 7).all()
    assert "7" in str(kernel.over(1, tunables={"COUNT": 7}))


@tw.kernel(local=TILE)
def clash(
    x: tw.array("f32", 1),
    tile: tw.constant = tw.tunable("TILE", (1, 2)),
) -> None:
    x[tw.global_id(0)] = tile


X = np.zeros((8, 12), np.float32)
HEAD = "@tw.kernel\ndef k(x: tw.array('f32', 1), "
REFUSED: list[tuple[Callable[[], Any], type[TilewrightError], str]] = [
    (lambda: tw.tunable("a b", (1,)), ArgumentError, "a tunable is called 'a b'"),
    (lambda: tw.tunable("N", ()), ArgumentError, r"the values of N are \(\)"),
    (lambda: tw.tunable("N", 8), ArgumentError, "the values of N are 8"),
    (lambda: tw.tunable("N", (1, X)), ArgumentError, "a value of N is a ndarray"),
    (lambda: tw.tunable("N", (float("nan"),)), ArgumentError, "a value of N is nan"),
    (lambda: tw.tunable("N", (1, 2, True)), ArgumentError, "True is a value of N twice"),
    (lambda: 64 // TILE, ArgumentError, "TILE is computed with outside of a kernel"),
    (lambda: range(TILE), ArgumentError, "TILE is computed with outside of a kernel"),
    (
        lambda: transpose.launch((8, 8), X, X, tunables={"TILES": 8}),
        ArgumentError,
        "there is no tunable 'TILES'[^$]*did you mean TILE",
    ),
    (
        lambda: transpose.launch((8, 8), X, X, tunables={"TILE": 16}),
        ArgumentError,
        "TILE is 16[^$]*choose one of 4, 2, 8",
    ),
    (
        lambda: transpose.launch((8, 8), X, X, tunables={"TILE": X}),
        ArgumentError,
        "TILE is a ndarray",
    ),
    (
        lambda: transpose.launch((8, 8), X, X, tunables=[8]),
        ArgumentError,
        r"tunables is \[8\]",
    ),
    (
        lambda: transpose.launch((8, 12), X, X, tunables={"TILE": 8}),
        ArgumentError,
        r"\(8, 8\) does not divide the range \(8, 12\)[^$]*transpose with TILE=8",
    ),
    (
        lambda: filled.launch((8, 12), X, 10),
        ArgumentError,
        "2 arguments are given for 1 parameters",
    ),
    (lambda: ids.launch(8, X, 1, tunables={"N": 1}), ArgumentError, "declare it by tw.tunable"),
    (lambda: clash.launch(8, X), ArgumentError, "TILE is the name of two tunables"),
    (
        lambda: ids.launch(8, X, 1, local=tw.tunable("L", (3,))),
        ArgumentError,
        r"the local size \(3,\) does not divide",
    ),
    (
        lambda: transpose.launch(lambda chosen: chosen["TILES"], X, X),
        ArgumentError,
        r"fails: KeyError: [^$]*it is called with \{'TILE': 4\}",
    ),
    (lambda: filled.launch(np.float32, X), ArgumentError, "the function of its sizes fails"),
    (
        lambda: tw.compile(tw.matmul("2x3:3x4"), tunables={"TILE": 8}),
        ArgumentError,
        "tunables are given for a Matmul",
    ),
    (
        lambda: tw.kernel(subgroup=tw.tunable("N", (8, 12)))(lanes.__wrapped__),
        KernelError,
        "a subgroup of 12 lanes",
    ),
    (
        lambda: defined(f"{HEAD}n: tw.s32 = tw.tunable('N', (1, 2))):\n    pass\n"),
        KernelError,
        "the parameter n is a tunable, and no constant",
    ),
    (
        lambda: defined(f"{HEAD}n: tw.constant = 4):\n    pass\n"),
        KernelError,
        "a parameter has a default",
    ),
]


@pytest.mark.parametrize(("call", "kind", "said"), REFUSED)
def test_refusals(call: Callable[[], Any], kind: type[TilewrightError], said: str) -> None:
    with pytest.raises(kind, match=said):
        call()


def test_names_that_change() -> None:
    """A tunable is part of the code, as other names from outside are."""
    space = defined(
        "N = tw.tunable('N', (1, 2))\nM = 3\n"
        "@tw.kernel\ndef k(x: tw.array('f32', 1)):\n    x[tw.global_id(0)] = N + M\n"
    )
    kernel, x = space["k"], np.zeros(4, np.float32)
    kernel.launch(4, x)
    space["N"] = 5
    with pytest.raises(KernelError, match=r"N was tw\.tunable\('N', \(1, 2\)\) when k was compil"):
        kernel.launch(4, x)
    space["N"] = tw.tunable("N", (1, 2))
    kernel.launch(4, x)
    space["M"] = tw.tunable("M", (1, 2))
    with pytest.raises(KernelError, match="M became a tunable"):
        kernel.over(2)


# What a database has for launches.


def _stored(path: Path, tunables: Any, seconds: float = 1e-3, **changed: Any) -> None:
    """A row about the launch of `transpose` below, as a search leaves one."""
    launch = Launch(Grid((8, 16)), _arrays(), threads=1)
    launches = transpose.launches
    place = asdict(launches.asked(launches.decided(launch), launch)) | changed
    config = tunables if isinstance(tunables, str) else repr(LaunchConfig(tunables=tunables))
    with Database(path) as database:
        database.add(Row(**place, title="t", config=config, outcome="correct", times=(seconds,)))
    launches.forget()


def _arrays() -> tuple[Any, Any]:
    x = np.arange(8 * 16, dtype=np.float32).reshape(8, 16)
    return x, np.zeros((16, 8), np.float32)


def test_launches_take_what_a_database_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "tuned.db"
    _stored(path, {"TILE": 2})
    _stored(path, {"TILE": 8}, seconds=2e-3)
    x, y = _arrays()
    text = transpose.explain((8, 16), x, y, threads=1, database=path)
    assert "by 8 x 16 work-items\ntunables: TILE=2\nchosen by: row 1 of the database" in text
    transpose.launch((8, 16), x, y, threads=1, database=path)
    assert (y == x.T).all()
    monkeypatch.setenv("TILEWRIGHT_DB", str(path))
    assert "TILE=2" in transpose.explain((8, 16), x, y, threads=1)
    for said in (
        transpose.explain((8, 16), x, y, threads=1, database=""),
        transpose.explain((8, 16), x, y, threads=2),
        transpose.explain((16, 8), x.T, y.T, threads=1),
        transpose.explain((8, 16), x, y, threads=1, offset=(0, 8)),
    ):
        assert "TILE=4\nchosen by: the first of those declared" in said
    said = transpose.explain((8, 16), x, y, threads=1, tunables={"TILE": 8})
    assert "TILE=8\nchosen by: the caller" in said


def test_rows_that_do_not_hold(tmp_path: Path) -> None:
    """A value that is not declared, and a config of another kind: the next one, and said so."""
    path = tmp_path / "tuned.db"
    _stored(path, {"TILE": 3}, seconds=1e-4)
    _stored(path, "PlainConfig()", seconds=2e-4)
    _stored(path, {"TILE": 8}, seconds=3e-4)
    x, y = _arrays()
    with pytest.warns(TuningWarning) as said:
        text = transpose.explain((8, 16), x, y, threads=1, database=path)
    assert "TILE=8\nchosen by: row 3" in text
    assert "row 1" in str(said[0].message) and "TILE is 3" in str(said[0].message)
    assert "row 2" in str(said[1].message) and "no launch" in str(said[1].message)


def test_another_text_of_the_function_is_another_kernel(tmp_path: Path) -> None:
    """Where only a value that is not the first one leads to other code, too."""
    text = "N = tw.tunable('N', (1, 2))\n@tw.kernel\ndef k(x: tw.array('f32', 1)):\n"
    text += "    i = tw.global_id(0)\n    x[i] = 1\n    if N == 2:\n        x[i] = {}\n"
    keys = set()
    for value in (3, 4):
        kernel = defined(text.format(value))["k"]
        launch = Launch(Grid(8), (np.zeros(8, np.float32),))
        keys.add(kernel.launches.asked(kernel.launches.decided(launch), launch).kernel)
    assert len(keys) == 2


def test_bound_launches_see_what_changes_outside() -> None:
    """Repeated launches are not checked whole, but for names that stand for something else."""

    def of(count: int) -> Any:
        added = count

        @tw.kernel
        def inner(x: tw.array("s32", 1)):
            x[tw.global_id(0)] += added

        def change(value: int) -> None:
            nonlocal added
            added = value

        return inner, change

    kernel, change = of(3)
    space = defined(
        "N = 3\n@tw.kernel\ndef k(x: tw.array('s32', 1)):\n    x[tw.global_id(0)] += N\n"
    )
    set_name = lambda value: space.update(N=value)  # noqa: E731
    for function, changed in ((kernel, change), (space["k"], set_name)):
        x = np.zeros(4, np.int32)
        for _ in range(4):
            function.launch(4, x, threads=1)
        assert (x == 12).all()
        assert function.launches._bound._calls
        changed(5)
        with pytest.raises(KernelError, match=r"was 3 when .* was compiled, and is 5"):
            function.launch(4, x, threads=1)
        changed(3)
        function.launch(4, x, threads=1)
        assert (x == 15).all()
