"""Recipes that users register: chosen, scheduled, cached, and told when they are wrong."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.engine.compile import forget
from tilewright.errors import ScheduleError
from tilewright.ir.stmt import Compute, Kernel, LoopKind
from tilewright.ir.visit import walk_stmts
from tilewright.recipes.config import ContractionConfig, parse_config
from tilewright.recipes.recipe import Recipe
from tilewright.recipes.start import Start

# A product of three operands, of which the greatest counts.
BEST = """
kernel best(in a: f32[24, 16], in b: f32[16, 32], in c: f32[24, 32], out d: f32[24, 32]):
  compute start(i in 24, j in 32):
    d[i, j] = -inf
  compute best(i in 24, j in 32, k in 16):
    x = a[i, k]
    y = b[k, j]
    z = c[i, j]
    d[i, j] max= x * y * z
"""


class RowsConfig(tw.Config):
    """How many rows at a time."""

    rows: int


class Rows(Recipe[RowsConfig]):
    """Rows on threads, and so many of them at a time."""

    name, config = "rows", RowsConfig

    def __init__(self, seconds: float | None = None) -> None:
        self.seconds = seconds

    def matches(self, start: Start, machine: Any) -> bool:
        names = {s.name for s in walk_stmts(start.kernel.body) if isinstance(s, Compute)}
        return names == {"start", "best"}

    def space(self, start: Start, machine: Any) -> Any:
        return [RowsConfig(rows) for rows in (2, 4, 8)]

    def predict(self, start: Start, machine: Any, config: RowsConfig) -> float | None:
        return None if self.seconds is None else self.seconds / config.rows

    def schedule(self, s: Any, machine: Any, config: RowsConfig) -> None:
        loops = s.tile("best", {"i": config.rows, "k": 1})
        s.lower_computes(["start", "best"], vector="j", lanes=8)
        s.set_kind([loops["i"]], LoopKind.PARALLEL)


@pytest.fixture
def kernel() -> Iterator[Kernel]:
    forget()
    yield tw.parse_kernel(BEST)
    for name in ("rows", "products"):
        with suppress(ScheduleError):
            tw.unregister_recipe(name)
    forget()


def check(made: Any) -> None:
    rng = np.random.default_rng(0)
    a, b, c = (rng.integers(-3, 4, shape).astype("f4") for shape in ((24, 16), (16, 32), (24, 32)))
    wanted = (a[:, :, None] * b[None] * c[:, None, :]).max(axis=1)
    np.testing.assert_array_equal(made(a=a, b=b, c=c), wanted)


def test_a_recipe_is_taken(kernel: Kernel) -> None:
    check(tw.compile(kernel, "x86:avx2"))
    tw.register_recipe(Rows())
    result = tw.compile(kernel, "x86:avx2", threads=2)
    assert result.config == RowsConfig(2)
    assert parse_config(repr(result.config)) == result.config
    assert result.source("schedule").count("set_kind") == 1
    check(result)
    # From the disk, and what it takes to show it, too.
    forget()
    again = tw.compile(kernel, "x86:avx2", threads=2)
    assert again.from_cache and again.config == result.config
    assert again.source("llvm") == result.source("llvm")
    other = tw.compile(kernel, "x86:avx2", config="rows=8")
    assert other.source("llvm") != result.source("llvm")
    check(other)
    tw.unregister_recipe("rows")
    assert not isinstance(tw.compile(kernel, "x86:avx2").config, RowsConfig)
    with pytest.raises(ScheduleError, match="no recipe is registered for RowsConfig"):
        result.__class__.schedule.func(again)


def test_the_least_predicted_time_is_taken(kernel: Kernel) -> None:
    class Products(Rows):
        name = "products"

        def matches(self, start: Start, machine: Any) -> bool:
            return True

        def schedule(self, s: Any, machine: Any, config: RowsConfig) -> None:
            s.lower_computes()

    op = tw.matmul("64x64:64x64")
    for seconds, taken in ((1e3, ContractionConfig), (1e-12, RowsConfig), (None, RowsConfig)):
        tw.register_recipe(Products(seconds))
        result = tw.compile(op, "x86:avx2")
        assert isinstance(result.config, taken)
        if isinstance(result.config, RowsConfig) and seconds is not None:
            assert result.config.rows == 8
        tw.unregister_recipe("products")


def broken(**changes: Any) -> Any:
    return type("Broken", (Rows,), changes)()


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"matches": lambda *_: 1 / 0}, "failed: ZeroDivisionError"),
        ({"space": lambda *_: []}, "has nothing to choose"),
        ({"space": lambda *_: [3]}, "offers 3"),
        ({"space": lambda *_: [RowsConfig("2")]}, "rows='2' is not a whole number, 1 or more"),
        ({"space": lambda *_: [RowsConfig(columns=3)]}, "failed: TypeError"),
        ({"schedule": lambda _, s, *rest: s.tile("best", {"l": 2})}, "cannot schedule: tile"),
        ({"predict": lambda *_: "soon"}, "predicts 'soon'"),
        ({"predict": lambda *_: -1}, "predicts -1"),
        ({"schedule": lambda *_: None}, "offers what it cannot schedule: compute"),
        ({"schedule": lambda _, s, *rest: s.none()}, "failed: AttributeError"),
    ],
)
def test_recipes_that_lie(kernel: Kernel, changes: dict[str, Any], what: str) -> None:
    tw.register_recipe(broken(**changes))
    with pytest.raises(ScheduleError) as caught:
        tw.compile(kernel, "x86:avx2")
    assert what in str(caught.value)
    tw.unregister_recipe("rows")
    check(tw.compile(kernel, "x86:avx2"))


def test_what_is_no_recipe(kernel: Kernel) -> None:
    with pytest.raises(ScheduleError, match=r"not derived from tw\.Recipe"):
        tw.register_recipe(3)  # type: ignore[arg-type]
    with pytest.raises(ScheduleError, match="its config is no class"):
        tw.register_recipe(broken(config=int))
    odd = type("OddConfig", (tw.Config,), {"__annotations__": {"rows": list[int]}})
    with pytest.raises(ScheduleError, match=r"a choice of OddConfig has no form: list\[int\]"):
        odd([3])
    share = type("ShareConfig", (tw.Config,), {"__annotations__": {"share": float}})
    assert repr(parse_config("ShareConfig(share=0.5)")) == repr(share(0.5))
    with pytest.raises(ScheduleError, match="share=nan is not a finite number"):
        share(float("nan"))
    with pytest.raises(ScheduleError, match="PlainConfig is a config of a recipe that ships"):
        type("PlainConfig", (tw.Config,), {"__module__": __name__})
    with pytest.raises(ScheduleError, match="its name is no identifier"):
        tw.register_recipe(broken(name="two words"))
    tw.register_recipe(Rows())
    with pytest.raises(ScheduleError, match="there is a recipe called 'rows'"):
        tw.register_recipe(Rows())
    with pytest.raises(ScheduleError, match="no recipe called 'columns'"):
        tw.unregister_recipe("columns")
