"""Memory that commands touch: which come before which.

A `Span` is a run of bytes. It has the last command that writes it, and those that read it since.
Spans that overlap are peers: who touches one asks the others, too. (A strided view is the bytes
from its first element to its last: two that interleave wait for each other without need.)
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterable

from tilewright.queues.events import DONE, FAILED, Event

# What a command does with memory. To write without reading needs none of what is there.
READ, WRITE = 1, 2
# Readers of a span are looked through for finished ones when there are so many, at least.
_FEW_READERS = 16


class Span:
    """Bytes from ``start`` up to ``end``; both 0 while no memory was allocated."""

    __slots__ = (
        *("closed", "end", "holder", "peers", "readers", "room", "shared", "start", "users"),
        *("version", "writer"),
    )

    def __init__(self, start: int = 0, end: int = 0) -> None:
        self.start = start
        self.end = end
        self.writer: Event | None = None
        self.readers: list[Event] = []
        self.room = _FEW_READERS
        self.peers: list[Span] = []
        # Commands that touch it, of a span that no buffer has; see `Spans.borrow`.
        self.users = 0
        self.closed = False
        # Counts the commands that write it, or some of it.
        self.version = 0
        # Whether others than commands may write the memory: it is the caller's, or was given away.
        self.shared = False
        # The buffer that a caller has of it, where commands hold only what is inside of that.
        self.holder: Callable[[], object] | None = None

    @property
    def dead(self) -> bool:
        """Whether no later command, and no host, looks at it: nobody has its buffer, or a part."""
        lost = self.holder is not None and self.holder() is None
        return lost and not self.shared and not self.peers

    def before(self, access: int, edges: list[tuple[Event, bool]]) -> None:
        """Appends to ``edges`` the commands that come before one with this ``access``, with whether
        it needs what they write."""
        needs = bool(access & READ)
        for span in (self, *self.peers) if self.peers else (self,):
            writer = span.writer
            if writer is not None and writer.state is not DONE:
                edges.append((writer, needs))
            if access & WRITE:
                for reader in span.readers:
                    if reader.state is not DONE and reader.state is not FAILED:
                        edges.append((reader, False))

    def claim(self, access: int, event: Event) -> None:
        """Makes ``event`` the last command with this ``access``."""
        if access & WRITE:
            self.writer = event
            self.version += 1
            for peer in self.peers:
                peer.version += 1
            if self.readers:
                self.readers = []
        else:
            self.readers.append(event)
            if len(self.readers) > self.room:
                self.readers = [reader for reader in self.readers if not reader.finished]
                self.room = max(_FEW_READERS, 2 * len(self.readers))

    @property
    def written(self) -> bool:
        """Whether all commands are finished that write it, or some of it."""
        return all(span.writer is None or span.writer.finished for span in (self, *self.peers))


class Spans:
    """The spans that have memory, and which of them overlap. The scheduler's lock guards it."""

    def __init__(self) -> None:
        # By address: (start, end, serial, span), as spans cannot be compared.
        self._sorted: list[tuple[int, int, int, Span]] = []
        self._serial = 0
        self._longest = 0
        self._borrowed: dict[tuple[int, int], Span] = {}

    def add(self, span: Span) -> None:
        """Makes ``span``, which has memory now, a peer of all that overlap it."""
        for other in self._overlapping(span):
            other.peers.append(span)
            span.peers.append(other)
        self._serial += 1
        self._longest = max(self._longest, span.end - span.start)
        insort(self._sorted, (span.start, span.end, self._serial, span))

    def remove(self, span: Span) -> None:
        """Forgets ``span``, whose memory no command touches any more."""
        for other in span.peers:
            other.peers.remove(span)
        span.peers.clear()
        self._sorted = [entry for entry in self._sorted if entry[3] is not span]

    def borrow(self, start: int, end: int) -> Span:
        """The span of an array of somebody else's, for one more command; `give_back` ends that."""
        span = self._borrowed.get((start, end))
        if span is None:
            span = self._borrowed[start, end] = Span(start, end)
            self.add(span)
        span.users += 1
        return span

    def give_back(self, spans: Iterable[Span]) -> None:
        """A command is finished that touched these borrowed spans."""
        for span in spans:
            span.users -= 1
            # What a failed command should have written is known as long as the array's memory may
            # be: a later command on the same bytes would be another array's.
            if not span.users:
                del self._borrowed[span.start, span.end]
                self.remove(span)

    def _overlapping(self, span: Span) -> list[Span]:
        if span.start == span.end:
            return []
        first, last = 0, len(self._sorted)
        low = span.start - self._longest
        while first < last:
            middle = (first + last) // 2
            if self._sorted[middle][0] < low:
                first = middle + 1
            else:
                last = middle
        overlapping: list[Span] = []
        for start, end, _, other in self._sorted[first:]:
            if start >= span.end:
                break
            if end > span.start and end > start:
                overlapping.append(other)
        return overlapping
