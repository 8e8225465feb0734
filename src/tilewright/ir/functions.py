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

    ``effects`` beyond what happens to its arguments: ``"synchronizes"`` (nothing moves across it),
    or none: then a program may drop the call and computes the same.
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
        frozenset({"synchronizes"}),
        "Waits for all work-items of the workgroup; their memory accesses before it are done.",
    ),
)

FUNCTIONS: dict[str, Function] = {function.name: function for function in _ALL}
