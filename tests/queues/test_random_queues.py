"""Random programs over two queues, and schedulers with one fault each, which they find."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest

import queue_programs
from needs import needs_nvidia, needs_opencl
from tilewright.queues.events import Batch, Event, HeldList, State, Work
from tilewright.queues.scheduler import SCHEDULER, Scheduler

WITH_DEVICES = (
    pytest.param(("spirv", "x86"), marks=needs_opencl),
    pytest.param(("nvidia", "x86"), marks=needs_nvidia),
)
# Seconds; a program takes milliseconds.
PATIENCE = 60


def watched(run: Callable[[], list[str]]) -> list[str]:
    """What ``run`` returns; fails where it does not end."""
    answers: list[list[str]] = []
    thread = threading.Thread(target=lambda: answers.append(run()), daemon=True)
    thread.start()
    thread.join(PATIENCE)
    assert not thread.is_alive(), "the program does not end"
    assert answers, "the program raised an error"
    return answers[0]


def first_fault(devices: tuple[str, ...], seeds: Sequence[int]) -> str | None:
    for seed in seeds:
        wrong = watched(lambda: queue_programs.faults(seed, devices))  # noqa: B023
        if wrong:
            return f"seed {seed}: {wrong[0]}"
    return None


def test_programs() -> None:
    assert first_fault(("x86",), range(150)) is None


@pytest.mark.parametrize(
    "devices",
    [("interpreter",), ("x86", "interpreter"), *WITH_DEVICES],
    ids="-".join,
)
def test_programs_on_other_devices(devices: tuple[str, ...]) -> None:
    assert first_fault(devices, range(1000, 1030)) is None


@pytest.fixture
def several_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two workers at least, so that what is not ordered runs at once."""
    if SCHEDULER._workers < 2:
        monkeypatch.setenv("TILEWRIGHT_THREADS", "2")
        SCHEDULER._workers = 0


def test_a_dropped_edge_is_noticed(monkeypatch: pytest.MonkeyPatch, several_workers: None) -> None:
    edges = Scheduler._blocking

    def without_the_last(self: Scheduler, event: Event, every: Any) -> Any:
        return edges(self, event, every)[:-1]

    monkeypatch.setattr(Scheduler, "_blocking", without_the_last)
    assert first_fault(("x86",), range(300)) is not None


def test_an_early_release_is_noticed(
    monkeypatch: pytest.MonkeyPatch, several_workers: None
) -> None:
    run = Scheduler._run

    def in_the_background(self: Scheduler, event: Event) -> BaseException | None:
        """Commands count as finished while they run."""
        work, late = event.work, threading.Thread(target=lambda: work and work(1), daemon=True)
        if event.name != "a decision what to fuse":
            event.work = lambda threads: late.start()
        return run(self, event)

    monkeypatch.setattr(Scheduler, "_run", in_the_background)
    assert first_fault(("x86",), range(300)) is not None


def test_a_forgotten_reader_is_noticed(
    monkeypatch: pytest.MonkeyPatch, several_workers: None
) -> None:
    monkeypatch.setattr("tilewright.queues.spans.WRITE", 4)
    assert first_fault(("x86",), range(300)) is not None


def test_a_lost_placeholder_is_noticed(
    monkeypatch: pytest.MonkeyPatch, several_workers: None
) -> None:
    hold = Scheduler._hold

    def without_the_placeholder(self: Scheduler, event: Event, held: HeldList) -> None:
        hold(self, event, held)
        event.dependents.pop()
        held.placeholder.blockers -= 1

    monkeypatch.setattr(Scheduler, "_hold", without_the_placeholder)
    assert first_fault(("x86",), range(300)) is not None


def slowly(work: Any) -> Work:
    def late(threads: int) -> None:
        time.sleep(0.002)
        work(threads)

    return late


def test_a_kernel_that_ends_before_the_one_that_it_became_part_of_is_noticed(
    monkeypatch: pytest.MonkeyPatch, several_workers: None
) -> None:
    merge = Scheduler.merge

    def without_waiting(self: Scheduler, batch: Batch, groups: Any) -> None:
        merge(self, batch, groups)
        for group, _ in groups:
            for event in group[1:]:
                first = event.parts[0]
                first.dependents.remove((event, True))
                event.blockers -= 1

    monkeypatch.setattr(Scheduler, "merge", without_waiting)
    assert first_fault(("x86",), range(300)) is not None


def test_a_fused_kernel_that_forgets_an_edge_is_noticed(
    monkeypatch: pytest.MonkeyPatch, several_workers: None
) -> None:
    merge = Scheduler.merge

    def without_edges(self: Scheduler, batch: Batch, groups: Any) -> None:
        before = [(command, edge) for command in batch.commands for edge in command.dependents]
        merge(self, batch, groups)
        firsts = {group[0] for group, _ in groups}
        for command, (after, _) in before:
            edges = [edge for edge in command.dependents if edge[0] in firsts]
            if after not in firsts and edges:
                command.dependents.remove(edges[0])
                edges[0][0].blockers -= 1

    monkeypatch.setattr(Scheduler, "merge", without_edges)
    assert first_fault(("x86",), range(1000)) is not None


def test_memory_that_is_taken_for_dead_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tilewright.queues.spans.Span.dead", True)
    assert first_fault(("x86",), range(300)) is not None


def test_kernels_that_wait_for_too_much_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def all_of_them(self: Batch, blocking: Any) -> bool:
        return self.decision.state is State.WAITING

    monkeypatch.setattr(Batch, "takes", all_of_them)
    assert first_fault(("x86",), range(300)) is not None


def test_threads_that_submit_to_the_same_queues() -> None:
    assert watched(lambda: queue_programs.together(range(5000, 5040), 2)) == []


def test_memory_that_is_never_given_back_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    spans = type(SCHEDULER.spans)
    monkeypatch.setattr(spans, "give_back", lambda self, borrowed: None)
    try:
        fault = first_fault(("x86",), range(20))
        assert fault is not None
        assert "left in the graph" in fault
    finally:
        SCHEDULER.spans = spans()
