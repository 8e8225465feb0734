"""The translation of one kernel, for one specialization: the state that its functions share."""

from __future__ import annotations

import ast
import builtins as python
from collections.abc import Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np

from tilewright.dtypes import DType, boolean
from tilewright.dtypes import dtype as find_dtype
from tilewright.errors import UnsupportedError
from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Expr
from tilewright.ir.visit import loads_in
from tilewright.lang.annotations import Constant
from tilewright.lang.arithmetic import Arithmetic
from tilewright.lang.barrier_checks import Together
from tilewright.lang.builtin import Builtin, Site, builtins
from tilewright.lang.emitter import Emitter
from tilewright.lang.expressions import Expressions
from tilewright.lang.identities import Identities, Shape
from tilewright.lang.messages import Messages
from tilewright.lang.source import Source
from tilewright.lang.statements import Translator
from tilewright.lang.tables import Tables
from tilewright.lang.tunables import Chosen, Tunable
from tilewright.lang.values import Array, Lambda, common_type, described, is_literal
from tilewright.lang.variables import Key, Types, Variable

# Functions of Python that kernels call by their own names.
_PYTHON = ("range", "min", "max", "abs", "len", "int", "float", "bool", "round", "pow", "print")

# Replacements for others of them in kernels.
_INSTEAD = {
    "sum": "add up in a loop: for k in range(n): total += x[k]",
    "any": "write `or`, or a loop",
    "all": "write `and`, or a loop",
    "divmod": "write a // b and a % b",
    "enumerate": "write for i in range(n), and use element i",
    "zip": "write for i in range(n), and use the elements i",
    "reversed": "count down: for i in range(n - 1, -1, -1)",
    "sorted": "sort in front of the kernel, or by tw.sort",
    "isinstance": "look at the type: x.dtype == tw.f32",
}


def _instead(name: str, value: Any) -> str | None:
    """The replacement for a function of Python, or of another library, that kernels don't call."""
    if getattr(python, name, None) is value:
        return _INSTEAD.get(name)
    return f"write tw.{name}" if callable(value) and name in builtins() else None


@dataclass(frozen=True)
class Function:
    """A function under translation: its source, and the values of its free names."""

    source: Source
    outside: Mapping[str, Any]


class Translation:
    """The shared state of all functions of one kernel during one translation, with ``types`` for
    its variables, and the values of ``tunables``."""

    def __init__(
        self, shape: Shape, types: Types, taken: tuple[str, ...], tunables: Chosen
    ) -> None:
        self.shape = shape
        self._tunables = tunables
        self.types = types
        self.emitter = Emitter(taken)
        self.arithmetic = Arithmetic(_unplaced, self.why_typed)
        self.identities = Identities(shape, self.emitter)
        self.messages = Messages(self.emitter, self.identities)
        self.together = Together()
        self.tables = Tables(self.emitter.fresh)
        self.stored: set[int] = set()
        self.gaps: list[tuple[str, int, str]] = []  # see `Specialized`
        self.scratch: dict[tuple[DType, int], Buffer] = {}  # local memory of group functions
        self.constants: dict[str, Any] = {}
        self.naming: str | None = None  # the name that is being assigned to
        self.unused: ast.Call | None = None  # the call whose value is not used
        self._calls: list[object] = []  # of functions, the innermost last
        self._declared: dict[Key, DType] = {}
        self.variables: dict[int, Variable] = {}  # by their memory

    # Names from outside of the kernel.

    def captured(self, scope: Expressions, name: str, value: Any) -> Any:
        """The value of a name from outside of the function."""
        if isinstance(value, Builtin | ModuleType | DType) or hasattr(value, "inline"):
            return value
        if isinstance(value, Constant):
            return value
        if isinstance(value, Tunable):
            self.constants[name] = value
            return self.tuned(scope, name, value)
        defined_name = getattr(value, "__name__", "")
        if defined_name in _PYTHON and getattr(python, defined_name) is value:
            return builtins()[defined_name]
        if defined_name in builtins() and getattr(value, "__module__", "") == "math":
            return builtins()[defined_name]
        if isinstance(value, np.ndarray) and value.ndim:
            self.constants[name] = value.copy()
            return self.tables.of_array(scope.refuse, name, value)
        if isinstance(value, np.generic | np.ndarray):
            value = value.item()
        if _is_constant(value):
            self.constants[name] = value
            return value
        if isinstance(value, type | np.dtype):
            try:
                return find_dtype(value)
            except UnsupportedError:
                pass
        raise scope.refuse(
            f"{name} is {_outside(value)}",
            "of what is outside, a kernel takes numbers, texts, tuples of these, arrays of numpy, "
            "types, modules and functions of kernels, as they are when it is compiled",
            _instead(defined_name, value)
            or "pass it as an argument, or decorate it with @tw.function",
        )

    def tuned(self, scope: Expressions, name: str, value: Any) -> Any:
        """The number that is chosen for a tunable; any other ``value`` as it is."""
        if not isinstance(value, Tunable):
            return value
        if value.name not in self._tunables:
            raise scope.refuse(
                f"{name} became a tunable after {value.name} was looked for",
                "a launch chooses among those that the kernel had at first",
                "declare it before the first launch",
            )
        return self._tunables[value.name]

    # Requirements of calls on the whole kernel.

    def require_local(self, site: Site) -> None:
        """Refuses a launch without a local size, as the size of a workgroup matters."""
        if self.shape.guarded:
            raise site.refuse(
                f"tw.{site.name} in a kernel that is launched without a local size",
                "its groups would be of any size, and the last one not whole",
                "pass local=(64,), say, which divides the range, or @tw.kernel(local=64)",
            )

    def require_subgroup(self, site: Site) -> int:
        """The number of lanes of a subgroup; refuses a kernel that does not say it."""
        if not self.shape.subgroup:
            raise site.refuse(
                f"tw.{site.name} in a kernel without subgroups",
                "how many lanes make one is part of what it computes",
                "decorate it with @tw.kernel(subgroup=16)",
            )
        return self.shape.subgroup

    def meet_in_subgroup(self, site: Site) -> None:
        """A barrier of the subgroup; none for one lane, as devices have no subgroups of one."""
        if self.require_subgroup(site) > 1:
            site.emitter.call("subgroup_barrier")

    def joint(self, group: str) -> None:
        """Notes that all work-items of ``group`` reach the last statement together."""
        stmt = self.emitter.block[-1]
        self.together.stmts[id(stmt)] = stmt, group

    def memory_name(self, site: Site, otherwise: str) -> str:
        """The name of memory: the name that is assigned to, if there is one."""
        return self.naming or otherwise

    # Memory and variables.

    def written(self, scope: Expressions | Site, array: Array) -> None:
        """Notes that ``array`` is stored to."""
        if self.tables.has(array):
            raise scope.refuse(
                f"a store to {array.buffer.name}",
                "an array from outside of the kernel is part of its code",
                "pass it as an argument",
            )
        self.stored.add(id(array.buffer))

    def declare_type(self, key: Key, dtype: DType) -> None:
        """Notes the type that the user declares for a variable."""
        self._declared[key] = dtype

    def assigned(self, scope: Expressions, variable: Variable, value: Any) -> DType:
        """The type of ``variable`` once ``value`` is assigned to it, too."""
        old = self.types.settling.get(variable.key)
        weak = is_literal(value) or value in self.arithmetic.weak
        dtype = self.arithmetic.type_of(value)
        declared = self._declared.get(variable.key)
        if declared is not None:
            dtype, weak, old = declared, False, None
        if old is not None:
            dtype, weak = self._joined(scope, variable, old, (dtype, weak), value)
        self.types.places.setdefault((variable.key, dtype), scope.source.span(scope.node))
        self.types.settling[variable.key] = dtype, weak
        return dtype

    def why_typed(self, value: Any) -> str:
        """The assignment that decided the type of a variable in ``value``, in words for errors;
        empty without a variable."""
        for load in loads_in(value) if isinstance(value, Expr) else ():
            variable = self.variables.get(id(load.buffer))
            place = variable and self.types.places.get((variable.key, load.type))
            if variable and place:
                text = place.text[place.start : place.end].split("\n")[0]
                return f"{variable.name} is {load.type} because of line {place.line}, `{text}`"
        return ""

    def _joined(
        self,
        scope: Expressions,
        variable: Variable,
        old: tuple[DType, bool],
        new: tuple[DType, bool],
        value: Any,
    ) -> tuple[DType, bool]:
        (a, weak_a), (b, weak_b) = old, new
        if weak_a != weak_b:
            strong, weak = (b, a) if weak_a else (a, b)
            if (weak.is_float and not strong.is_float) or strong is boolean:
                return weak, False
            wide = isinstance(value, int) and not isinstance(value, bool) and strong.is_integer
            if not (wide and not strong.lowest <= value <= strong.highest):
                return strong, False
        common = common_type(a, b)
        if common is None:
            raise scope.refuse(
                f"{variable.name} is {a} on one path, and {b} here",
                "no type holds both",
                f"convert one of them: tw.{a}(...)",
            )
        return common, weak_a and weak_b

    # Calls.

    def call(self, function: Any, scope: Expressions, arguments: Mapping[str, Any]) -> Any:
        """Translates the body of ``function`` where it is called."""
        if any(called is function for called in self._calls):
            raise scope.refuse(
                f"{function.name} calls itself",
                "functions of kernels are written out where they are called",
                "write a loop",
            )
        translated: Function = function.function
        path = (*getattr(scope, "path", ()), id(scope.node))
        inner = Translator(translated.source, self.emitter, translated.outside, self, path)
        inner.guard = scope.guard
        outer = self.emitter.span
        self._calls.append(function)
        result = inner.run(arguments)
        self._calls.pop()
        self.emitter.span = outer
        self.arithmetic.refuse = scope._refuse
        return result

    def call_lambda(self, function: Lambda, values: list[Any], scope: Expressions) -> Any:
        """The value of a lambda for these arguments."""
        names = [parameter.arg for parameter in function.tree.args.args]
        if len(names) != len(values):
            raise scope.refuse(
                f"{len(values)} values for a lambda of {len(names)}", cure="give each name a value"
            )
        inside: Expressions = function.scope
        outer = dict(inside.names)
        inside.names.update(zip(names, values, strict=True))
        result = inside.value(function.tree.body)
        inside.names = outer
        return result


def _unplaced(what: str, why: str | None, cure: str) -> Any:
    raise AssertionError(what)


def _is_constant(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(map(_is_constant, value))
    return value is None or isinstance(value, bool | int | float | str)


def _outside(value: Any) -> str:
    return described(value) if not isinstance(value, Expr) else "an expression"
