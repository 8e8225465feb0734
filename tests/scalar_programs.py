"""Random programs of scalars, as two texts that mean the same: a function of kernels, and one of
Python whose numbers are numpy scalars, with every conversion that the types ask for written out.

`scalar_meaning` is what the second one calls.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from scalar_meaning import FLOATS, INTEGERS, common, fits, weak_type

TYPES = (*INTEGERS, *FLOATS)
_COMPARISONS = ("<", "<=", ">", ">=", "==", "!=")
_LITERALS = (0, 1, 2, 3, 5, 7, 10, 100, 127, 200, 1000, 70000, 2**31 - 1, 2**40, -1, -2, -7)
_FLOATS = (0.0, 0.5, 1.0, 1.5, 3.25, -2.0, 1e10, 0.1)


@dataclass(frozen=True)
class Both:
    """An expression in the kernel and in the reference; ``type`` None: it is weak."""

    kernel: str
    reference: str
    type: str | None

    def of(self, type_: str) -> str:
        """The reference, converted."""
        return self.reference if self.type == type_ else f"as_{type_}({self.reference})"


@dataclass(frozen=True)
class Function:
    """A function with parameters and results of these types."""

    name: str
    parameters: tuple[str, ...]
    results: tuple[str, ...]
    kernel: str
    reference: str


@dataclass
class Writer:
    """Writes one function. ``types`` are those of its variables, and ``ready`` the ones that have a
    value wherever the text now is; ``kept`` no statement assigns to. ``loose``: some reads may be
    of variables without a value."""

    rng: random.Random
    helpers: Sequence[Function]
    loose: bool = False
    types: dict[str, str | None] = field(default_factory=dict)
    ready: set[str] = field(default_factory=set)
    kept: set[str] = field(default_factory=set)
    kernel: list[str] = field(default_factory=list)
    reference: list[str] = field(default_factory=list)
    depth: int = 1
    loops: int = 0
    results: tuple[str, ...] = ()
    count: int = 0

    # Texts.

    def line(self, kernel: str, reference: str) -> None:
        self.kernel.append("    " * self.depth + kernel)
        self.reference.append("    " * self.depth + reference)

    @contextmanager
    def block(self, kernel: str, reference: str) -> Iterator[None]:
        """What stands below a line; the names that it makes ready are gone afterwards."""
        self.line(kernel, reference)
        ready = set(self.ready)
        self.depth += 1
        yield
        self.depth -= 1
        self.ready = ready

    def new(self, type_: str | None) -> str:
        self.count += 1
        name = f"v{self.count}"
        self.types[name] = type_
        return name

    # Expressions.

    def readable(self, type_: str | None) -> list[str]:
        names = self.types if self.loose and self.rng.random() < 0.2 else sorted(self.ready)
        return [name for name in names if self.types[name] == type_]

    def literal(self, type_: str) -> Both:
        """A known number that becomes ``type_`` without losing anything."""
        pool: tuple[float, ...] = _LITERALS
        if type_ in FLOATS and self.rng.random() < 0.6:
            pool = _FLOATS
        text = repr(self.rng.choice([number for number in pool if fits(number, type_)]))
        if text.startswith("-"):
            text = f"({text})"
        return Both(text, text, None)

    def weak(self, type_: str) -> Both:
        names = self.readable(None)
        if names and self.rng.random() < 0.3:
            name = self.rng.choice(names)
            return Both(name, name, None)
        return self.literal(type_)

    def expression(self, type_: str, depth: int = 2) -> Both:
        """An expression of the type."""
        names = self.readable(type_)
        if names and (depth <= 0 or self.rng.random() < 0.25):
            name = self.rng.choice(names)
            return Both(name, name, type_)
        if type_ == "bool":
            return self.condition(depth)
        if depth <= 0:
            value = self.literal(type_)
            return Both(f"tw.{type_}({value.kernel})", value.of(type_), type_)
        makers = [self.binary] * 5 + [self.unary, self.conversion, self.choice, self.called]
        return self.rng.choice(makers)(type_, depth)

    def pair(self, type_: str, depth: int) -> tuple[Both, Both]:
        """Two operands that meet in ``type_``."""
        a = self.expression(type_, depth - 1)
        if self.rng.random() < 0.3:
            b = self.weak(type_)
        else:
            b = self.expression(self.narrower(type_), depth - 1)
        return (b, a) if self.rng.random() < 0.3 else (a, b)

    def narrower(self, type_: str) -> str:
        """A type that meets ``type_`` in that."""
        if self.rng.random() < 0.6:
            return type_
        return self.rng.choice([other for other in TYPES if common(other, type_) == type_])

    def binary(self, type_: str, depth: int) -> Both:
        a, b = self.pair(type_, depth)
        x, y = a.of(type_), b.of(type_)
        if type_ in FLOATS:
            sign = self.rng.choice(["+", "-", "*", "/", "min", "max"])
        else:
            signs = ["+", "-", "*", "//", "%", "&", "|", "^", "min", "max", "<<", ">>", "**"]
            sign = self.rng.choice([*signs, "divide", "remainder"])
        if sign in ("min", "max"):
            return Both(f"{sign}({a.kernel}, {b.kernel})", f"{sign}_({x}, {y})", type_)
        if sign in ("divide", "remainder"):
            return Both(f"tw.{sign}({a.kernel}, {b.kernel})", f"{sign}({x}, {y})", type_)
        if sign in ("<<", ">>", "**"):
            a = self.expression(type_, depth - 1)
            by = str(self.rng.randrange(8))
            return Both(
                f"({a.kernel} {sign} {by})", f"({a.of(type_)} {sign} as_{type_}({by}))", type_
            )
        return Both(f"({a.kernel} {sign} {b.kernel})", f"({x} {sign} {y})", type_)

    def unary(self, type_: str, depth: int) -> Both:
        a = self.expression(type_, depth - 1)
        if type_ in FLOATS:
            name = self.rng.choice(["floor", "ceil", "abs", "-", "sqrt"])
        else:
            name = self.rng.choice(["abs", "-", "~"]) if type_.startswith("s") else "~"
        if name in "-~":
            return Both(f"({name}{a.kernel})", f"({name}{a.reference})", type_)
        called = name if name == "abs" else f"tw.{name}"
        return Both(f"{called}({a.kernel})", f"{name}({a.reference})", type_)

    def conversion(self, type_: str, depth: int) -> Both:
        names = self.readable(None)
        if names and self.rng.random() < 0.3:
            name = self.rng.choice(names)
            a = Both(name, name, None)
        else:
            a = self.expression(self.rng.choice([*TYPES, "bool"]), depth - 1)
        return Both(f"tw.{type_}({a.kernel})", f"as_{type_}({a.reference})", type_)

    def choice(self, type_: str, depth: int) -> Both:
        test, (a, b) = self.condition(depth - 1), self.pair(type_, depth)
        kernel = f"({a.kernel} if {test.kernel} else {b.kernel})"
        return Both(kernel, f"({a.of(type_)} if {test.reference} else {b.of(type_)})", type_)

    def called(self, type_: str, depth: int) -> Both:
        fitting = [helper for helper in self.helpers if helper.results == (type_,)]
        if not fitting or self.loops:
            return self.binary(type_, depth)
        function = self.rng.choice(fitting)
        values = [self.expression(parameter, depth - 1) for parameter in function.parameters]
        kernel, reference = (
            ", ".join(getattr(v, k) for v in values) for k in ("kernel", "reference")
        )
        return Both(f"{function.name}({kernel})", f"{function.name}({reference})", type_)

    def condition(self, depth: int = 2) -> Both:
        if depth > 0 and self.rng.random() < 0.3:
            a, b = self.condition(depth - 1), self.condition(depth - 1)
            word = self.rng.choice(["and", "or"])
            texts = (f"({x} {word} {y})" for x, y in zip(_texts(a), _texts(b), strict=True))
            return Both(*texts, "bool")
        if self.rng.random() < 0.15:
            a = self.condition(depth - 1)
            return Both(f"(not {a.kernel})", f"(not {a.reference})", "bool")
        return self.comparison(depth)

    def comparison(self, depth: int) -> Both:
        a = self.expression(self.rng.choice(TYPES), depth - 1)
        assert a.type is not None
        sign = self.rng.choice(_COMPARISONS)
        if self.rng.random() < 0.5:
            value = self.rng.choice([*_LITERALS, *_FLOATS])
            met = weak_type(value, a.type)
            b = Both(f"({value!r})", f"({value!r})", None)
        else:
            b = self.expression(self.rng.choice([t for t in TYPES if common(t, a.type)]), depth - 1)
            assert b.type is not None
            met = common(a.type, b.type)
        if met is None:
            # Of a constant condition, the branch that is taken decides the type.
            return Both(f"({a.kernel} == {a.kernel})", f"({a.reference} == {a.reference})", "bool")
        return Both(f"({a.kernel} {sign} {b.kernel})", f"({a.of(met)} {sign} {b.of(met)})", "bool")

    # Statements.

    def body(self, length: int) -> bool:
        """Statements; whether somebody comes to their end."""
        self.line("pass", "pass")
        for _ in range(length):
            makers = [self.assign] * 5 + [self.update] * 3 + [self.weak_assign, self.swap]
            if self.depth < 4:
                makers += [self.branch] * 3 + [self.loop] * 2 + [self.copies, self.while_]
            if self.depth > 1 and self.rng.random() < 0.15 and self.leave():
                return False
            self.rng.choice(makers)()
        return True

    def targets(self) -> list[str]:
        return [n for n, type_ in self.types.items() if type_ is not None and n not in self.kept]

    def assign(self) -> None:
        targets = self.targets()
        if targets and self.rng.random() < 0.6:
            name = self.rng.choice(targets)
            type_ = self.types[name]
            assert type_ is not None
        else:
            type_ = self.rng.choice([*TYPES, "bool"])
            name = ""
        value = self.expression(type_, 3)
        name = name or self.new(type_)
        self.line(f"{name} = {value.kernel}", f"{name} = {value.of(type_)}")
        self.ready.add(name)

    def weak_assign(self) -> None:
        """A name of known numbers only: as many assignments as there may be."""
        names = [name for name, type_ in self.types.items() if type_ is None and name[0] == "w"]
        name = f"w{len(names)}"
        if names and self.rng.random() < 0.5:
            name = self.rng.choice(names)
        if name in self.kept:
            return
        self.types[name] = None
        value = self.rng.randrange(100)
        self.line(f"{name} = {value}", f"{name} = {value}")
        self.ready.add(name)

    def update(self) -> None:
        names = [n for n in self.targets() if n in self.ready and self.types[n] != "bool"]
        if not names:
            return self.assign()
        name = self.rng.choice(names)
        type_ = self.types[name]
        assert type_ is not None
        b = self.weak(type_) if self.rng.random() < 0.4 else self.expression(self.narrower(type_))
        sign = self.rng.choice(
            "+-*/" if type_ in FLOATS else ["+", "-", "*", "//", "%", "&", "|", "^"]
        )
        self.line(f"{name} {sign}= {b.kernel}", f"{name} = {name} {sign} {b.of(type_)}")
        return None

    def swap(self) -> None:
        names = [name for name in self.targets() if name in self.ready]
        pairs = [(a, b) for a in names for b in names if a < b and self.types[a] == self.types[b]]
        if pairs:
            a, b = self.rng.choice(pairs)
            self.line(f"{a}, {b} = {b}, {a}", f"{a}, {b} = {b}, {a}")

    def branch(self) -> None:
        test = self.condition()
        ends: list[set[str]] = []
        ready = set(self.ready)
        arms = [(f"if {test.kernel}:", f"if {test.reference}:")]
        if self.rng.random() < 0.3:
            other = self.condition(1)
            arms.append((f"elif {other.kernel}:", f"elif {other.reference}:"))
        has_else = self.rng.random() < 0.5
        for kernel, reference in [*arms, *([("else:", "else:")] if has_else else [])]:
            with self.block(kernel, reference):
                if self.body(self.rng.randrange(1, 3)):
                    ends.append(set(self.ready))
        if not has_else:
            ends.append(ready)
        self.ready = set.intersection(*ends) if ends else ready

    def loop(self) -> None:
        counted = self.rng.choice(["s32", "s64"])
        if self.rng.random() < 0.5:
            start, step = self.rng.randrange(-2, 3), self.rng.choice([1, 1, 2, -1, -2])
            stop = start + step * self.rng.randrange(4) + self.rng.randrange(2)
            counted, bounds = (
                "s32",
                Both(f"{start}, {stop}, {step}", f"{start}, {stop}, {step}", None),
            )
        else:
            a = self.expression(counted, 1)
            bounds = Both(f"({a.kernel}) & 3", f"int(({a.reference}) & as_{counted}(3))", None)
        name = self.new(counted)
        if self.rng.random() < 0.7:
            self.kept.add(name)
        text = f"for {name} in"
        reference = f"{text} map(as_{counted}, range({bounds.reference})):"
        with self.block(f"{text} range({bounds.kernel}):", reference):
            self.ready.add(name)
            self.inside()

    def inside(self) -> None:
        self.loops += 1
        self.body(self.rng.randrange(1, 4))
        self.loops -= 1

    def copies(self) -> None:
        name, bounds = f"k{self.rng.randrange(2)}", self.rng.choice(["2", "1, 3", "3, 0, -2"])
        if name in self.kept:
            return
        self.types[name] = None
        self.kept.add(name)
        text = f"for {name} in"
        with self.block(f"{text} tw.static_range({bounds}):", f"{text} range({bounds}):"):
            self.ready.add(name)
            self.inside()
        self.kept.discard(name)

    def while_(self) -> None:
        name = self.new("s32")
        self.kept.add(name)
        self.line(f"{name} = tw.s32(0)", f"{name} = as_s32(0)")
        test, limit = self.condition(1), self.rng.randrange(1, 4)
        texts = [f"while {name} < {limit} and {text}:" for text in _texts(test)]
        with self.block(*texts):
            self.line(f"{name} += 1", f"{name} = {name} + as_s32(1)")
            self.inside()
        self.ready.add(name)

    def leave(self) -> bool:
        """Ends a block, where something is around that it can leave."""
        words = ["break", "continue"] if self.loops else []
        if self.results:
            words.append("return")
        if not words:
            return False
        word = self.rng.choice(words)
        if word == "return":
            self.return_()
        else:
            self.line(word, word)
        return True

    def return_(self) -> None:
        values = [self.expression(result) for result in self.results]
        kernel = ", ".join(value.kernel for value in values)
        reference = ", ".join(v.of(t) for v, t in zip(values, self.results, strict=True))
        self.line(f"return {kernel}", f"return {reference}")


def _texts(both: Both) -> tuple[str, str]:
    return both.kernel, both.reference


def function(
    rng: random.Random, name: str, helpers: Sequence[Function], length: int, loose: bool = False
) -> Function:
    """A function that calls some of ``helpers``. Its parameters are assigned to as other names."""
    parameters = tuple(rng.choice(TYPES) for _ in range(rng.randrange(1, 4)))
    results = tuple(rng.choice(TYPES) for _ in range(1 if not helpers else rng.randrange(1, 4)))
    writer = Writer(rng, helpers, loose, results=results)
    names = [f"p{n}" for n in range(len(parameters))]
    writer.types.update(zip(names, parameters, strict=True))
    writer.ready.update(names)
    head = f"def {name}({', '.join(names)}):"
    writer.body(length)
    writer.return_()
    kernel, reference = (
        "\n".join([head, *lines, ""]) for lines in (writer.kernel, writer.reference)
    )
    return Function(name, parameters, results, f"@tw.function\n{kernel}", reference)
