"""The queue that users submit to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from time import perf_counter_ns
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.calls import checked_call
from tilewright.engine.compile import checked_threads
from tilewright.errors import ArgumentError, FusionError, short
from tilewright.queues.buffers import (
    Accessor,
    Buffer,
    around,
    inside,
    is_array,
    new_buffer,
)
from tilewright.queues.checks import (
    check_fusion,
    check_writable,
    events_of,
    promoted_of,
)
from tilewright.queues.decisions import Decisions
from tilewright.queues.events import Arguments, Batch, Event, Outcome, Work, place_of
from tilewright.queues.fusing import Fusions, Options
from tilewright.queues.fusions import FusionBlock, Held, Submission
from tilewright.queues.graph import Touched
from tilewright.queues.planning import (
    Launched,
    Plan,
    Where,
    queue_target,
    touching,
)
from tilewright.queues.plans import Plans
from tilewright.queues.refusals import closed_queue, forked_queue
from tilewright.queues.room import room_of
from tilewright.queues.scheduler import SCHEDULER
from tilewright.queues.spans import READ, WRITE
from tilewright.queues.tracing import Trace, new_trace
from tilewright.recipes.fusing import FusionReport
from tilewright.runtime.memory import memory_of
from tilewright.runtime.remote import copy_elements, fill_elements, lent


class Queue:
    """Runs kernels, copies and functions on a device, when what they depend on is done.

    ``device`` is a target: ``"x86"``, ``"spirv"``, ``"nvidia"``, ``"interpreter"``. Commands that
    touch the same memory keep the order of their submissions, across all queues, where one of them
    writes it; so do all commands of a queue that is ``in_order``, and the interpreter's. Others run
    at once.
    ``threads`` run a kernel that is alone (default: all cores); kernels that run at once share
    them. With ``profile``, events have times. With ``fusion="auto"``, kernels become one where that
    is faster (`fusion_reports`). Several threads may submit.
    """

    @checked_call
    def __init__(
        self,
        device: str = "x86",
        *,
        in_order: bool = False,
        threads: int | None = None,
        profile: bool = True,
        fusion: str | None = None,
    ) -> None:
        """Raises `UnsupportedError` or `DeviceError` for a device that is not here, and
        `ArgumentError` for another ``fusion``."""
        target = queue_target(device)
        self.threads = checked_threads(threads)
        self.in_order = bool(in_order) or not target.schedules
        self.profile = bool(profile)
        self.closed = False
        self.generation = SCHEDULER.generation
        self.unfinished: dict[Event, None] = {}
        self.failures: list[Event] = []
        self.tracing: Trace | None = None
        self._where = Where(target, target.name.partition(":")[0], self.threads)
        self._fusion: Held | None = None
        self.last_fusion: Held | None = None
        self._fusions = Fusions(self._where)
        self.batch: Batch | None = None
        check_fusion(fusion)
        self._decisions = None if fusion is None else Decisions(self._fusions)
        self.decide: Callable[[Batch], None] | None = None
        if self._decisions is not None:
            self.decide = self._decisions.decide
        self._plans = Plans(self._where)
        SCHEDULER.lines.add(self)

    @property
    def device(self) -> str:
        """The target that its kernels run on."""
        return self._where.target.name

    @checked_call
    def buffer(
        self,
        array: Any = None,
        *,
        shape: Sequence[int] | int | None = None,
        dtype: Any = None,
        promote: str | None = None,
    ) -> Buffer:
        """A buffer for queues of this device: in the memory of ``array`` (numpy, torch, DLPack),
        without a copy; or of a ``shape`` and a ``dtype``, in the device's memory, with undefined
        contents. ``promote`` is
        its scope in all fusions (`complete_fusion`). Raises `ArgumentError`, and `UnsupportedError`
        for an unknown type.
        """
        return new_buffer(self._where.device, array, shape, dtype, promote)

    # Commands.

    def submit(
        self,
        what: Any,
        *arguments: Any,
        local: Any = None,
        offset: Any = None,
        tunables: Any = None,
        depends_on: Iterable[Event] = (),
        **arrays: Any,
    ) -> Event:
        """Submits a kernel, and does not wait for it.

        A function with `@tw.kernel` takes the range and its arguments in order, ``local``,
        ``offset`` and ``tunables`` as `KernelFunction.launch` does. All else (an op, a kernel of
        the IR, a graph, or what was compiled) takes its arguments by name; ``event.results`` has
        buffers for results that are not given. Arguments are buffers, accessors, arrays of numpy,
        torch and DLPack, and numbers. The command comes after the events ``depends_on``, and after
        those that the memory of its arguments asks for.

        Raises what compiling and calling do, `QueueError` for a closed queue, a closed buffer, one
        of another device, and where a command failed that it needs.
        """
        place = place_of(1)
        taken = (local, offset, *arguments, *arrays, *arrays.values())
        fusion = self._fusion
        held = fusion is not None
        automatic = self.decide is not None
        if automatic:
            arguments = tuple(map(inside, arguments))
            arrays = {name: inside(array) for name, array in arrays.items()}
        plan = self._plans.of(what, arguments, arrays, local, offset, tunables, taken, held)
        event = self._event(plan.name, plan.work, place)
        if automatic and not held:
            event.plan, event.fuses = plan, isinstance(plan.launched, Launched)
            event.arguments = _by_place(arguments, arrays, plan)
            event.keep = (what, event.arguments)
            SCHEDULER.submit(event, self, plan.touched, events_of(depends_on))
            if not plan.results:
                return event
            return Outcome(event, {name: around(result) for name, result in plan.results.items()})
        event.keep = (what, taken, plan.results)
        outcome = Outcome(event, plan.results) if plan.results else event
        if fusion is None:
            SCHEDULER.submit(event, self, plan.touched, events_of(depends_on))
            return outcome
        event.plan = plan
        event.arguments = _by_place(arguments, arrays, plan)
        after = fusion.held.inside(events_of(depends_on))
        SCHEDULER.submit(event, self, plan.touched, after, fusion.held)
        if fusion.records:
            options = local, offset, tunables
            fusion.submissions.append(Submission(what, arguments, arrays, *options, plan.results))
        if event.held is None:  # the list was let go
            if not fusion.records:
                self._fusion = None
            return outcome
        if plan.results:
            fusion.event.results = {**fusion.event.results, **plan.results}
        return fusion.event

    @checked_call
    def copy(self, to: Any, source: Any, *, depends_on: Iterable[Event] = ()) -> Event:
        """Copies the elements of ``source`` to ``to``: buffers of any device, or arrays, of one
        shape and type. Raises `ArgumentError` for others."""
        read, written = self._memory(source, "source"), self._memory(to, "to")
        if read.shape != written.shape or read.dtype != written.dtype:
            raise ArgumentError(
                f"{read.dtype}{list(read.shape)} is copied to {written.dtype}{list(written.shape)}",
                cure="pass two of one shape and type",
            )
        check_writable(written, "to")

        def work(threads: int) -> None:
            copy_elements(written, read)

        touched = [touching(source, READ, "source"), touching(to, WRITE, "to")]
        return self._plain("copy", work, touched, (to, source), depends_on)

    @checked_call
    def fill(self, buffer: Any, value: Any, *, depends_on: Iterable[Event] = ()) -> Event:
        """Makes ``value`` every element of a buffer or an array. Raises `ArgumentError` for what
        is no such number."""
        written = self._memory(buffer, "buffer")
        check_writable(written, "buffer")
        try:
            element = np.full((), value, written.dtype)
        except (TypeError, ValueError, OverflowError) as error:
            raise ArgumentError(
                f"{short(value)} is no element of {written.dtype}",
                why=str(error),
                cure="pass a number of the buffer's type",
            ) from error

        def work(threads: int) -> None:
            fill_elements(written, element)

        touched = [touching(buffer, WRITE, "buffer")]
        return self._plain("fill", work, touched, (buffer,), depends_on)

    @checked_call
    def host_task(
        self,
        function: Callable[..., object],
        *arguments: Any,
        depends_on: Iterable[Event] = (),
    ) -> Event:
        """Calls ``function`` on a worker: with numpy arrays for buffers, accessors and arrays
        (read-only for `Buffer.read`; without an accessor they are read and written), and all else
        as it is.

        The function neither submits nor waits. What it raises, `Event.wait` raises.
        """
        if not callable(function):
            raise ArgumentError(f"{short(function)} is no function", cure="pass one to call")
        values: list[Any] = []
        lendings: dict[int, bool] = {}
        touched: list[Touched] = []
        for position, argument in enumerate(arguments):
            name = f"argument {position}"
            value = argument
            if isinstance(argument, Buffer | Accessor) or is_array(argument):
                value = self._memory(argument, name)
                said = argument.access if isinstance(argument, Accessor) else READ | WRITE
                if not value.flags.writeable:
                    said &= READ
                touched.append(touching(argument, said, name))
                value = value.view()
                value.flags.writeable = bool(said & WRITE)
                lendings[position] = bool(said & READ)
            values.append(value)

        def work(threads: int) -> None:
            with ExitStack() as stack:
                passed = values.copy()
                for position, reads in lendings.items():
                    value = values[position]
                    lending = lent(value, reads, value.flags.writeable)
                    passed[position] = stack.enter_context(lending)
                function(*passed)

        name = getattr(function, "__name__", "a function")
        return self._plain(f"host task {name}", work, touched, arguments, depends_on)

    # What is common to commands.

    def _plain(
        self,
        name: str,
        work: Work,
        touched: Sequence[Touched],
        keep: Any,
        depends_on: Iterable[Event],
    ) -> Event:
        event = self._event(name, work, place_of(3))
        event.keep = keep
        SCHEDULER.submit(event, self, touched, events_of(depends_on))
        return event

    def _event(self, name: str, work: Work, place: tuple[str, int]) -> Event:
        event = Event(name, SCHEDULER, place)
        event.work = work
        if self.profile:
            event.submitted = perf_counter_ns()
        return event

    def _memory(self, argument: Any, name: str) -> NDArray[Any]:
        """The memory of a buffer of any device, or of an array."""
        buffer = argument.buffer if isinstance(argument, Accessor) else argument
        if isinstance(buffer, Buffer):
            return buffer.array
        return memory_of(buffer, name)

    # Fusion.

    @property
    def fusing(self) -> bool:
        """Whether kernels that are submitted are held, to be fused."""
        return self._fusion is not None and self._fusion.held.reason is None

    def start_fusion(self, *, records: bool = False) -> None:
        """From now on kernels that are submitted are held, and all submissions give one event,
        which comes after them all. With ``records``, the arguments are kept for a list of the same
        kernels. Raises `FusionError` between a start and its end."""
        if self.closed:
            raise closed_queue()
        if self.fusing:
            raise FusionError(
                "a fusion begins inside of another one", cure="complete or cancel the first one"
            )
        self._fusion = self.last_fusion = Held(self, place_of(1), records)

    @checked_call
    def complete_fusion(
        self,
        *,
        promote: Mapping[Buffer, str] | None = None,
        barriers: bool = True,
        constants: bool = False,
        trust: bool = False,
        check: bool = False,
        require: bool = False,
    ) -> Event:
        """The kernels that are held become one kernel, where that is possible; otherwise they run
        one by one, in order. Gives their event; `fusion_report` says what happened, and why.

        ``promote`` has the scope (``"private"``, ``"local"``, ``"any"``) of buffers that nobody
        reads afterwards: they are kept by work-items or workgroups, where that is proved, or where
        ``trust`` says to believe it. Without ``barriers`` none stand between kernels.
        ``constants``: numbers become part of the code. With ``check``, the kernels run one by one,
        too, and where the fused one gives something else, its event fails. Raises `FusionError`
        without a start; with ``require``, where the kernels do not become one: none runs then.
        """
        if self.last_fusion is None or self.last_fusion.report is not None:
            raise FusionError("a fusion ends that did not begin", cure="call start_fusion() before")
        if self.generation != SCHEDULER.generation:
            raise forked_queue()
        held, self._fusion = self.last_fusion, None
        options = Options(promoted_of(promote), barriers, constants, trust, check, require)
        held.complete(options, self._fusions)
        return held.event

    def cancel_fusion(self) -> None:
        """The kernels that are held run one by one, in order."""
        if self._fusion is not None:
            self._let_go("it was cancelled")
            self._fusion.say()
        self._fusion = None

    def _let_go(self, reason: str) -> None:
        if self._fusion is not None:
            SCHEDULER.let_go(self._fusion.held, reason)

    @property
    def fusion_report(self) -> FusionReport | None:
        """What became of the last fusion; None before it has ended."""
        return None if self.last_fusion is None else self.last_fusion.report

    @property
    def fusion_reports(self) -> tuple[FusionReport, ...]:
        """Of a queue with ``fusion="auto"``: what was decided so far, once for kernels that come
        again and again; the newest ones last."""
        return () if self._decisions is None else self._decisions.reports

    @checked_call
    def fusion(
        self,
        *,
        promote: Mapping[Buffer, str] | None = None,
        barriers: bool = True,
        constants: bool = False,
        trust: bool = False,
        check: bool = False,
        require: bool = False,
    ) -> FusionBlock:
        """`start_fusion` and `complete_fusion` around a ``with``; an exception cancels it."""
        options = {
            "promote": promote,
            "barriers": barriers,
            "constants": constants,
            "trust": trust,
            "check": check,
            "require": require,
        }
        return FusionBlock(self, options, place_of(2))

    # Waiting, and the end.

    def trace(self, path: str | Path) -> Trace:
        """Records what runs from now on, with its threads and what waited for what, in Chrome's
        trace format, which Perfetto opens; `Trace` says when ``path`` is written. Raises
        `QueueError` for a queue without ``profile``."""
        self.tracing = new_trace(path, self)
        return self.tracing

    def wait(self) -> None:
        """Returns when all commands are finished that were submitted so far.

        Raises the first error among them that nobody has seen, as `Event.wait` does.
        """
        self._let_go("the host waits for the queue")
        for event in tuple(self.unfinished):
            SCHEDULER.wait(event)
        failed = SCHEDULER.failure(self)
        if failed is not None:
            assert failed.error is not None
            raise failed.error

    def close(self) -> None:
        """`wait`, after which nothing can be submitted. Closing twice is fine. Buffers stay."""
        if self.closed:
            return
        self.closed = True
        self._let_go("the queue is closed")
        if self.generation == SCHEDULER.generation:
            try:
                self.wait()
            finally:
                room_of(self._where.device).clear()
                if self.tracing is not None:
                    self.tracing.write()

    def __enter__(self) -> Queue:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            self.close()
        except Exception:
            if error is None:  # otherwise that one is what the caller has to see
                raise

    def __repr__(self) -> str:
        order = ", in order" if self.in_order else ""
        state = "closed" if self.closed else f"{len(self.unfinished)} commands to be done"
        return f"<queue of {self.device}{order}, {state}>"


def _by_place(arguments: tuple[Any, ...], arrays: Mapping[str, Any], plan: Plan) -> Arguments:
    """What a command runs on: by place of a launch, else by name."""
    return {**arrays, **plan.results} if arrays or plan.results else arguments[1:]
