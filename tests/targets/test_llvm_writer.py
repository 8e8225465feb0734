"""Values that a block has are not written again, where the dialect says so."""

from __future__ import annotations

from tilewright.targets.llvm.dialect import Dialect
from tilewright.targets.llvm.writer import Writer

ADD, LOAD = "add i32 %a, 1", "load i32, ptr %p"


def once() -> Writer:
    return Writer({}, Dialect(reuses_values=True))


def test_a_value_is_written_once() -> None:
    w = once()
    assert w.assign(ADD) == w.assign(ADD)
    assert w.lines == ["  %v1 = add i32 %a, 1"]


def test_other_dialects_write_it_each_time() -> None:
    w = Writer({})
    assert w.assign(ADD) != w.assign(ADD)


def test_memory_may_have_changed() -> None:
    w = once()
    assert w.assign(LOAD) != w.assign(LOAD)


def test_another_block_does_not_have_it() -> None:
    w = once()
    first = w.assign(ADD)
    w.jump("next")
    w.start("next")
    assert w.assign(ADD) != first


def test_what_stood_before_a_condition_holds_inside_and_behind() -> None:
    w = once()
    before = w.assign(ADD)
    with w.where("%c"):
        assert w.assign(ADD) == before
        inside = w.assign("mul i32 %a, 3")
    assert w.assign(ADD) == before
    assert w.assign("mul i32 %a, 3") != inside
