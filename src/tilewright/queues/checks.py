"""What users pass to queues, checked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from numpy.typing import NDArray

from tilewright.errors import ArgumentError, short
from tilewright.queues.buffers import Buffer, checked_scope
from tilewright.queues.events import Event, command_of
from tilewright.queues.refusals import no_event


def promoted_of(promote: Mapping[Buffer, str] | None) -> tuple[tuple[Buffer, str], ...]:
    """The buffers that are promoted, with their scopes. Raises `ArgumentError`."""
    pairs = () if promote is None else tuple(promote.items())
    for buffer, scope in pairs:
        checked_scope(scope, buffer)
        if not isinstance(buffer, Buffer):
            raise ArgumentError(
                f"{short(buffer)} is promoted", cure="promote buffers, which queue.buffer gives"
            )
    return pairs


def check_options(what: Any, arguments: tuple[Any, ...], options: tuple[Any, ...]) -> None:
    """Raises `ArgumentError` for what only launches take."""
    if arguments or any(option is not None for option in options):
        raise ArgumentError(
            f"{short(what)} is submitted with a range, or arguments in order",
            why="that is for functions with @tw.kernel",
            cure="pass its arguments by name: queue.submit(kernel, src=x, dst=y)",
        )


def events_of(events: Any) -> Sequence[Event]:
    """The events that a caller lists. Raises `ArgumentError` for what is none."""
    if events.__class__ is tuple and not events:
        return ()
    if isinstance(events, Event) or not isinstance(events, Iterable):
        raise no_event(events)
    every = tuple(events)
    for event in every:
        if not isinstance(event, Event):
            raise no_event(event)
    return [command_of(event) for event in every]


def check_writable(array: NDArray[Any], name: str) -> None:
    """Raises `ArgumentError` for an array that is read-only."""
    if not array.flags.writeable:
        raise ArgumentError(
            f"{name} is read-only", where=name, cure="pass a buffer of an array that is writable"
        )


def check_fusion(fusion: Any) -> None:
    """Raises `ArgumentError` for what a queue does not know of fusion."""
    if fusion is not None and fusion != "auto":
        raise ArgumentError(
            f"a queue is made with fusion={short(fusion)}",
            cure='write fusion="auto", or leave it out and use start_fusion and complete_fusion',
        )
