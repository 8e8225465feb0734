"""Random products of weights that commands of two queues write in all ways: packed weights are
those of what was written, also where a product runs late; and two faults, which are found."""

from __future__ import annotations

import random
from functools import cache
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from needs import needs_x86
from tilewright.queues.scheduler import Scheduler
from tilewright.queues.spans import Span

K, N = 8, 16
pytestmark = needs_x86


@cache
def product(rows: int) -> Any:
    compiled = tw.compile(tw.matmul(f"{rows}x{K}:{K}x{N}"), "x86")
    assert compiled.packed
    return compiled


class Weights:
    """A buffer of weights, and what it has to contain."""

    def __init__(self, queue: tw.Queue) -> None:
        self.buffer = queue.buffer(shape=(K, N), dtype="f32")
        self.expected = np.zeros((K, N), np.float32)
        queue.fill(self.buffer, 0.0)

    def write(self, draw: random.Random, queue: tw.Queue, other: Weights) -> None:
        """Writes some of it, or all, in one of the ways that there are."""
        value, rows = float(draw.randrange(9)), slice(draw.randrange(4), draw.randrange(5, 9))
        how = draw.randrange(5)
        if how == 0:
            queue.fill(self.buffer[rows], value)
        elif how == 1:
            with self.buffer.host("write") as values:
                values[rows] = value
        elif how == 2:
            queue.host_task(lambda values: values[rows].fill(value), self.buffer)
        elif how == 3:
            given = np.asarray(self.buffer)  # from now on nobody knows who writes it
            given[rows] = value
        else:
            queue.copy(self.buffer, other.buffer)
            self.expected[:] = other.expected
            return
        self.expected[rows] = value


def wrong(seed: int) -> int:
    """How many products of the program of this seed are wrong."""
    draw = random.Random(seed)
    with tw.Queue("x86") as first, tw.Queue("x86", in_order=draw.random() < 0.5) as second:
        src = {rows: first.buffer(np.ones((rows, K), np.float32)) for rows in (4, 6)}
        both = [Weights(first) for _ in range(2)]
        products: list[tuple[tw.Buffer, np.ndarray]] = []
        for _ in range(draw.randint(4, 20)):
            queue, weights = draw.choice((first, second)), draw.choice(both)
            if draw.random() < 0.5:
                other = both[1 - both.index(weights)]
                weights.write(draw, queue, other)
                continue
            rows = draw.choice((4, 6))
            taken = {"src": src[rows], "weights": weights.buffer}
            if draw.random() < 0.6:
                event = queue.submit(product(rows), **taken)
            else:
                with queue.fusion():
                    results = queue.submit(product(rows), **taken).results["dst"]
                    event = queue.submit(tw.elementwise(f"{rows}x{N}", "relu"), src=results)
            products.append((event.results["dst"], weights.expected.sum(0)))
        return sum(not (result.numpy() == expected).all() for result, expected in products)


def test_products() -> None:
    assert [seed for seed in range(60) if wrong(seed)] == []


def test_contents_that_seem_to_stay_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Scheduler, "version", lambda self, span: 0)
    assert any(map(wrong, range(60)))


def test_a_write_to_come_that_counts_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Span, "written", True)
    assert any(map(wrong, range(200)))
