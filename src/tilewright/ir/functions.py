"""The functions that a `Call` may name, as data: their parameters and effects.

A function stands for a hardware construct with effects: a barrier, an asynchronous copy, an atomic
update. The verifier, the interpreter and the targets handle calls by what this table says. The
interpreter runs effects: a new function with effects of these kinds is one entry here.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


@dataclass(frozen=True, slots=True)
class Parameter:
    """One argument of a function.

    ``access`` is ``"value"`` for an expression; for a view it says what happens to the memory
    there: ``"in"``, ``"out"``, ``"inout"``, as for the parameters of a kernel, or ``"none"``.
    """

    name: str
    access: str


class Group(Enum):
    """Work-items that synchronize."""

    CLUSTER = "cluster"
    WORKGROUP = "workgroup"
    SUBGROUP = "subgroup"


class Queue(Enum):
    """Queues of asynchronous operations, which complete in order, in groups.

    An operation joins the newest group of the work-item (or subgroup) that starts it. Committing
    closes that group.
    """

    COPIES = "copies"  # of elements, by work-items
    STORES = "stores"  # of tiles, into global memory: complete when their sources have been read
    PRODUCTS = "products"  # of matrices, by subgroups as one


@dataclass(frozen=True, slots=True)
class Synchronize:
    """Barrier: accesses of the group's work-items before it come before those after it. All
    work-items of the group take part."""

    group: Group


@dataclass(frozen=True, slots=True)
class StartCopy:
    """Asynchronous copy: ``destination`` gets the present contents of ``source`` at some time until
    the wait that completes the copy. Where the source is masked, zero arrives."""

    destination: str
    source: str


@dataclass(frozen=True, slots=True)
class Commit:
    """Closes the newest group of ``queue``: all operations that the work-item, or the subgroup as
    one, started since the last commit. It may be empty."""

    queue: Queue


@dataclass(frozen=True, slots=True)
class Await:
    """Completes groups of ``queue``, the oldest first, until at most ``pending`` are left."""

    queue: Queue
    pending: str


@dataclass(frozen=True, slots=True)
class Initialize:
    """Makes the element ``place`` an mbarrier in phase 0, whose phases take ``arrivals`` each."""

    place: str
    arrivals: str


@dataclass(frozen=True, slots=True)
class Arrive:
    """One arrival at the mbarrier ``place``: accesses before it come before those after a wait for
    this phase.

    A subgroup as one arrives once, by its first lane: what other lanes did in lane loops comes
    before the arrival only with a barrier of the subgroup in between. In a loop over lanes, each
    lane arrives. An arrival at another workgroup's mbarrier (in cluster memory) orders accesses to
    workgroup memory only.

    ``bytes``: bytes that asynchronous operations which signal the mbarrier have to write in this
    phase. The phase is over when all have arrived and no bytes are missing; then the next begins.
    """

    place: str
    bytes: str | None = None


@dataclass(frozen=True, slots=True)
class AwaitPhase:
    """Waits at the mbarrier ``place`` until its phase of parity ``parity`` is over: until the
    present phase has the other parity. (For a new mbarrier, a phase of parity 1 is over.)"""

    place: str
    parity: str


@dataclass(frozen=True, slots=True)
class Fence:
    """Proxy fence: accesses before it come before asynchronous ones after it. These take another
    path to memory (a proxy), which barriers do not order."""


@dataclass(frozen=True, slots=True)
class Update:
    """``place = place operator value``, where ``operator`` is one of `ir.operators.BINARY`.

    ``atomic``: updates of one element by several work-items each take effect, in any order.
    ``old``: the parameter that gets the old value of the element.
    """

    place: str
    value: str
    operator: str
    atomic: bool
    old: str | None = None


@dataclass(frozen=True, slots=True)
class Exchange:
    """``old`` becomes the value of ``place``, and ``place`` becomes ``value``, atomically; with
    ``expected`` only where ``place`` had these bits (compare and swap). Exchanges of one element
    take effect one after the other, in any order."""

    place: str
    value: str
    old: str
    expected: str | None = None


@dataclass(frozen=True, slots=True)
class Shuffle:
    """``destination`` becomes the ``value`` of the lane numbered ``lane`` of the same subgroup.
    All lanes of the subgroup take part."""

    destination: str
    value: str
    lane: str


@dataclass(frozen=True, slots=True)
class OrderAtomics:
    """Memory fence: atomic accesses before and after it keep their order, for all observers."""


Effect = (
    Synchronize
    | StartCopy
    | Commit
    | Await
    | Initialize
    | Arrive
    | AwaitPhase
    | Fence
    | Update
    | Exchange
    | OrderAtomics
    | Shuffle
)

# Effects on the work-item itself, or on others: their order in its program matters.
_ORDERED = (
    Synchronize,
    Commit,
    Await,
    Initialize,
    Arrive,
    AwaitPhase,
    Fence,
    Shuffle,
    OrderAtomics,
)


@dataclass(frozen=True, slots=True)
class Function:
    """A function with ``effects``. Without any, it is a hint, and no result depends on it."""

    name: str
    parameters: tuple[Parameter, ...]
    effects: tuple[Effect, ...]
    doc: str

    @property
    def ordered(self) -> bool:
        """Whether calls keep their order though they access no memory in common."""
        return any(isinstance(effect, _ORDERED) for effect in self.effects)

    def position(self, name: str) -> int:
        """The index of the parameter called ``name``."""
        return [parameter.name for parameter in self.parameters].index(name)


def _atomic(operator: str) -> Function:
    return Function(
        f"atomic_{operator}",
        (Parameter("place", "inout"), Parameter("value", "value")),
        (Update("place", "value", operator, atomic=True),),
        f"Updates an element of memory by `{operator}`; others may update it at the same time.",
    )


def _fetch(operator: str) -> Function:
    return Function(
        f"fetch_{operator}",
        (Parameter("old", "out"), Parameter("place", "inout"), Parameter("value", "value")),
        (Update("place", "value", operator, atomic=True, old="old"),),
        f"As atomic_{operator}, and gives the old value.",
    )


_ALL = (
    Function(
        "prefetch",
        (Parameter("place", "none"),),
        (),
        "Asks for the cache line that holds the place; any place is allowed.",
    ),
    Function(
        "prefetch_second",
        (Parameter("place", "none"),),
        (),
        "As prefetch, for the second cache, which waits for more lines at a time than the first.",
    ),
    Function(
        "barrier",
        (),
        (Synchronize(Group.WORKGROUP),),
        "Waits for all work-items of the workgroup; their memory accesses before it are done.",
    ),
    Function(
        "cluster_barrier",
        (),
        (Synchronize(Group.CLUSTER),),
        "Waits for all work-items of the cluster's workgroups; their accesses before it, of the "
        "memory of workgroups, are done.",
    ),
    Function(
        "subgroup_barrier",
        (),
        (Synchronize(Group.SUBGROUP),),
        "Waits for all lanes of the subgroup; their memory accesses before it are done.",
    ),
    Function(
        "copy_async",
        (Parameter("destination", "out"), Parameter("source", "in")),
        (StartCopy("destination", "source"),),
        "Starts a copy of one element; where the source is masked, zero arrives.",
    ),
    Function(
        "commit_copies",
        (),
        (Commit(Queue.COPIES),),
        "Closes the group of the copies that this work-item started since the last commit.",
    ),
    Function(
        "wait_copies",
        (Parameter("pending", "value"),),
        (Await(Queue.COPIES, "pending"),),
        "Waits until at most ``pending`` groups of this work-item's copies are under way.",
    ),
    Function(
        "commit_stores",
        (),
        (Commit(Queue.STORES),),
        "Closes the group of the stores of tiles started since the last commit.",
    ),
    Function(
        "wait_stores",
        (Parameter("pending", "value"),),
        (Await(Queue.STORES, "pending"),),
        "Waits until at most ``pending`` groups of stores of tiles still read their sources.",
    ),
    Function(
        "commit_products",
        (),
        (Commit(Queue.PRODUCTS),),
        "Closes the group of the products of matrices started since the last commit.",
    ),
    Function(
        "wait_products",
        (Parameter("pending", "value"),),
        (Await(Queue.PRODUCTS, "pending"),),
        "Waits until at most ``pending`` groups of products of matrices are under way.",
    ),
    Function(
        "mbarrier_init",
        (Parameter("place", "out"), Parameter("arrivals", "value")),
        (Initialize("place", "arrivals"),),
        "Makes an element of workgroup memory an mbarrier; a barrier tells the others.",
    ),
    Function(
        "mbarrier_arrive",
        (Parameter("place", "inout"),),
        (Arrive("place"),),
        "Arrives at an mbarrier, and goes on.",
    ),
    Function(
        "mbarrier_expect",
        (Parameter("place", "inout"), Parameter("bytes", "value")),
        (Arrive("place", "bytes"),),
        "Arrives at an mbarrier whose phase takes so many more bytes of asynchronous copies.",
    ),
    Function(
        "mbarrier_wait",
        (Parameter("place", "inout"), Parameter("parity", "value")),
        (AwaitPhase("place", "parity"),),
        "Waits until the mbarrier's phase of that parity is over.",
    ),
    Function(
        "give_registers",
        (Parameter("count", "value"),),
        (),
        "The subgroup's lanes give up registers: each keeps so many.",
    ),
    Function(
        "take_registers",
        (Parameter("count", "value"),),
        (),
        "The subgroup's lanes wait until each has so many registers, which others give up.",
    ),
    Function(
        "fence_async",
        (),
        (Fence(),),
        "Lets later asynchronous copies and products see what was written before.",
    ),
    Function(
        "atomic_add",
        (Parameter("place", "inout"), Parameter("value", "value")),
        (Update("place", "value", "add", atomic=True),),
        "Adds to an element of memory that other work-items may add to at the same time.",
    ),
    *(_atomic(operator) for operator in ("min", "max", "and", "or", "xor")),
    *(_fetch(operator) for operator in ("add", "min", "max", "and", "or", "xor")),
    Function(
        "fetch_exchange",
        (Parameter("old", "out"), Parameter("place", "inout"), Parameter("value", "value")),
        (Exchange("place", "value", "old"),),
        "Sets an element of memory that others may access atomically, and gives the old value.",
    ),
    Function(
        "fetch_compare_exchange",
        (
            Parameter("old", "out"),
            Parameter("place", "inout"),
            Parameter("expected", "value"),
            Parameter("value", "value"),
        ),
        (Exchange("place", "value", "old", "expected"),),
        "Sets an element of memory if it is what is expected, and gives the old value.",
    ),
    Function(
        "memory_fence",
        (),
        (OrderAtomics(),),
        "Atomic accesses before and after it keep their order, for all observers.",
    ),
    Function(
        "shuffle",
        (Parameter("destination", "out"), Parameter("value", "value"), Parameter("lane", "value")),
        (Shuffle("destination", "value", "lane"),),
        "Gives the value of another lane of the subgroup; all its lanes take part.",
    ),
)

FUNCTIONS: dict[str, Function] = {function.name: function for function in _ALL}


def synchronized_group(name: str) -> Group | None:
    """The work-items that wait for each other in a call of the function ``name``; None for none."""
    for effect in FUNCTIONS[name].effects:
        if isinstance(effect, Synchronize):
            return effect.group
        if isinstance(effect, Shuffle):
            return Group.SUBGROUP
    return None


def atomic_operator(name: str | None) -> str | None:
    """The operator of the atomic update of an element that is all that the function ``name`` does;
    None for other functions."""
    function = FUNCTIONS.get(name or "")
    match function.effects if function is not None else ():
        case (Update(atomic=True, old=None) as update,):
            return update.operator
        case _:
            return None
