"""Tests that can pass without having looked: on some way through them nothing is asserted.

What looks is an ``assert``, a block of ``pytest.raises`` or ``pytest.warns``, an ``if`` that ends
in a failure, and a call of what looks or raises by itself: numpy's assertions, helper functions of
tests, verifiers of the package. A loop looks if its body does and it surely runs: over a literal, a
name for one, or a ``range`` of numbers. Elsewhere an assertion that it is not empty has to stand.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

# Functions of the package and of libraries that raise where something is wrong.
RAISING = frozenset({"verify", "check_call"})
# Functions that end a test, which then has not passed.
ENDING = frozenset({"fail", "skip", "lacking"})
_NUMPY = "assert_"
_BLOCKS = frozenset({"raises", "warns"})
# What goes over all that it gets, in order.
_WRAPPERS = frozenset({"enumerate", "reversed", "sorted", "list", "tuple", "set", "zip", "product"})
_VIEWS = frozenset({"items", "values", "keys"})
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass
class Module:
    """A file of tests, or a module that they import."""

    file: str
    tree: ast.Module

    @cached_property
    def functions(self) -> dict[str, Function]:
        """Its functions and methods, by name."""
        return {n.name: n for n in ast.walk(self.tree) if isinstance(n, Function)}

    @cached_property
    def constants(self) -> dict[str, ast.expr]:
        """What module-level names are bound to."""
        return dict(_bound(self.tree.body))

    @cached_property
    def imports(self) -> dict[str, tuple[str, str]]:
        """Names that come from other modules: the module and the name there."""
        return {
            alias.asname or alias.name: (node.module, alias.name)
            for node in ast.walk(self.tree)
            if isinstance(node, ast.ImportFrom) and node.module
            for alias in node.names
        }


def modules_of(folder: Path) -> dict[str, Module]:
    """The modules below ``folder``, by name."""
    return {
        path.stem: Module(
            path.relative_to(folder).as_posix(), ast.parse(path.read_text(encoding="utf-8"))
        )
        for path in sorted(folder.rglob("*.py"))
    }


def unlooking(modules: Mapping[str, Module]) -> Iterator[str]:
    """A line for each test that can pass without having looked."""
    looks = Looks(modules)
    for module in modules.values():
        for function in module.functions.values():
            if function.name.startswith("test_") and not looks.of(module, function):
                yield f"{module.file}:{function.lineno}: {function.name} can pass unlooked"


@dataclass
class Looks:
    """Which functions look, whatever way they take."""

    modules: Mapping[str, Module]
    known: dict[int, bool] = field(default_factory=dict)

    def of(self, module: Module, function: Function) -> bool:
        if id(function) not in self.known:
            # A function that calls itself looks by what else it does.
            self.known[id(function)] = False
            self.known[id(function)] = _Ways(self, module, function).all_look()
        return self.known[id(function)]

    def call(self, module: Module, function: Function, name: str) -> bool:
        """Whether a call of ``name`` in ``function`` looks."""
        if name in RAISING or name.startswith(_NUMPY):
            return True
        inner = {n.name: n for n in ast.walk(function) if isinstance(n, Function)}
        if name in inner:
            return inner[name] is not function and self.of(module, inner[name])
        if name in module.functions:
            return self._named(module, name)
        if name in module.imports:
            source, original = module.imports[name]
            other = self.modules.get(source)
            return other is not None and self._named(other, original)
        conftest = self.modules.get("conftest")
        return conftest is not None and self._named(conftest, name)

    def _named(self, module: Module, name: str) -> bool:
        function = module.functions.get(name)
        if function is None:
            return False
        # A fixture gives a function that looks.
        returned = {
            n.value.id
            for n in ast.walk(function)
            if isinstance(n, ast.Return | ast.Yield) and isinstance(n.value, ast.Name)
        }
        inner = [
            n
            for n in ast.walk(function)
            if isinstance(n, Function) and n is not function and n.name in returned
        ]
        return self.of(module, function) or any(self.of(module, callee) for callee in inner)

    def constant(self, module: Module, name: str) -> ast.expr | None:
        """What ``name`` is bound to at a module's level."""
        if name in module.constants:
            return module.constants[name]
        source, original = module.imports.get(name, ("", ""))
        other = self.modules.get(source)
        return None if other is None else self.constant(other, original)


class _Ways:
    """The ways through a function: each is whether something was looked at on it."""

    def __init__(self, looks: Looks, module: Module, function: Function) -> None:
        self._looks = looks
        self._module = module
        self._function = function
        self._constants = dict(_bound(function.body))
        self._ends: set[bool] = set()
        self._breaks: list[set[bool]] = []

    def all_look(self) -> bool:
        return all(self._block(self._function.body, {False}) | self._ends)

    def _block(self, body: Iterable[ast.stmt], ways: set[bool]) -> set[bool]:
        for statement in body:
            if not ways:
                break
            ways = self._statement(statement, ways)
        return ways

    def _statement(self, node: ast.stmt, ways: set[bool]) -> set[bool]:
        match node:
            case ast.Assert():
                return ways if _always(node.test) else {True}
            case ast.Raise():
                return set()
            case ast.Expr() if _called(node.value) in ENDING:
                return set()
            case ast.Return():
                self._ends |= self._expression(node, ways)
                return set()
            case ast.Continue() | ast.Break():
                self._breaks[-1] |= ways
                return set()
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                return ways
            case ast.If():
                ways = self._expression(node.test, ways)
                then, other = self._block(node.body, ways), self._block(node.orelse, ways)
                # A condition that fails the test is an assertion.
                return {True} if not then and _fails(node.body) else then | other
            case ast.Match():
                ways = self._expression(node.subject, ways)
                whole = any(_whole(case) for case in node.cases)
                after = [self._block(case.body, ways) for case in node.cases]
                return set().union(*after, set() if whole else ways)
            case ast.For() | ast.AsyncFor():
                ways = self._expression(node.iter, ways)
                return self._loop(node.body, ways, self._runs(node.iter)) or ways
            case ast.While():
                ways = self._expression(node.test, ways)
                return self._loop(node.body, ways, _always(node.test))
            case ast.With() | ast.AsyncWith():
                for item in node.items:
                    ways = self._expression(item.context_expr, ways)
                # A block that has to raise looks; what it returns from does not count.
                raising = any(_called(i.context_expr) in _BLOCKS for i in node.items)
                inside = self._block(node.body, ways)
                return {True} if raising else inside
            case ast.Try():
                inside = self._block([*node.body, *node.orelse], ways)
                for handler in node.handlers:
                    inside |= self._block(handler.body, ways)
                return self._block(node.finalbody, inside) if node.finalbody else inside
            case _:
                return self._expression(node, ways)

    def _loop(self, body: list[ast.stmt], ways: set[bool], runs: bool) -> set[bool]:
        self._breaks.append(set())
        after = self._block(body, ways)
        after |= self._breaks.pop()
        return after if runs else after | ways

    def _expression(self, node: ast.AST, ways: set[bool]) -> set[bool]:
        """What is evaluated looks if it calls what looks."""
        calls = [part for part in _evaluated(node) if isinstance(part, ast.Call)]
        looks = (self._looks.call(self._module, self._function, _called(call)) for call in calls)
        checked = (_says(call, "check") for call in calls)  # by `subprocess`
        return {True} if any(looks) or any(checked) else ways

    def _runs(self, node: ast.expr, depth: int = 0) -> bool:
        """Whether a loop over ``node`` runs at least once."""
        match node:
            case ast.List() | ast.Tuple() | ast.Set():
                return any(
                    not isinstance(e, ast.Starred) or self._runs(e.value, depth) for e in node.elts
                )
            case ast.Dict():
                return bool(node.keys)
            case ast.Constant():
                return bool(node.value)
            case ast.Name() if depth < 9:
                bound = self._constants.get(node.id)
                bound = bound or self._looks.constant(self._module, node.id)
                return bound is not None and self._runs(bound, depth + 1)
            case ast.Attribute() | ast.Subscript():
                return False
            case ast.BinOp(op=ast.Add()):
                return self._runs(node.left, depth) or self._runs(node.right, depth)
            case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
                return all(not g.ifs and self._runs(g.iter, depth) for g in node.generators)
            case ast.Call(func=ast.Name(id="range")):
                numbers = [a.value for a in node.args if isinstance(a, ast.Constant)]
                return len(numbers) == len(node.args) and bool(range(*numbers))
            case ast.Call() if _called(node) in _WRAPPERS and node.args:
                # Of sequences that have to be of one length, one that is not empty is enough.
                enough = any if _says(node, "strict") else all
                return enough(self._runs(argument, depth) for argument in node.args)
            case ast.Call(func=ast.Attribute(value=value, attr=attr)) if attr in _VIEWS:
                return self._runs(value, depth)
            case ast.Call(func=ast.Attribute(value=ast.Constant(value=str(text)), attr="split")):
                return bool(text.split())
        return False


def _bound(body: Iterable[ast.stmt]) -> Iterator[tuple[str, ast.expr]]:
    """Names that are bound once, at the top of ``body``, and to what."""
    for node in body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            yield node.targets[0].id, node.value
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value:
            yield node.target.id, node.value


def _evaluated(node: ast.AST) -> Iterator[ast.AST]:
    """``node`` and what it surely evaluates: no bodies of functions, of a comprehension only what
    it goes over."""
    yield node
    if isinstance(node, ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
        yield from _evaluated(node.generators[0].iter)
        return
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.Lambda):
            yield from _evaluated(child)


def _called(node: ast.expr) -> str:
    """The last word of what is called."""
    function = node.func if isinstance(node, ast.Call) else None
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def _says(call: ast.Call, keyword: str) -> bool:
    """Whether a keyword of the call is true."""
    return any(argument.arg == keyword and _always(argument.value) for argument in call.keywords)


def _always(test: ast.expr) -> bool:
    """Whether a condition is a constant that holds."""
    return isinstance(test, ast.Constant) and bool(test.value)


def _fails(body: list[ast.stmt]) -> bool:
    last = body[-1]
    if isinstance(last, ast.Expr):
        return _called(last.value) == "fail"
    return isinstance(last, ast.Raise)


def _whole(case: ast.match_case) -> bool:
    return case.guard is None and isinstance(case.pattern, ast.MatchAs) and not case.pattern.pattern
