"""Queues: kernels, copies and functions that run when what they depend on is done.

A **command** is a kernel, a copy, a fill, a host task or a host access. It stands in one graph,
which all queues of the process share, and its `Event` is its node there. An edge says that one
command comes before another; there is one where

- both touch the same memory, and one of them writes it (`spans`),
- the caller says so (``depends_on``),
- a queue is in order.

`graph` and `lists` change states, under one lock, and nothing else does:

    state      the command                                       leaves it when
    held       stands in a list that may be fused                the list is complete, or let go
    waiting    has edges from commands that are not finished     the last of these is finished
    ready      may run                                           a worker is free
    running    runs on a worker, or the host has the memory      it returns, or the host is through
    done       is finished
    failed     raised an error, or needs what another one
               that failed should have written

A command that failed ends those that need what it should have written; commands that only come
after it run. What runs on a worker (host tasks, callbacks) neither submits nor waits, so that
workers always go on; and the graph has no cycles, as edges lead to commands that are submitted
later.

A list to be fused stands in the same graph: its commands have their edges, and one more, the hold
itself; one event, the **placeholder**, comes after them all. Whoever would wait for a held command,
or come after it, lets the list go first, and that is all there is to an abort: its commands are
ordinary ones then. Where they become one kernel, its command comes after them, who have nothing
left to do, and takes their place as the last one on the memory that they touch.

A queue that fuses without being told needs no state more. Its kernels that wait for something come
after one more command, the **decision**, which itself comes after what they wait for, and joins
those that become one kernel before any of them runs: the first one does the work of all, and the
others end when it does. They are a **batch**, and a kernel joins that only if it waits for nothing
else, so that no kernel ever waits for more than by itself (`events.Batch`, `decisions`).

In reading order: `events` (nodes), `spans` (memory), `workers` (threads), `graph` (states), `lists`
(commands that are held, batches), `scheduler` (what threads ask of it), `room` (memory that is used
again), `buffers` (memory as users have it), `late` (what is decided when a command runs),
`planning` (from arguments to what runs), `calls` (the same of compiled kernels), `plans` (which are
kept), `fused_code` (fused kernels, which are kept), `fusing` (several launches as one), `checking`
(one beside several), `fusions` (a list and its report), `decisions` (what is fused without being
told), `tracing` (what ran when), `queue` (the face), `waiting`; `checks` are of what users pass,
`refusals` are errors.
"""

from tilewright.queues.buffers import Accessor, Buffer
from tilewright.queues.events import Event, Profile, State
from tilewright.queues.queue import Queue
from tilewright.queues.waiting import wait

__all__ = ["Accessor", "Buffer", "Event", "Profile", "Queue", "State", "wait"]
