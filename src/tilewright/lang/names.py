"""The bindings of a function's names: which may be plain names in the IR, and which need memory.

A name that is bound once, and used in the block where that happens, names a value; so does one that
only loops count by, each in its own body. Any other is a variable: one element of private memory. A
parameter is also bound where the function begins.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

# The place of a statement: for each block around it, its owner's id and its part.
Path = tuple[tuple[int, str], ...]


@dataclass
class Name:
    """The places where a name is bound and used."""

    binds: list[Path] = field(default_factory=list)
    uses: list[Path] = field(default_factory=list)
    updated: bool = False  # by `+=` and the like
    counts: int = 0  # the number of bindings that are loops
    looped: bool = False  # assigned to in a loop
    carried: bool = False  # a parameter, whose value one iteration may leave to the next

    @property
    def once(self) -> bool:
        """Whether it names one value wherever it is used."""
        if not self.binds or self.updated or self.carried:
            return False
        if len(self.binds) > 1 and self.counts < len(self.binds):
            return False
        disjoint = all(not _within(a, b) for a in self.binds for b in self.binds if a is not b)
        return disjoint and all(any(_within(p, home) for home in self.binds) for p in self.uses)

    @property
    def home(self) -> Path:
        """The innermost block around all of them."""
        paths = self.binds + self.uses
        common = paths[0]
        for path in paths[1:]:
            same = 0
            while same < min(len(common), len(path)) and common[same] == path[same]:
                same += 1
            common = common[:same]
        return common


@dataclass(frozen=True)
class Names:
    """The names of a function. ``homes`` has the variables that live in a block: each run of it
    sets them before it reads them."""

    names: dict[str, Name]
    homes: dict[Path, tuple[str, ...]]

    def once(self, name: str) -> bool:
        binding = self.names.get(name)
        return binding is not None and binding.once

    def binds(self, name: str) -> bool:
        """Whether the function binds ``name`` somewhere."""
        binding = self.names.get(name)
        return binding is not None and bool(binding.binds)


@lru_cache(maxsize=512)
def names_of(tree: ast.FunctionDef) -> Names:
    """The bindings of ``tree``."""
    collector = _Collector({})
    collector.block(tree.body, ())
    for arg in (argument.arg for argument in tree.args.args):
        parameter = collector.names.get(arg)
        if parameter is not None and parameter.looped:
            blocks = (collector.blocks[path] for path in parameter.binds)
            parameter.carried = not all(_set_first(block, arg) for block in blocks)
    homes: dict[Path, list[str]] = {}
    for name, binding in collector.names.items():
        if binding.binds and not binding.once:
            home = binding.home
            while home and not _set_first(collector.blocks[home], name):
                home = home[:-1]
            homes.setdefault(home, []).append(name)
    return Names(collector.names, {path: tuple(names) for path, names in homes.items()})


def _within(path: Path, block: Path) -> bool:
    return path[: len(block)] == block


def _set_first(body: Sequence[ast.stmt], name: str) -> bool:
    """Whether the first statement of ``body`` with ``name`` in it assigns to it, on all paths."""
    for stmt in body:
        mentions = [
            node for node in ast.walk(stmt) if isinstance(node, ast.Name) and node.id == name
        ]
        if mentions:
            sets = isinstance(stmt, ast.Assign | ast.AnnAssign) and stmt.value is not None
            return sets and all(isinstance(mention.ctx, ast.Store) for mention in mentions)
    return False


@dataclass
class _Collector:
    names: dict[str, Name]
    blocks: dict[Path, Sequence[ast.stmt]] = field(default_factory=dict)
    loops: int = 0  # around the present statement

    def block(self, body: Sequence[ast.stmt], path: Path) -> None:
        self.blocks[path] = body
        for stmt in body:
            self.stmt(stmt, path)

    def stmt(self, stmt: ast.stmt, path: Path) -> None:
        if isinstance(stmt, ast.For):
            inside = (*path, (id(stmt), "body"))
            self.uses(stmt.iter, path)
            self.binds(stmt.target, inside, counts=True)
            self.loop(stmt, inside)
        elif isinstance(stmt, ast.While):
            self.uses(stmt.test, path)
            self.loop(stmt, (*path, (id(stmt), "body")))
        elif isinstance(stmt, ast.If):
            self.uses(stmt.test, path)
            self.block(stmt.body, (*path, (id(stmt), "body")))
            if stmt.orelse:
                self.block(stmt.orelse, (*path, (id(stmt), "orelse")))
        elif isinstance(stmt, ast.Assign):
            self.uses(stmt.value, path)
            for target in stmt.targets:
                self.binds(target, path)
        elif isinstance(stmt, ast.AnnAssign):
            if stmt.value is not None:
                self.uses(stmt.value, path)
            self.binds(stmt.target, path)
        elif isinstance(stmt, ast.AugAssign):
            self.uses(stmt.value, path)
            self.uses(stmt.target, path)
            if isinstance(stmt.target, ast.Name):
                self.binds(stmt.target, path)
                self.names[stmt.target.id].updated = True
        else:
            self.uses(stmt, path)

    def loop(self, stmt: ast.For | ast.While, inside: Path) -> None:
        self.loops += 1
        self.block(stmt.body, inside)
        self.loops -= 1

    def binds(self, target: ast.expr, path: Path, counts: bool = False) -> None:
        for target_name in bound(target):
            name = self.names.setdefault(target_name, Name())
            name.binds.append(path)
            name.counts += counts
            # A counter has a value where an iteration begins.
            name.looped = name.looped or (self.loops > 0 and not counts)
        self.uses(target, path)

    def uses(self, node: ast.AST, path: Path) -> None:
        for part in ast.walk(node):
            if isinstance(part, ast.Name):
                self.names.setdefault(part.id, Name()).uses.append(path)


def bound(target: ast.expr) -> Iterator[str]:
    """The names that an assignment to ``target`` binds."""
    if isinstance(target, ast.Name):
        yield target.id
    elif isinstance(target, ast.Tuple | ast.List):
        for element in target.elts:
            yield from bound(element)
    elif isinstance(target, ast.Starred):
        yield from bound(target.value)
