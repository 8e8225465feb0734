"""What is chosen for a kernel, once: by who predicts its time, or by who compiles it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from needs import needs_x86
from tilewright.engine import choosing
from tilewright.engine import compile as engine_compile
from tilewright.engine.choosing import is_chosen, predicted_seconds
from tilewright.engine.disk_cache import open_disk_cache
from tilewright.engine.request import request_of
from tilewright.engine.trace import Trace
from tilewright.errors import ScheduleError
from tilewright.ir.parser import parse_kernel
from tilewright.newest import Newest
from tilewright.recipes import choose
from tilewright.targets.registry import find_target

PRODUCT = """kernel product(in a: f32[24, 40], in b: f32[40, 32], out c: f32[24, 32]):
  compute zero(i in 24, j in 32):
    c[i, j] = 0.0
  compute sums(i in 24, j in 32, k in 40):
    x = a[i, k]
    y = b[k, j]
    c[i, j] add= x * y
"""


@pytest.fixture
def chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Caches that are empty, and the names of kernels for which something was chosen since."""
    names: list[str] = []
    before = choose.choose

    def noted(start: Any, machine: Any) -> Any:
        names.append(start.kernel.name)
        return before(start, machine)

    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("TILEWRIGHT_CACHE", "1")
    for module in (choose, choosing):
        monkeypatch.setattr(module, "choose", noted)
    engine_compile.forget()
    return names


@needs_x86
def test_what_a_prediction_chose_is_compiled_as_it_is(chosen: list[str]) -> None:
    kernel, machine = parse_kernel(PRODUCT), find_target("x86").machine
    seconds = predicted_seconds(kernel, machine, ("b",))
    assert seconds is not None and 0 < seconds < 1
    assert is_chosen(kernel, machine, ("b",)) and not is_chosen(kernel, machine)
    run = tw.compile(kernel, constant=("b",))
    assert chosen == ["product"] and not is_chosen(kernel, machine, ("b",))
    entry = {name: part.binary for name, part in _parts(run).items()}
    engine_compile.forget()
    open_disk_cache().clear()
    again = tw.compile(kernel, constant=("b",))
    assert chosen == ["product"] * 2 and again.config == run.config
    assert {name: part.binary for name, part in _parts(again).items()} == entry
    a, b = (np.random.default_rng(n).random(shape, np.float32) for n, shape in enumerate(SHAPES))
    np.testing.assert_allclose(run(a, run.pack("b", b)), a @ b, 1e-5)


SHAPES = ((24, 40), (40, 32))


def _parts(run: Any) -> dict[str, Any]:
    """What is on disk of a kernel."""
    target = find_target("x86")
    request = request_of(parse_kernel(PRODUCT), ("b",))
    result = open_disk_cache().get(engine_compile._key(request, target, None))
    assert result is not None
    read = engine_compile.read_entry(result, request)
    assert read is not None and read[0] == run.config
    return read[1]


@needs_x86
def test_a_trace_sees_the_choice(chosen: list[str]) -> None:
    kernel = parse_kernel(PRODUCT)
    predicted_seconds(kernel, find_target("x86").machine)
    engine_compile.compile_kernel(kernel, trace=Trace())
    assert chosen == ["product"] * 2


def test_predicted_times_are_on_disk(chosen: list[str]) -> None:
    kernel, machine = parse_kernel(PRODUCT), find_target("x86:avx2").machine
    seconds = predicted_seconds(kernel, machine)
    choosing.forget_choices()
    assert predicted_seconds(kernel, machine) == seconds and chosen == ["product"]
    assert not is_chosen(kernel, machine)
    cache, key = open_disk_cache(), choosing._key(request_of(kernel), machine)
    for count, damaged in enumerate((-1.0, "1", True, None, float("inf")), 2):
        cache.put(key, b"", {"seconds": damaged})
        choosing.forget_choices()
        assert predicted_seconds(kernel, machine) == seconds and len(chosen) == count


def test_machines_of_one_name_differ_in_cores(chosen: list[str]) -> None:
    """As where a process has some of them, or folders are shared by computers."""
    kernel = parse_kernel(PRODUCT.replace("24", "240"))
    one = replace(find_target("x86:avx2").machine, cores=1)
    many, small = replace(one, cores=16), replace(one, caches=(1 << 14, 1 << 15, 1 << 16))
    seconds = predicted_seconds(kernel, one)
    assert seconds is not None and is_chosen(kernel, one)
    assert not is_chosen(kernel, many) and not is_chosen(kernel, small)
    others = predicted_seconds(kernel, many)
    assert others is not None and others < seconds and chosen == ["product"] * 2


def test_another_thread_may_forget(chosen: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choosing, "_seconds", Newest(0))  # forgets at once
    kernel, machine = parse_kernel(PRODUCT), find_target("x86:avx2").machine
    assert predicted_seconds(kernel, machine) == predicted_seconds(kernel, machine) is not None


def test_what_cannot_be_chosen_has_no_time(
    chosen: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> Any:
        raise ScheduleError("nothing fits")

    monkeypatch.setattr(choosing, "choose", refused)
    kernel, machine = parse_kernel(PRODUCT), find_target("x86:avx2").machine
    assert predicted_seconds(kernel, machine) is None and not is_chosen(kernel, machine)
