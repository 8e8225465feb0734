"""Which names a function binds, where, and how often: what of them may be a plain name in the IR,
and what needs memory of its own.

A name that is bound once, and used in the block where that happens, names a value. Any other is
a variable: one element of private memory.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

# Where a statement stands: each block around it by its owner's id and its part.
Path = tuple[tuple[int, str], ...]


@dataclass
class Name:
    """Where a name is bound and used."""

    binds: list[Path] = field(default_factory=list)
    uses: list[Path] = field(default_factory=list)
    updated: bool = False  # by `+=` and the like

    @property
    def once(self) -> bool:
        """Whether it names one value wherever it is used."""
        if len(self.binds) != 1 or self.updated:
            return False
        home = self.binds[0]
        return all(path[: len(home)] == home for path in self.uses)

    @property
    def home(self) -> Path:
        """The innermost block that has all of it."""
        paths = self.binds + self.uses
        found = paths[0]
        for path in paths[1:]:
            same = 0
            while same < min(len(found), len(path)) and found[same] == path[same]:
                same += 1
            found = found[:same]
        return found


@dataclass(frozen=True)
class Names:
    """The names of a function. ``fresh`` has, for a block, the variables that each run of it sets
    before it reads them: they live there."""

    names: dict[str, Name]
    homes: dict[Path, tuple[str, ...]]

    def once(self, name: str) -> bool:
        found = self.names.get(name)
        return found is not None and found.once


@lru_cache(maxsize=512)
def names_of(tree: ast.FunctionDef) -> Names:
    """What ``tree`` binds."""
    collector = _Collector({})
    collector.block(tree.body, ())
    homes: dict[Path, list[str]] = {}
    for name, found in collector.names.items():
        if found.binds and not found.once:
            home = found.home
            while home and not _set_first(collector.blocks[home], name):
                home = home[:-1]
            homes.setdefault(home, []).append(name)
    return Names(collector.names, {path: tuple(found) for path, found in homes.items()})


def _set_first(body: Sequence[ast.stmt], name: str) -> bool:
    """Whether the first statement of ``body`` with ``name`` in it gives it a value, for whoever
    runs the block."""
    for stmt in body:
        names = {each.id for each in ast.walk(stmt) if isinstance(each, ast.Name)}
        if name in names:
            if not isinstance(stmt, ast.Assign | ast.AnnAssign) or stmt.value is None:
                return False
            return name not in {e.id for e in ast.walk(stmt.value) if isinstance(e, ast.Name)}
    return False


@dataclass
class _Collector:
    names: dict[str, Name]
    blocks: dict[Path, Sequence[ast.stmt]] = field(default_factory=dict)

    def block(self, body: Sequence[ast.stmt], path: Path) -> None:
        self.blocks[path] = body
        for stmt in body:
            self.stmt(stmt, path)

    def stmt(self, stmt: ast.stmt, path: Path) -> None:
        if isinstance(stmt, ast.For):
            inside = (*path, (id(stmt), "body"))
            self.uses(stmt.iter, path)
            self.binds(stmt.target, inside)
            self.block(stmt.body, inside)
            if stmt.orelse:
                self.block(stmt.orelse, (*path, (id(stmt), "orelse")))
        elif isinstance(stmt, ast.If | ast.While):
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

    def binds(self, target: ast.expr, path: Path) -> None:
        for name in bound(target):
            self.names.setdefault(name, Name()).binds.append(path)
        self.uses(target, path)

    def uses(self, node: ast.AST, path: Path) -> None:
        for each in ast.walk(node):
            if isinstance(each, ast.Name):
                self.names.setdefault(each.id, Name()).uses.append(path)


def bound(target: ast.expr) -> Iterator[str]:
    """The names that an assignment to ``target`` binds."""
    if isinstance(target, ast.Name):
        yield target.id
    elif isinstance(target, ast.Tuple | ast.List):
        for each in target.elts:
            yield from bound(each)
    elif isinstance(target, ast.Starred):
        yield from bound(target.value)
