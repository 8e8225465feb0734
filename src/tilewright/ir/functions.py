"""What a `Call` may call: one description per function, as data.

A function stands for a hardware construct that has effects. Whoever handles calls (the verifier,
the interpreter, the targets) looks here; none of them knows a function by heart. The effects are
what the interpreter runs: a new function made of known effects is an entry of this table.
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
    """Asynchronous operations that are completed in order, as groups: by whoever started them.

    An operation joins the newest group, which is closed by committing it.
    """

    COPIES = "copies"  # of elements, by work-items
    STORES = "stores"  # of tiles, into global memory: complete where their sources have been read
    PRODUCTS = "products"  # of matrices, by subgroups as one


@dataclass(frozen=True, slots=True)
class Synchronize:
    """Accesses of the group's work-items before it come before those behind it. All work-items of
    the group take part."""

    group: Group


@dataclass(frozen=True, slots=True)
class StartCopy:
    """Memory of the parameter ``destination`` becomes what that of ``source`` is now, at a time
    between now and the wait that completes the copy. Where the source is masked, zero arrives."""

    destination: str
    source: str


@dataclass(frozen=True, slots=True)
class Commit:
    """What the work-item, or the subgroup as one, has started in ``queue`` and what is in no group
    yet becomes its newest group (or nothing does: the group is empty)."""

    queue: Queue


@dataclass(frozen=True, slots=True)
class Await:
    """Completes groups of ``queue``, the oldest first, until at most as many as the parameter
    ``pending`` says are left."""

    queue: Queue
    pending: str


@dataclass(frozen=True, slots=True)
class Initialize:
    """The element ``place`` becomes an mbarrier in its phase 0: each phase takes ``arrivals``."""

    place: str
    arrivals: str


@dataclass(frozen=True, slots=True)
class Arrive:
    """One arrival at the mbarrier ``place``: accesses before it come before those behind a wait for
    this phase. By a subgroup as one it is one arrival, by its first lane: what other lanes did in
    loops of theirs comes before it where a barrier of the subgroup does. In a loop over lanes it is
    one arrival of each lane. At another workgroup's mbarrier (of the cluster's memory), it tells of
    accesses to the memory of workgroups only.

    ``bytes``: so many must be written by asynchronous operations that signal the mbarrier before
    the phase is over. It is when all have arrived and no bytes are missing; then the next begins.
    """

    place: str
    bytes: str | None = None


@dataclass(frozen=True, slots=True)
class AwaitPhase:
    """Waits at the mbarrier ``place`` until the phase of the parity ``parity`` is over: until the
    present phase has the other one. (Of a new mbarrier, the phase before, of parity 1, is over.)"""

    place: str
    parity: str


@dataclass(frozen=True, slots=True)
class Fence:
    """Accesses that come before this one come before asynchronous ones behind it: these see memory
    in a way of their own (a proxy), which no barrier makes them wait for."""


@dataclass(frozen=True, slots=True)
class Update:
    """``place = place operator value``, where ``operator`` is one of `ir.operators.BINARY`.

    ``atomic``: updates of one element by several work-items each take effect, in any order.
    ``old``: where what the element was before goes.
    """

    place: str
    value: str
    operator: str
    atomic: bool
    old: str | None = None


@dataclass(frozen=True, slots=True)
class Exchange:
    """``place`` becomes ``value``, and ``old`` what it was, at one time; with ``expected`` only
    where it was that, by its bits. Exchanges of one element each take effect, in any order."""

    place: str
    value: str
    old: str
    expected: str | None = None


@dataclass(frozen=True, slots=True)
class Shuffle:
    """``destination`` becomes the ``value`` of the lane that ``lane`` says, of the same subgroup.
    All lanes of the subgroup take part."""

    destination: str
    value: str
    lane: str


@dataclass(frozen=True, slots=True)
class OrderAtomics:
    """Atomic accesses before this one and behind it keep their order, for all who see them."""


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
    """A function with ``effects``; none: then a program may drop the call and computes the same."""

    name: str
    parameters: tuple[Parameter, ...]
    effects: tuple[Effect, ...]
    doc: str

    @property
    def ordered(self) -> bool:
        """Whether calls keep their order though they access no memory in common."""
        return any(isinstance(effect, _ORDERED) for effect in self.effects)

    def position(self, name: str) -> int:
        """Which argument the parameter called ``name`` is."""
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
        f"As atomic_{operator}, and tells what the element was.",
    )


_ALL = (
    Function(
        "prefetch",
        (Parameter("place", "none"),),
        (),
        "Asks for the cache line that holds the place; any place is allowed.",
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
        "Makes the copies that this work-item started, and that are in no group, one group.",
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
        "Makes the stores of tiles that joined no group yet one group.",
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
        "Makes the products of matrices that joined no group yet one group.",
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
        "Arrives at an mbarrier whose phase takes so many bytes of asynchronous copies more.",
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
        "The subgroup's lanes go on with so many registers each, fewer than they have.",
    ),
    Function(
        "take_registers",
        (Parameter("count", "value"),),
        (),
        "The subgroup's lanes wait for so many registers each, which others have given.",
    ),
    Function(
        "fence_async",
        (),
        (Fence(),),
        "What was written so far is seen by asynchronous copies and products behind it.",
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
        "Sets an element of memory that others may access atomically, and tells what it was.",
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
        "Sets an element of memory if it is what is expected, and tells what it was.",
    ),
    Function(
        "memory_fence",
        (),
        (OrderAtomics(),),
        "Atomic accesses before it and behind it keep their order, for all who see them.",
    ),
    Function(
        "shuffle",
        (Parameter("destination", "out"), Parameter("value", "value"), Parameter("lane", "value")),
        (Shuffle("destination", "value", "lane"),),
        "Gives the value of another lane of the subgroup; all its lanes take part.",
    ),
)

FUNCTIONS: dict[str, Function] = {function.name: function for function in _ALL}


def meeting(name: str) -> Group | None:
    """Those who wait for each other where the function ``name`` is called."""
    for effect in FUNCTIONS[name].effects:
        if isinstance(effect, Synchronize):
            return effect.group
        if isinstance(effect, Shuffle):
            return Group.SUBGROUP
    return None


def atomic_operator(name: str | None) -> str | None:
    """The operator by which the function ``name`` updates an element, if an atomic update of it is
    all that it does."""
    function = FUNCTIONS.get(name or "")
    match function.effects if function is not None else ():
        case (Update(atomic=True, old=None) as update,):
            return update.operator
        case _:
            return None
