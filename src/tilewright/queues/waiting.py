"""Waiting for several events."""

from __future__ import annotations

from collections.abc import Iterable

from tilewright.queues.checks import events_of
from tilewright.queues.events import Event, command_of


def wait(events: Iterable[Event] | Event) -> None:
    """Returns when all ``events`` are finished. Raises the first of their errors, as `Event.wait`
    does."""
    every = (command_of(events),) if isinstance(events, Event) else events_of(events)
    for event in every:
        event.scheduler.wait(event)
    for event in every:
        event.wait()
