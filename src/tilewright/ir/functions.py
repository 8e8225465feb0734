"""What a `Call` may call: one description per function, as data.

A function stands for a hardware construct that has effects. Whoever handles calls (the verifier,
the interpreter, the targets) looks here; none of them knows a function by heart.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Parameter:
    """One argument of a function.

    ``access`` is ``"value"`` for an expression; for a view it says what happens to the memory
    there: ``"in"``, ``"out"``, ``"inout"``, as for the parameters of a kernel, or ``"none"``.
    """

    name: str
    access: str


@dataclass(frozen=True, slots=True)
class Function:
    """A function with effects.

    ``effects`` beyond what happens to its arguments: what it synchronizes (nothing moves across
    it), or how it takes part in an asynchronous copy; none: then a program may drop the call and
    computes the same.
    """

    name: str
    parameters: tuple[Parameter, ...]
    effects: frozenset[str]
    doc: str


_ALL = (
    Function(
        "prefetch",
        (Parameter("place", "none"),),
        frozenset(),
        "Asks for the cache line that holds the place; any place is allowed.",
    ),
    Function(
        "barrier",
        (),
        frozenset({"synchronizes workgroup"}),
        "Waits for all work-items of the workgroup; their memory accesses before it are done.",
    ),
    Function(
        "subgroup_barrier",
        (),
        frozenset({"synchronizes subgroup"}),
        "Waits for all lanes of the subgroup; their memory accesses before it are done.",
    ),
    Function(
        "barrier_arrive",
        (),
        frozenset({"arrives"}),
        "The first half of a barrier: the work-item goes on, its memory accesses before it count.",
    ),
    Function(
        "barrier_wait",
        (),
        frozenset({"waits"}),
        "The second half: waits until all work-items of the workgroup have arrived.",
    ),
    Function(
        "copy_async",
        (Parameter("destination", "out"), Parameter("source", "in")),
        frozenset({"asynchronous"}),
        "Starts a copy of one element; where the source is masked, zero arrives.",
    ),
    Function(
        "commit_copies",
        (),
        frozenset({"commits"}),
        "Makes the copies that this work-item started, and that are in no group, one group.",
    ),
    Function(
        "wait_copies",
        (Parameter("pending", "value"),),
        frozenset({"completes"}),
        "Waits until at most ``pending`` groups of this work-item's copies are under way.",
    ),
    Function(
        "atomic_add",
        (Parameter("place", "inout"), Parameter("value", "value")),
        frozenset({"atomic"}),
        "Adds to an element of memory that other work-items may add to at the same time.",
    ),
)

FUNCTIONS: dict[str, Function] = {function.name: function for function in _ALL}
