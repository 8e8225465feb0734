"""What becomes one kernel: kernels in order, and which of their arguments are the same memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from tilewright.errors import FusionError, one_of
from tilewright.ir.stmt import Kernel

Number = bool | int | float
# How memory that is dead after the last kernel is kept: by each work-item, by each workgroup, as
# the accesses allow, or where it is.
PRIVATE, LOCAL, ANY, NONE = "private", "local", "any", "none"
SCOPES = (ANY, PRIVATE, LOCAL, NONE)


@dataclass(frozen=True, eq=False)
class Member:
    """One run of ``kernel``: its parameters by name are ``arguments``, the name that memory or a
    number has in the fused kernel, or a number. Sizes that follow from arrays may be left out.
    ``promote`` is a scope (`SCOPES`) for some of its arrays, by parameter."""

    kernel: Kernel
    arguments: Mapping[str, str | Number]
    promote: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Fusion:
    """``members`` that run one after the other, to become the kernel ``name``.

    Arrays of one name are one memory; others do not overlap. ``promote`` has a scope (`SCOPES`) for
    memory that nothing reads after the last member, by name; ``constants`` are numbers of that name
    that become part of the code. Without ``barriers`` none stand between members, where accesses
    need them the fusion is refused. ``trust``: what is not proved is believed.
    """

    members: tuple[Member, ...]
    promote: Mapping[str, str] = field(default_factory=dict)
    constants: Mapping[str, Number] = field(default_factory=dict)
    barriers: bool = True
    trust: bool = False
    name: str = "fused"

    def __post_init__(self) -> None:
        for where, scopes in (("promote", self.promote), *self._promoted()):
            for name, scope in scopes.items():
                if scope not in SCOPES:
                    raise FusionError(
                        f"{name} is promoted to {scope!r}",
                        where=where,
                        cure=one_of(scope, SCOPES),
                    )
        for number, member in enumerate(self.members):
            for name in (*member.arguments, *member.promote):
                params = [param.name for param in member.kernel.params]
                if name not in params:
                    raise FusionError(
                        f"the kernel {member.kernel.name} has no parameter {name!r}",
                        where=self.where(number),
                        cure=one_of(name, params),
                    )
        names = {param.name for param in self.parameters()}
        for what, option in (("promote", self.promote), ("constants", self.constants)):
            for name in option:
                if name not in names:
                    raise FusionError(
                        f"no argument is called {name!r}", where=what, cure=one_of(name, names)
                    )

    def _promoted(self) -> Iterator[tuple[str, Mapping[str, str]]]:
        return ((self.where(n), member.promote) for n, member in enumerate(self.members))

    def parameters(self) -> Iterator[_Named]:
        """The names that members' arguments have in the fused kernel, each with its parameter."""
        for number, member in enumerate(self.members):
            for param, name in member.arguments.items():
                if isinstance(name, str):
                    yield _Named(name, number, param)

    def where(self, number: int) -> str:
        """The member at the position ``number``, in words."""
        return f"{self.members[number].kernel.name}, number {number + 1} of {len(self.members)}"


@dataclass(frozen=True)
class _Named:
    name: str
    member: int
    param: str
