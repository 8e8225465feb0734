"""Arrays and tuples from outside of a kernel that work-items index."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
from needs import DEVICES
from tilewright.errors import KernelError

TARGETS = ("x86", "interpreter", *DEVICES)
WEIGHTS = np.array([[0.5, -1.0, 2.0], [4.0, 0.25, 8.0]], np.float32)
PLACES = np.array([3, 1, 0, 2], np.uint8)
# The bytes of another one, and another type.
BITS = WEIGHTS.view(np.int32)
STEPS = (1, -2, 30)


@tw.function
def weight(row: Any, col: Any) -> Any:
    return WEIGHTS[row, col]


@tw.kernel
def looked_up(x: tw.array("f32", 1), out: tw.array("f32", 1), bits: tw.array("s32", 1)) -> None:
    i = tw.global_id(0)
    factor = weight(i % 2, i % WEIGHTS.shape[1])
    for k in range(len(WEIGHTS)):
        factor += WEIGHTS[k, 0]
    fraction = (0.5, 2)[i % 2]
    out[i] = x[i // 4 * 4 + tw.s32(PLACES[i % 4])] * factor + STEPS[i % 3] * fraction
    bits[i] = BITS[i % 2, 1] + STEPS[1]


@pytest.mark.parametrize("target", TARGETS)
def test_tables(target: str) -> None:
    x = np.arange(24, dtype=np.float32)
    out, bits = np.zeros_like(x), np.zeros(24, np.int32)
    for _ in range(3):
        looked_up.launch(24, x, out, bits, target=target)
    i = np.arange(24)
    factor = WEIGHTS[i % 2, i % 3] + WEIGHTS[:, 0].sum()
    moved = x[i // 4 * 4 + PLACES[i % 4]]
    steps = np.array(STEPS)[i % 3] * np.where(i % 2, 2, 0.5)
    assert (out == moved * factor + steps).all()
    assert (bits == BITS[i % 2, 1] - 2).all()


@tw.kernel
def weighed(x: tw.array("f32", 1), y: tw.array("f32", 1)) -> None:
    i = tw.global_id(0)
    y[i] = x[i] * WEIGHTS[1, i % 3]


def test_tables_in_queues() -> None:
    wanted = np.arange(12, dtype=np.float32) * np.tile(WEIGHTS[1] ** 2, 4)
    for fused in (False, True):
        with tw.Queue("x86") as queue:
            x = queue.buffer(np.arange(12, dtype=np.float32))
            y, z = (queue.buffer(shape=(12,), dtype="f32") for _ in range(2))
            if fused:
                queue.start_fusion()
            queue.submit(weighed, (12,), x, y)
            queue.submit(weighed, (12,), y, z)
            if fused:
                queue.complete_fusion()
            assert (z.numpy() == wanted).all()


def test_a_changed_table_is_refused() -> None:
    table = np.arange(4, dtype=np.float32)

    @tw.kernel
    def taken(out: tw.array("f32", 1)) -> None:
        i = tw.global_id(0)
        out[i] = table[i]

    out = np.zeros(4, np.float32)
    for _ in range(3):
        taken.launch(4, out)
    assert (out == table).all()
    table[2] = 7
    with pytest.raises(KernelError, match=r"table was array.* when taken was compiled"):
        taken.launch(4, out)


def test_a_table_that_cannot_change_is_bound() -> None:
    table = np.arange(4, dtype=np.int64)
    table.flags.writeable = False

    @tw.kernel
    def taken(out: tw.array("s64", 1)) -> None:
        i = tw.global_id(0)
        out[i] = table[3 - i]

    out = np.zeros(4, np.int64)
    for _ in range(4):
        taken.launch(4, out)
    assert (out == table[::-1]).all()


NONE, WORDS = np.zeros(0, np.float32), np.array(["a"])


@tw.kernel
def wrong(out: tw.array("f32", 1), which: tw.constant) -> None:
    i = tw.global_id(0)
    if which == "store":
        WEIGHTS[0, i] = 1.0
    elif which == "empty":
        out[i] = NONE[i]
    elif which == "words":
        out[i] = WORDS[i]
    elif which == "outside":
        out[i] = WEIGHTS[2, 0]
    elif which == "great":
        out[i] = tw.f32((1, 2**70)[i])
    else:
        out[i] = ("a", "b")[i]


@pytest.mark.parametrize(
    ("which", "message"),
    [
        ("store", "a store to WEIGHTS"),
        ("empty", "NONE is an array without elements"),
        ("words", "WORDS is an array of <U1"),
        ("outside", "index 2 of dim 0 of WEIGHTS"),
        ("great", "numbers that s64 does not hold"),
        ("mixed", "has to be known when the kernel is compiled"),
    ],
)
def test_refused(which: str, message: str) -> None:
    with pytest.raises(KernelError, match=message):
        wrong.launch(1, np.zeros(1, np.float32), which, target="interpreter")
