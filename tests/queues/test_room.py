"""Memory of results and buffers, which others get when nobody looks at it any more."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator

import numpy as np
import pytest

import tilewright as tw
from tilewright.dtypes import dtype
from tilewright.queues import room
from tilewright.queues.room import Room, room_of

SHAPE = (256, 256)


@pytest.fixture(autouse=True)
def without_collector() -> Iterator[None]:
    """Memory comes back by itself: nothing that is finished holds itself."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def bytes_kept(room: Room, at_least: int) -> int:
    """What the room has, when workers have let go of what they ran."""
    for _ in range(200):
        if at_least <= room.bytes:
            break
        time.sleep(0.01)
    return room.bytes


@pytest.mark.parametrize("automatic", [False, True])
def test_memory_is_used_again(queue: tw.Queue, automatic: bool) -> None:
    op = tw.elementwise("256x256", "relu")
    own_room = room_of(queue.device)
    with tw.Queue(queue.device, fusion="auto" if automatic else None) as own:
        x = own.buffer(np.ones(SHAPE, np.float32))
        own_room.clear()
        event = own.submit(op, src=x)
        result = event.results["dst"]
        assert (result.numpy() == 1).all()
        values = result.array  # has the memory as long as it lives
        at = values.ctypes.data
        del event, result
        own.wait()
        assert not own_room.bytes
        del values
        assert bytes_kept(own_room, 1) == 4 * 256 * 256
        other = own.buffer(shape=SHAPE, dtype="f32")
        own.fill(other, 2.0).wait()
        assert other.array.ctypes.data == at and not own_room.bytes
    assert not own_room.bytes


def test_there_is_an_end_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "_MOST", 3 * 2**18)
    own, f32 = Room(), dtype("f32")
    small = own.empty(16, f32)
    arrays = [own.empty(2**16, f32) for _ in range(4)]
    assert all(array.ctypes.data % 64 == 0 for array in (small, *arrays))
    del small
    assert not own.bytes
    arrays.clear()
    assert own.bytes == 3 * 2**18
    half = own.empty(2**16, f32)[: 2**15]
    assert own.bytes == 2 * 2**18
    del half
    assert own.bytes == 3 * 2**18
    own.clear()
    assert not own.bytes
