"""Errors that are met in several places of the queues."""

from __future__ import annotations

from tilewright.errors import ArgumentError, QueueError, one_of, short
from tilewright.queues.events import Event
from tilewright.runtime.array_info import describe_error


def skipped(event: Event, cause: Event) -> QueueError:
    """The error of a command that needs what failed."""
    error = QueueError(
        f"{event.name} cannot run",
        where=f"submitted at {event.place}",
        why=f"{cause.name}, submitted at {cause.place}, failed, on which it depends: "
        + describe_error(cause.error or RuntimeError()),
        cure="mend what failed; to write over it, fill the buffer, or pass buffer.discard()",
    )
    error.__cause__ = cause.error
    return error


def of_parent(event: Event) -> QueueError:
    """The error for a command that was not finished when the process was forked."""
    return QueueError(
        f"{event.name} was not finished when the process was forked",
        where=f"submitted at {event.place}",
        why="the workers that run it are threads of the parent",
        cure="wait for it before the fork",
    )


def submits_inside(inside: str) -> QueueError:
    """The error for a submission from what runs on a worker."""
    return QueueError(
        f"{inside} submits a command, or looks into a buffer",
        why="workers of the queues run it, and go on when it returns",
        cure="submit from threads of the program; a host task gets the arrays of its arguments",
    )


def waits_inside(inside: str, event: Event) -> QueueError:
    """The error for a wait in what runs on a worker."""
    return QueueError(
        f"{inside} waits for {event.name}",
        where=f"submitted at {event.place}",
        why="workers of the queues run it, and go on when it returns",
        cure="let another command depend on the event",
    )


def waits_for_itself(event: Event) -> QueueError:
    """The error for a wait for what comes after a host access of the same thread."""
    return QueueError(
        f"this thread waits for {event.name}, which waits for it",
        where=f"submitted at {event.place}",
        why="the thread has the memory, by a host access that has not ended",
        cure="wait behind the `with` of the host access",
    )


def closed_buffer(what: str) -> QueueError:
    """The error for a command on a buffer that was closed."""
    return QueueError(
        f"{what} is given a buffer that is closed",
        why="its memory may be another's",
        cure="submit before the buffer's close",
    )


def closed_queue() -> QueueError:
    """The error for a submission to a queue that was closed."""
    return QueueError("the queue is closed", cure="submit before its close, or make another")


def forked_queue() -> QueueError:
    """The error for a submission to a queue of the parent process."""
    return QueueError(
        "the queue is of the process that forked this one",
        why="its workers are threads of that process",
        cure="make a queue in the child",
    )


def of_device(what: str, device: str, wanted: str) -> QueueError:
    """The error for a buffer of another device."""
    return QueueError(
        f"{what} is a buffer of {device}, and the queue is one of {wanted}",
        cure="queue.copy() brings it to a buffer of this queue",
    )


def no_event(value: object) -> ArgumentError:
    """The error for what is no event."""
    return ArgumentError(
        f"{short(value)} is no event", cure="pass what submissions gave: depends_on=[event]"
    )


def unknown_mode(mode: object, modes: tuple[str, ...]) -> ArgumentError:
    """The error for a host access of an unknown kind."""
    return ArgumentError(f"there is no host access {short(mode)}", cure=one_of(mode, modes))
