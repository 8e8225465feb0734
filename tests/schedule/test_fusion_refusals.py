"""What does not become one kernel, or stays in memory, and the reasons."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

import tilewright as tw
from fusion_cases import (
    add,
    chain,
    count,
    halve_positive,
    member,
    mirror,
    scale,
    shift,
    twos,
    whole,
)
from tilewright.errors import FusionError
from tilewright.schedule.fusion.joined import Memory, joined
from tilewright.schedule.fusion.members import Fusion, Member


def memory(fusion: Fusion, name: str) -> Memory:
    (result,) = (candidate for candidate in joined(fusion).memories if candidate.name == name)
    return result


def refusal(fusion: Fusion) -> str:
    with pytest.raises(FusionError) as caught:
        joined(fusion)
    return str(caught.value)


# What fusion is given.


def test_no_kernels() -> None:
    assert "no kernels to fuse" in refusal(Fusion(()))


@pytest.mark.parametrize("name", ["a", "t", "global_0"])
def test_an_argument_that_is_missing(name: str) -> None:
    arguments = {"a": 1.0, "x": "x", "t": "t", "global_0": 8}
    del arguments[name]
    message = refusal(Fusion((Member(scale.over(1), arguments),)))
    assert f"the argument {name} is missing" in message


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"promote": {"t": "shared"}}, "t is promoted to 'shared'"),
        ({"promote": {"v": "any"}}, "no argument is called 'v'"),
        ({"constants": {"b": 1.0}}, "no argument is called 'b'"),
    ],
)
def test_settings_that_mean_nothing(settings: Mapping[str, object], message: str) -> None:
    with pytest.raises(FusionError, match=message):
        chain((scale, "axt"), **settings)


def test_a_parameter_that_a_kernel_has_not() -> None:
    with pytest.raises(FusionError, match="the kernel scale has no parameter 'b'"):
        Fusion((Member(scale.over(1), {"b": "b"}),))


def test_memory_of_one_name_is_of_one_type_and_shape() -> None:
    assert "memory of one name has one type" in refusal(chain((scale, "axt"), (whole, "ty")))
    sizes = Fusion((member(scale, "axt", 64), member(add, "ty", 32)))
    assert "t is `inout t: f32[64]` and `in t: f32[32]`" in refusal(sizes)
    assert "x is `x: f32` and `in x: f32[x_0]`" in refusal(chain((scale, "xxt")))


def test_work_items_and_computes_are_not_mixed() -> None:
    text = """
kernel twice(in t: f32[64], out y: f32[64]):
  compute twice(i in 64):
    t = t[i]
    y[i] = t + t
"""
    twice = Member(tw.parse_kernel(text), {"t": "t", "y": "y"})
    assert "launched in another way" in refusal(Fusion((member(twos, "xt", 64), twice)))


# Elements that go from one work-item to another.


def test_elements_that_go_to_another_workgroup() -> None:
    message = refusal(chain((scale, "axt"), (shift, "ty"), size=128, local=64))
    assert "an element of t may go from one workgroup to another" in message
    assert "t[group_0 * 64 + local_0] in number 1" in message
    assert "in number 2: `y[group_0 * 64 + local_0] = t[" in message


def test_elements_that_go_to_another_work_item_need_a_barrier() -> None:
    steps = [(scale, "axt"), (mirror, "ty")]
    assert joined(chain(*steps, size=128, local=64)).barriers == (1,)
    message = refusal(chain(*steps, size=128, local=64, barriers=False))
    assert "from one work-item to another without a barrier" in message


def test_barriers_stand_only_where_accesses_need_them() -> None:
    steps = [(scale, "axt"), (add, "ty"), (mirror, "tu"), (mirror, "tv"), (add, "uv")]
    assert joined(chain(*steps, size=128, local=64)).barriers == (2,)


def test_what_is_read_is_not_written_too_early() -> None:
    """A barrier for a write after a read."""
    steps = [(mirror, "xy"), (scale, "atx")]
    assert joined(chain(*steps, size=128, local=64)).barriers == (1,)


# Memory that is promoted.


def test_two_work_items_touch_an_element() -> None:
    fusion = chain((scale, "axt"), (mirror, "ty"), size=128, local=64, promote={"t": "private"})
    result = memory(fusion, "t")
    assert result.promoted is None
    assert "more than one work-item may touch an element" in result.why
    assert "in number 1: `t[group_0 * 64 + local_0] = a * x[" in result.why
    assert "in number 2: `y[group_0 * 64 + local_0] = t[" in result.why


def test_what_is_read_has_to_be_written() -> None:
    result = memory(chain((add, "ty"), (scale, "axt"), promote={"t": "any"}), "t")
    assert result.promoted is None
    assert "may read what it did not write before" in result.why


def test_one_branch_of_two_writes() -> None:
    @tw.kernel
    def positive(x: tw.array("f32", 1), t: tw.array("f32", 1)):
        i = tw.global_id(0)
        if x[i] > 0.0:
            t[i] = x[i]

    fusion = chain((positive, "xt"), (add, "ty"), size=64, promote={"t": "any"})
    assert "may read what it did not write before" in memory(fusion, "t").why
    both = chain((halve_positive, "xt"), (add, "ty"), size=64, promote={"t": "any"})
    assert memory(both, "t").promoted == "private"


def test_a_condition_that_changes_in_between_proves_nothing() -> None:
    @tw.kernel
    def changing(x: tw.array("f32", 1), t: tw.array("f32", 1)):
        i = tw.global_id(0)
        if x[i] > 0.0:
            t[i] = 1.0
        x[i] = 1.0 - x[i]
        if not x[i] > 0.0:
            t[i] = 2.0

    fusion = chain((changing, "xt"), (add, "ty"), size=64, promote={"t": "any"})
    assert "may read what it did not write before" in memory(fusion, "t").why


def test_memory_whose_address_is_taken() -> None:
    fusion = chain((count, "xt"), (whole, "ty"), size=64, promote={"t": "private"})
    assert "it escapes: atomic_add takes its address" in memory(fusion, "t").why


def test_scopes_of_members() -> None:
    def scopes(first: str | None, second: str | None, **whole: str) -> Fusion:
        members = (
            member(scale, "axt", 64, 64, {"t": first} if first else {}),
            member(add, "ty", 64, 64, {"t": second} if second else {}),
        )
        return Fusion(members, promote=whole)

    assert memory(scopes("private", "private"), "t").promoted == "private"
    assert memory(scopes("any", "local"), "t").promoted == "local"
    assert memory(scopes(None, "local"), "t").why == (
        "it may be read afterwards: scale, number 1 of 2 gives it no scope"
    )
    assert memory(scopes(None, None, t="local"), "t").promoted == "local"
    mixed = "t is promoted to private memory and to local memory"
    assert mixed in refusal(scopes("private", "local"))
    assert mixed in refusal(scopes(None, "local", t="private"))


def test_more_than_a_work_item_has() -> None:
    @tw.kernel
    def rows(x: tw.array("f32", 1), t: tw.array("f32", 2)):
        i = tw.global_id(0)
        for k in range(2048):
            t[i, k] = x[i]

    @tw.kernel
    def sums(t: tw.array("f32", 2), y: tw.array("f32", 1)):
        i = tw.global_id(0)
        for k in range(2048):
            y[i] = y[i] + t[i, k]

    fusion = chain((rows, "xt"), (sums, "ty"), promote={"t": "private"})
    assert "a work-item has 1 x 2048 elements, more than 4096 bytes" in memory(fusion, "t").why


def test_elements_of_a_pair_in_loops() -> None:
    assert (
        memory(chain((twos, "xt"), (twos, "ty"), promote={"t": "any"}), "t").promoted == "private"
    )
