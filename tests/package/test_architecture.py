"""The shape of the package: ranks, cycles, imports, sizes, and words; and each check on planted
faults.

`docs/architecture.md` has the rooms and why they are ranked so.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import TypeVar

import pytest

from checkout import ROOT, TESTS
from tilewright.schedule import TRANSFORMS

SOURCE = ROOT / "src" / "tilewright"
PACKAGE = "tilewright"

# A module imports its own room and rooms of lower rank. "" is the package's own __init__.
RANKS: tuple[tuple[str, ...], ...] = (
    ("errors", "calls", "config", "dtypes", "conversions", "newest", "notebook", "writing"),
    ("tables",),
    ("ir",),
    ("facts", "simplify"),
    ("layout", "problems"),
    ("tensor", "machines"),
    ("ops", "interpret", "schedule", "passes", "predict"),
    ("recipes",),
    ("runtime",),
    ("targets",),
    ("engine",),
    ("graph", "lang"),
    ("measure", "queues"),
    ("frontends", "testing", "bench"),
    ("tune",),
    ("compiling",),
    ("tuning",),
    ("", "cli"),
    ("__main__",),
)
RANK = {room: rank for rank, rooms in enumerate(RANKS) for room in rooms}

# Rooms of one rank that may import each other, in this direction.
PEERS: Mapping[tuple[str, str], str] = {
    ("calls", "errors"): "a call that does not fit is an error",
    ("config", "errors"): "a wrong setting is an error",
    ("dtypes", "errors"): "an unknown type is an error",
    ("conversions", "dtypes"): "conversions are between types",
    ("simplify", "facts"): "rules have conditions, which facts prove",
    ("testing", "frontends"): "files of other frameworks are run, and judged",
    ("bench", "testing"): "what the rates of a machine are fitted to are random cases",
    ("cli", ""): "the command says its version, which is the package's",
}

# Inside of big rooms, files have ranks, too: each imports those of its own layer and of layers
# before. "*" is every file that is not named.
LAYERS: Mapping[str, tuple[str, ...]] = {
    "schedule": (
        "queries.refusal",
        "queries.place queries.digits queries.identity queries.storage "
        "queries.merged_dims staging.copiers records.handles",
        "queries.access queries.runs queries.dependence queries.flow queries.contractions "
        "queries.prologues queries.shared_dims queries.crossed queries.chained queries.cutting "
        "queries pipelines.rounds pipelines.barriers dims.phases",
        "records.transform",
        "*",
        "records.record records.arguments",
        "records.reading schedule",
        "records.replaying",
    ),
    "recipes": (
        "parts.forms parts.work roles",
        "parts.product parts.tile parts.reduction parts.staging parts.order "
        "parts.storing parts config choice start recipe space reducible prologues",
        "*",
        "contraction stencil plain warpgroups workgroups",
        "matrix_model workgroup_cost workgroup_candidates workgroup_model workgroup_recipe",
        "choose",
        "fusing",
    ),
    "targets.llvm": (
        "types values writer dialect by_lanes emitter_client backend emitter",
        "module plan varying strides subgroups host entry contraction",
        "*",
        "addresses",
        "memory",
        "calls branches loops fragments transpose computes",
        "atomics statements",
        "nests inputs functions",
        "launches phases",
    ),
}
# Imports inside functions, besides those in `cli` and the package's __init__.
LATE_IMPORTS: Mapping[tuple[str, str], str] = {
    ("compiling.py", "compile"): "LLVM and schedules load with the first kernel",
    ("compiling.py", "_with_tunables"): "who compiles ops needs no kernels in Python",
    ("compiling.py", "parse_kernel"): "who parses kernels needs no schedules",
    ("compiling.py", "parse_schedule"): "who parses schedules needs no LLVM",
    ("tuning.py", "autotune"): "who tunes nothing loads no SQLite",
    ("tuning.py", "_search"): "who tunes nothing loads no SQLite",
    ("engine/compile.py", "_winner"): "who names no database loads no SQLite",
    ("engine/compile.py", "_origin"): "who names no database loads no SQLite",
    ("lang/tuned.py", "asked"): "who names no database loads no SQLite",
    ("lang/tuned.py", "winner"): "who names no database loads no SQLite",
    ("lang/tuned.py", "origin"): "who names no database loads no SQLite",
    ("bench/torch_tensors.py", "load_torch"): "torch is optional, and takes a second to import",
    ("bench/roofline.py", "_axes"): "matplotlib is optional",
    ("graph/reporting.py", "_show"): "nobody needs rich who has no terminal",
    ("frontends/models.py", "from_torch"): "torch is optional",
    ("frontends/models.py", "load_exported"): "torch is optional",
    ("frontends/models.py", "from_onnx"): "onnx is optional",
    ("tune/workers.py", "load_distributed"): "distributed is optional",
    ("targets/nvidia/device.py", "load_cuda"): "cuda-bindings is optional",
    ("targets/spirv/device.py", "load_opencl"): "pyopencl is optional, and needs libraries first",
}
OPTIONAL = ("torch", "jax", "matplotlib", "pyopencl", "cuda", "distributed")
# A front end is loaded by whoever has its framework: these folders import it as any other.
FRAMES: Mapping[str, str] = {
    "frontends/torch/": "torch",
    "frontends/jax/": "jax",
    "frontends/onnx/": "onnx",
}

# Where a target's name may be compared, besides `targets`.
TARGET_NAMES: Mapping[tuple[str, str], str] = {
    ("cli/checking.py", "repeat"): "an option that has its default is left out of what is printed",
}
FAMILIES = ("x86", "nvidia", "spirv", "amdgpu", "cuda", "opencl", "vulkan")

FILE_LINES, FUNCTION_LINES = 450, 70
LONG_FILES: Mapping[str, str] = {}
LONG_FUNCTIONS: Mapping[tuple[str, str], str] = {
    (
        "schedule/reductions/rfactor.py",
        "rfactor",
    ): "its docstring shows four uses, before and after",
}

# What builds or changes statements: rooms that only choose transforms have no use for it.
REWRITING = re.compile(r"(map|rewrite|replace)_\w+|with_nested|block|substitute")
STATEMENTS = re.compile("Kernel|Block|For|If|While|Let|Allocate|Store|Call|Compute|Opaque")
CHOOSING = ("recipes",)
# Where recipes catch what a schedule refuses, besides `KernelSchedule.attempt`.
REFUSALS: Mapping[tuple[str, str], str] = {
    ("recipes/choose.py", "_legal"): "the next candidate is another schedule",
    ("recipes/choose.py", "_least"): "the next recipe makes another schedule",
    ("recipes/choose.py", "_best_of_user"): "it is said of the user's recipe",
    ("recipes/recipe.py", "predict"): "what is not legal has no time",
    ("recipes/choose.py", "_timed"): "what is not legal has no time",
    ("recipes/choose.py", "_changed"): "the next default is another schedule",
    ("recipes/choose.py", "_carried_out"): "what a transform refuses is said of the config",
}

# Where recipes ask which kind of machine it is, besides `matches`: all else is data of the machine.
MACHINE_KINDS: Mapping[tuple[str, str], str] = {
    ("recipes/plain.py", "_items_as_lanes"): "a kernel's work-items where it has none",
    ("recipes/workgroup_model.py", "predicts"): "whether a model predicts times",
}
# What of a text is put together to a name, or taken for one, in recipes.
NAME_PIECE = re.compile(r"[\w%{}]*_[\w%{}]*")
NAMES: Mapping[tuple[str, str], str] = {
    ("recipes/roles.py", "named_after"): "it names what a recipe makes anew",
    ("recipes/given.py", "_parts"): "dims of a user's config that were made of others",
    ("recipes/config.py", "without_units"): "dims of a user's config that were made of others",
    ("recipes/config.py", "parse_config"): "the text of a config",
    ("recipes/parts/forms.py", "_ships"): "where a type is defined",
    ("recipes/parts/forms.py", "_spelled"): "how a type is written",
    ("recipes/choose.py", "_carried_out"): "where an error says that it is",
    ("recipes/choices.py", "choose_instruction"): "the name of an instruction",
    ("recipes/unit_tiles.py", "moved_by_tiles"): "the name of an instruction",
    ("recipes/workgroup_model.py", "_instruction"): "the name of an instruction",
}

ENVIRONMENT = {"environ", "environb", "getenv", "getenvb", "putenv"}
VAGUE = {"utils", "util", "misc", "helpers", "helper", "common", "stuff"}
PREFIX_TESTS = {"startswith", "endswith", "removeprefix"}
TAKEN_APART = {*PREFIX_TESTS, "removesuffix"}
UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")


# The nodes that the checks look at, and what else stands in a node and has none of them inside.
ASKED = (
    *(ast.Import, ast.ImportFrom, ast.Attribute, ast.FunctionDef, ast.AsyncFunctionDef),
    *(ast.Compare, ast.MatchValue, ast.Call, ast.Raise, ast.ExceptHandler),
    *(ast.JoinedStr, ast.BinOp),
)
_LEAVES = frozenset(
    {
        *(ast.Name, ast.Constant, ast.Load, ast.Store, ast.alias, ast.Pass),
        *(str, int, float, bytes, complex, bool, type(None), type(...)),
        *(*ast.operator.__subclasses__(), *ast.unaryop.__subclasses__()),
        *(*ast.boolop.__subclasses__(), *ast.cmpop.__subclasses__()),
    }
)
Node = TypeVar("Node", bound=ast.AST)


@dataclass(frozen=True)
class Import:
    """``target`` is a dotted module, or what follows it; ``function`` is what it stands in."""

    target: str
    line: int
    function: str
    typing_only: bool


@dataclass
class Module:
    """One file of the package that is checked; ``file`` is relative to it."""

    file: str
    text: str
    imports: list[Import] = field(default_factory=list)

    @cached_property
    def placed(self) -> list[tuple[ast.AST, str, bool]]:
        """What the checks look at: few of all nodes, of which one walk takes seconds."""
        return list(_placed(ast.parse(self.text)))

    def nodes(self, kind: type[Node]) -> Iterator[Node]:
        """The nodes of a kind, which is one of those that are `ASKED` for."""
        return (node for node, _, _ in self.placed if isinstance(node, kind))

    @property
    def name(self) -> str:
        """Dotted, below the package; a folder's ``__init__`` has the folder's name."""
        parts = self.file.removesuffix(".py").split("/")
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    @property
    def room(self) -> str:
        return self.name.split(".")[0]


def modules_of(source: Path) -> dict[str, Module]:
    """All modules below ``source``, by name, with their imports resolved."""
    result = {}
    for path in sorted(source.rglob("*.py")):
        file = path.relative_to(source).as_posix()
        module = Module(file, path.read_text(encoding="utf-8"))
        result[module.name] = module
    for module in result.values():
        module.imports = list(_imports(module, result))
    return result


def _imports(module: Module, known: Mapping[str, Module]) -> Iterator[Import]:
    for node, function, typing_only in module.placed:
        if isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = "." * node.level + (node.module or "")
            targets = []
            for alias in node.names:
                whole = f"{base}.{alias.name}"
                targets.append(whole if whole.removeprefix(f"{PACKAGE}.") in known else base)
        else:
            continue
        for target in targets:
            yield Import(target, node.lineno, function, typing_only)


def _placed(tree: ast.AST) -> Iterator[tuple[ast.AST, str, bool]]:
    """The nodes that are `ASKED` for, in order, each with the outermost function around it, and
    whether only type checkers see it."""
    rest: list[tuple[ast.AST, str, bool]] = [(tree, "", False)]
    while rest:
        node, function, typing_only = rest.pop()
        if isinstance(node, ASKED):
            yield node, function, typing_only
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                function = function or node.name
        elif isinstance(node, ast.If):
            typing_only = typing_only or ast.unparse(node.test) == "TYPE_CHECKING"
        inside = [
            (child, function, typing_only)
            for part in node.__dict__.values()
            for child in (part if part.__class__ is list else (part,))
            if child.__class__ not in _LEAVES
        ]
        rest += inside[::-1]


def _inner(target: str) -> str | None:
    """The module's name below the package; None for other packages."""
    if target == PACKAGE:
        return ""
    return target.removeprefix(f"{PACKAGE}.") if target.startswith(f"{PACKAGE}.") else None


# The checks: each gives one line for each fault.

Check = Callable[[Mapping[str, Module]], Iterable[str]]


def ranks(modules: Mapping[str, Module]) -> Iterator[str]:
    for module in modules.values():
        if module.room not in RANK:
            yield f"{module.file}: the room {module.room!r} has no rank"
            continue
        for imported in module.imports:
            target = _inner(imported.target)
            if target is None:
                continue
            room = target.split(".")[0]
            lower = RANK.get(room, len(RANKS)) < RANK[module.room]
            if room != module.room and not lower and (module.room, room) not in PEERS:
                name = room or "the package itself"
                yield f"{module.file}:{imported.line}: {module.room} may not import {name}"


def layers(modules: Mapping[str, Module]) -> Iterator[str]:
    """Files of a big room import those of their own layer, and of layers before."""
    for room, named in LAYERS.items():
        level = {name: i for i, names in enumerate(named) for name in names.split()}
        for module in modules.values():
            if not module.name.startswith(f"{room}."):
                continue
            own = level.get(module.name.removeprefix(f"{room}."), level["*"])
            for imported in module.imports:
                target = _inner(imported.target) or ""
                name = target.removeprefix(f"{room}.")
                if name != target and level.get(name, level["*"]) > own:
                    yield f"{module.file}:{imported.line}: {name} is of a later layer"
        files = {name.removeprefix(f"{room}.") for name in modules if name.startswith(f"{room}.")}
        if len(modules) > 50:
            yield from (f"LAYERS: {room} has no file {n}" for n in level.keys() - files - {"*"})


def families(modules: Mapping[str, Module]) -> Iterator[str]:
    """A vendor's machines are known to those who make them, and to their own target; targets
    schedule nothing."""
    for module in modules.values():
        for imported in module.imports:
            target = _inner(imported.target) or ""
            room, *rest = target.split(".")
            if room == "machines" and rest and rest[0] in FAMILIES:
                own = module.name.startswith((f"machines.{rest[0]}", f"targets.{rest[0]}"))
                if not own and module.room not in ("testing", "bench", "cli"):
                    yield f"{module.file}:{imported.line}: knows the machines of {rest[0]}"
            if room == "schedule" and module.room == "targets":
                yield f"{module.file}:{imported.line}: a target schedules nothing"


def cycles(modules: Mapping[str, Module]) -> Iterator[str]:
    """Imports for types count, but where a folder's face names what it loads when first used."""
    graph = {
        name: {
            target
            for imported in module.imports
            if not (imported.typing_only and module.file.endswith("__init__.py"))
            and (target := _inner(imported.target)) in modules
        }
        for name, module in modules.items()
    }
    done: set[str] = set()
    for start in graph:
        path: list[str] = []
        pending = [(start, iter(sorted(graph[start])))] if start not in done else []
        while pending:
            name, rest = pending[-1]
            if len(path) < len(pending):
                path.append(name)
            target = next((t for t in rest if t not in done), None)
            if target is None:
                done.add(name)
                pending.pop()
                path.pop()
            elif target in path:
                yield "cycle: " + " -> ".join([*path[path.index(target) :], target])
            else:
                pending.append((target, iter(sorted(graph[target]))))


def late_imports(modules: Mapping[str, Module]) -> Iterator[str]:
    used = set()
    for module in modules.values():
        for imported in module.imports:
            place = f"{module.file}:{imported.line}"
            if imported.target.startswith("."):
                yield f"{place}: a relative import"
            if imported.function and module.room not in ("cli", ""):
                used.add((module.file, imported.function))
                if (module.file, imported.function) not in LATE_IMPORTS:
                    yield f"{place}: an import in the function {imported.function}"
            root = imported.target.split(".")[0]
            own = any(module.file.startswith(f) and root == frame for f, frame in FRAMES.items())
            if not imported.function and root in OPTIONAL and not own:
                yield f"{place}: {imported.target} is optional: import it in a loader"
    yield from _stale("LATE_IMPORTS", LATE_IMPORTS, used, modules)


def environment(modules: Mapping[str, Module]) -> Iterator[str]:
    for module in modules.values():
        if module.name == "config":
            continue
        result = [(node.lineno, node.attr) for node in module.nodes(ast.Attribute)]
        for node in module.nodes(ast.ImportFrom):
            if node.module == "os":
                result += [(node.lineno, alias.name) for alias in node.names]
        for line, name in result:
            if name in ENVIRONMENT:
                yield f"{module.file}:{line}: the environment is read in config.py only"


def sizes(modules: Mapping[str, Module]) -> Iterator[str]:
    files, functions = set(), set()
    for module in modules.values():
        lines = len(module.text.splitlines())
        if lines > FILE_LINES:
            files.add(module.file)
            if module.file not in LONG_FILES:
                yield f"{module.file}: {lines} lines, more than {FILE_LINES}"
        for node in (*module.nodes(ast.FunctionDef), *module.nodes(ast.AsyncFunctionDef)):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > FUNCTION_LINES:
                functions.add((module.file, node.name))
                if (module.file, node.name) not in LONG_FUNCTIONS:
                    yield (
                        f"{module.file}:{node.lineno}: {node.name} has {lines} lines, "
                        f"more than {FUNCTION_LINES}"
                    )
    yield from _stale("LONG_FILES", LONG_FILES, files, modules)
    yield from _stale("LONG_FUNCTIONS", LONG_FUNCTIONS, functions, modules)


def target_names(modules: Mapping[str, Module]) -> Iterator[str]:
    """What one target needs is data in its machine or code in its folder, never a question."""
    used = set()
    for module in modules.values():
        if module.room == "targets":
            continue
        for node, function, _ in module.placed:
            asked = [name for name in _compared(node) if name.split(":")[0] in FAMILIES]
            if asked:
                used.add((module.file, function))
                if (module.file, function) not in TARGET_NAMES:
                    line = getattr(node, "lineno", 0)
                    yield f"{module.file}:{line}: asks for the target {asked[0]!r}"
    yield from _stale("TARGET_NAMES", TARGET_NAMES, used, modules)


def machine_kinds(modules: Mapping[str, Module]) -> Iterator[str]:
    """What recipes have to know of a machine is its data; its kind decides in `matches` only."""
    used = set()
    for module in modules.values():
        if module.room not in CHOOSING:
            continue
        for node, function, _ in module.placed:
            if _is_kind(node):
                used.add((module.file, function))
                if function != "matches" and (module.file, function) not in MACHINE_KINDS:
                    line = getattr(node, "lineno", 0)
                    yield f"{module.file}:{line}: asks for the kind of machine"
    yield from _stale("MACHINE_KINDS", MACHINE_KINDS, used, modules)


def _is_kind(node: ast.AST) -> bool:
    """Whether ``node`` asks what kind of machine it is: by such a property, or by what it lacks."""
    if isinstance(node, ast.Attribute):
        return node.attr in ("banked", "features", "threaded")
    if not isinstance(node, ast.Compare) or not isinstance(node.left, ast.Attribute):
        return False
    owner, (other, *_) = node.left.value, node.comparators
    of_machine = "machine" in (getattr(owner, "id", ""), getattr(owner, "attr", ""))
    return of_machine and isinstance(other, ast.Constant) and other.value is None


def _compared(node: ast.AST) -> Iterator[str]:
    """The texts that ``node`` compares something with."""
    parts: list[ast.expr] = []
    if isinstance(node, ast.Compare):
        for operand in (node.left, *node.comparators):
            parts += (
                operand.elts if isinstance(operand, ast.Tuple | ast.List | ast.Set) else [operand]
            )
    elif isinstance(node, ast.MatchValue):
        parts = [node.value]
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        parts = node.args if node.func.attr in PREFIX_TESTS else []
    for part in parts:
        if isinstance(part, ast.Constant) and isinstance(part.value, str):
            yield part.value


def rewriting(modules: Mapping[str, Module]) -> Iterator[str]:
    """What schedules a kernel applies transforms, which are recorded, and changes no IR besides."""
    for module in modules.values():
        if module.room not in CHOOSING:
            continue
        for node, _, _ in module.placed:
            result: list[str] = []
            if isinstance(node, ast.ImportFrom) and node.module == f"{PACKAGE}.ir.visit":
                result = [n.name for n in node.names if REWRITING.fullmatch(n.name)]
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                results = node.func.id == "replace" and any(k.arg == "body" for k in node.keywords)
                result = [node.func.id] if results or STATEMENTS.fullmatch(node.func.id) else []
            for name in result:
                yield f"{module.file}:{getattr(node, 'lineno', 0)}: {name} is for transforms"


def scheduling(modules: Mapping[str, Module]) -> Iterator[str]:
    """Recipes call the methods of a schedule: no transform, and no other way to try a step than
    `KernelSchedule.attempt`."""
    used = set()
    for module in modules.values():
        if module.room not in CHOOSING:
            continue
        for node in module.nodes(ast.ImportFrom):
            of_schedules = (node.module or "").startswith(f"{PACKAGE}.schedule")
            for name in (n.name for n in node.names if of_schedules and n.name in TRANSFORMS):
                yield f"{module.file}:{node.lineno}: {name} is a method of the schedule"
        for node, function, _ in module.placed:
            caught = ast.unparse(node.type or node) if isinstance(node, ast.ExceptHandler) else ""
            if "ScheduleError" in caught:
                used.add((module.file, function))
                if (module.file, function) not in REFUSALS:
                    yield f"{module.file}:{node.lineno}: attempt() tries steps"
    yield from _stale("REFUSALS", REFUSALS, used, modules)


def naming(modules: Mapping[str, Module]) -> Iterator[str]:
    """No text in recipes builds the name of a compute, a loop or a buffer, or takes one apart: a
    step gives handles, and the IR says what a compute does.

    A piece of a name is told from a message by what it is made of: letters, digits and underscores,
    one at least of these. What a recipe itself makes anew, dims that it splits or fuses above all,
    it may call as it likes, by `recipes.roles.named_after`: no other function builds names.
    """
    used = set()
    for module in modules.values():
        if module.room not in CHOOSING:
            continue
        for node, function, _ in module.placed:
            if _names(node):
                used.add((module.file, function))
                if (module.file, function) not in NAMES:
                    line = getattr(node, "lineno", 0)
                    yield f"{module.file}:{line}: {ast.unparse(node)} builds or takes apart a name"
    yield from _stale("NAMES", NAMES, used, modules)


def _names(node: ast.AST) -> bool:
    """Whether ``node`` builds a name of pieces, or asks for pieces of one."""
    texts: list[ast.expr] = []
    if isinstance(node, ast.JoinedStr):
        pieces = (value.value for value in node.values if isinstance(value, ast.Constant))
        texts = [ast.Constant("".join(map(str, pieces)))]
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Mod):
        texts = [node.left, node.right]
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if node.func.attr in TAKEN_APART:
            return True
        texts = [node.func.value, *node.args] if hasattr(str, node.func.attr) else []
    result = (text.value for text in texts if isinstance(text, ast.Constant))
    return any(isinstance(text, str) and NAME_PIECE.fullmatch(text) for text in result)


def words(modules: Mapping[str, Module]) -> Iterator[str]:
    for module in modules.values():
        for part in module.name.split("."):
            if VAGUE & set(part.split("_")):
                yield f"{module.file}: {part!r} says nothing about what is in it"
        for found in UNFINISHED.finditer(module.text):
            line = module.text.count("\n", 0, found.start()) + 1
            yield f"{module.file}:{line}: {found.group()}"
        for node in module.nodes(ast.Raise):
            if "NotImplementedError" in ast.unparse(node):
                yield f"{module.file}:{node.lineno}: raises NotImplementedError"


def _stale(
    table: str,
    allowed: Mapping[str, str] | Mapping[tuple[str, str], str],
    used: Iterable[str | tuple[str, str]],
    modules: Mapping[str, Module],
) -> Iterator[str]:
    """Exceptions that nothing needs any more. Planted packages have none of the files."""
    files = {module.file for module in modules.values()}
    for key in set(allowed) - set(used):
        if len(files) > 50 or (key if isinstance(key, str) else key[0]) in files:
            yield f"{table}: {key} is not needed any more: delete it"


CHECKS: tuple[Check, ...] = (
    ranks,
    layers,
    families,
    cycles,
    late_imports,
    environment,
    sizes,
    target_names,
    machine_kinds,
    rewriting,
    scheduling,
    naming,
    words,
)


@cache
def _whole() -> dict[str, Module]:
    return modules_of(SOURCE)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_package(check: Check) -> None:
    assert list(check(_whole())) == []


def test_every_folder_is_ranked() -> None:
    rooms = {p.name.removesuffix(".py") for p in SOURCE.iterdir() if not p.name.startswith("_")}
    assert rooms - set(RANK) <= {"py.typed"}


# The checks themselves, on packages with one fault each.

_LONG = "\n".join(["def long() -> None:", *["    pass"] * 80])
FAULTS: tuple[tuple[Check, dict[str, str], str], ...] = (
    (ranks, {"ir/a.py": "from tilewright.ops.op import Op"}, "ir/a.py:1: ir may not import ops"),
    (ranks, {"ir/a.py": "import tilewright.engine"}, "ir/a.py:1: ir may not import engine"),
    (ranks, {"ops/a.py": "import tilewright.recipes"}, "ops/a.py:1: ops may not import recipes"),
    (
        ranks,
        {"facts/a.py": "from tilewright.simplify import simplify"},
        "facts/a.py:1: facts may not import simplify",
    ),
    (
        ranks,
        {"ops/a.py": "from tilewright import compile"},
        "ops/a.py:1: ops may not import the package itself",
    ),
    (
        ranks,
        {"ops/a.py": "def f():\n    from tilewright.engine import compile_kernel"},
        "ops/a.py:2: ops may not import engine",
    ),
    (
        ranks,
        {
            "ops/a.py": "from typing import TYPE_CHECKING\n"
            "if TYPE_CHECKING:\n    from tilewright.tune import space"
        },
        "ops/a.py:3: ops may not import tune",
    ),
    (
        layers,
        {
            "schedule/queries/place.py": "from tilewright.schedule.loops.tile import tile",
            "schedule/loops/tile.py": "",
        },
        "schedule/queries/place.py:1: loops.tile is of a later layer",
    ),
    (
        layers,
        {
            "targets/llvm/memory.py": "from tilewright.targets.llvm import phases",
            "targets/llvm/phases.py": "",
        },
        "targets/llvm/memory.py:1: phases is of a later layer",
    ),
    (
        families,
        {"recipes/a.py": "from tilewright.machines.nvidia.rates import RATES"},
        "recipes/a.py:1: knows the machines of nvidia",
    ),
    (
        families,
        {
            "targets/spirv/a.py": "from tilewright.machines import x86",
            "machines/x86/__init__.py": "",
        },
        "targets/spirv/a.py:1: knows the machines of x86",
    ),
    (
        families,
        {"targets/x86/a.py": "from tilewright.schedule.queries.place import Place"},
        "targets/x86/a.py:1: a target schedules nothing",
    ),
    (ranks, {"attic/a.py": ""}, "attic/a.py: the room 'attic' has no rank"),
    (
        cycles,
        {"ir/a.py": "from tilewright.ir import b", "ir/b.py": "import tilewright.ir.a"},
        "cycle: ir.a -> ir.b -> ir.a",
    ),
    (
        cycles,
        {
            "ir/a.py": "if TYPE_CHECKING:\n    from tilewright.ir import b",
            "ir/b.py": "import tilewright.ir.a",
        },
        "cycle: ir.a -> ir.b -> ir.a",
    ),
    (
        cycles,
        {
            "ir/__init__.py": "from tilewright.ir.a import x",
            "ir/a.py": "from tilewright.ir import y",
        },
        "cycle: ir -> ir.a -> ir",
    ),
    (
        cycles,
        {
            "ir/a.py": "from tilewright.ir.b import x",
            "ir/b.py": "from tilewright.ir.c import x",
            "ir/c.py": "def f():\n    from tilewright.ir.a import x",
        },
        "cycle: ir.a -> ir.b -> ir.c -> ir.a",
    ),
    (
        late_imports,
        {"ops/a.py": "def f():\n    def g():\n        import json"},
        "ops/a.py:3: an import in the function f",
    ),
    (late_imports, {"ops/a.py": "from . import op"}, "ops/a.py:1: a relative import"),
    (
        late_imports,
        {"bench/a.py": "import torch.nn"},
        "bench/a.py:1: torch.nn is optional: import it in a loader",
    ),
    (
        late_imports,
        {"frontends/jax/a.py": "import torch"},
        "frontends/jax/a.py:1: torch is optional: import it in a loader",
    ),
    (
        late_imports,
        {"bench/roofline.py": ""},
        "LATE_IMPORTS: ('bench/roofline.py', '_axes') is not needed any more: delete it",
    ),
    (
        environment,
        {"ops/a.py": "import os\nx = os.environ['X']"},
        "ops/a.py:2: the environment is read in config.py only",
    ),
    (
        environment,
        {"ops/a.py": "from os import getenv"},
        "ops/a.py:1: the environment is read in config.py only",
    ),
    (sizes, {"ops/a.py": "x = 1\n" * 451}, "ops/a.py: 451 lines, more than 450"),
    (sizes, {"ops/a.py": _LONG}, "ops/a.py:1: long has 81 lines, more than 70"),
    (
        target_names,
        {"recipes/a.py": "if target.name == 'nvidia':\n    pass"},
        "recipes/a.py:1: asks for the target 'nvidia'",
    ),
    (
        target_names,
        {"recipes/a.py": "x = name in ('cpu', 'x86:avx2')"},
        "recipes/a.py:1: asks for the target 'x86:avx2'",
    ),
    (
        target_names,
        {"engine/a.py": "x = name.startswith('spirv')"},
        "engine/a.py:1: asks for the target 'spirv'",
    ),
    (
        machine_kinds,
        {"recipes/a.py": "def choose(machine):\n    return 1 if machine.banked else 4"},
        "recipes/a.py:2: asks for the kind of machine",
    ),
    (
        machine_kinds,
        {"recipes/a.py": "def schedule(s, machine):\n    return 8 if machine.threaded else 1"},
        "recipes/a.py:2: asks for the kind of machine",
    ),
    (
        machine_kinds,
        {"recipes/a.py": "def most(machine):\n    return machine.tile_unit is None"},
        "recipes/a.py:2: asks for the kind of machine",
    ),
    (
        target_names,
        {"engine/a.py": "match name:\n    case 'x86':\n        pass"},
        "engine/a.py:2: asks for the target 'x86'",
    ),
    (
        rewriting,
        {"recipes/a.py": "from tilewright.ir.visit import rewrite_stmts, walk_stmts"},
        "recipes/a.py:1: rewrite_stmts is for transforms",
    ),
    (
        rewriting,
        {"recipes/a.py": "x = replace(kernel, body=stmt)"},
        "recipes/a.py:1: replace is for transforms",
    ),
    (rewriting, {"recipes/a.py": "x = For(v, n, s)"}, "recipes/a.py:1: For is for transforms"),
    (
        scheduling,
        {"recipes/a.py": "from tilewright.schedule.loops.tile import tile"},
        "recipes/a.py:1: tile is a method of the schedule",
    ),
    (
        scheduling,
        {"recipes/a.py": "def f():\n    try:\n        s.tile()\n    except ScheduleError: s"},
        "recipes/a.py:4: attempt() tries steps",
    ),
    *(
        (
            naming,
            {"recipes/a.py": f"x = {text}"},
            f"recipes/a.py:1: {text} builds or takes apart a name",
        )
        for text in (
            "f'{dim}_o'",
            "name + '_across'",
            "'%s_store' % name",
            "'_'.join(dims)",
            "'{}_load'.format(name)",
            "name.split('_')",
            "name.endswith('next')",
            "name.startswith(dim)",
        )
    ),
    (
        naming,
        {"recipes/unit_tiles.py": ""},
        "NAMES: ('recipes/unit_tiles.py', 'moved_by_tiles') is not needed any more: delete it",
    ),
    (words, {"ops/a.py": "\n# TODO: more"}, "ops/a.py:2: TODO"),
    (
        words,
        {"ops/a.py": "def f():\n    raise NotImplementedError('later')"},
        "ops/a.py:2: raises NotImplementedError",
    ),
    (
        words,
        {"ops/view_utils.py": ""},
        "ops/view_utils.py: 'view_utils' says nothing about what is in it",
    ),
)


def _package(folder: Path, files: Mapping[str, str]) -> dict[str, Module]:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return modules_of(folder)


@pytest.mark.parametrize(("check", "files", "fault"), FAULTS, ids=[fault for *_, fault in FAULTS])
def test_a_planted_fault(check: Check, files: dict[str, str], fault: str, tmp_path: Path) -> None:
    assert list(check(_package(tmp_path, files))) == [fault]


def test_names_of_test_files() -> None:
    """pytest takes two test files of one name, in whatever folders, for one module."""
    names = Counter(path.name for path in TESTS.rglob("test_*.py"))
    assert [name for name, count in names.items() if count > 1] == []


def test_exceptions_to_sizes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Where they are needed, and where they no longer are: there may be none in the package."""
    here = sys.modules[__name__]
    monkeypatch.setattr(here, "LONG_FILES", {"ops/a.py": "it is long", "ops/b.py": "it was long"})
    long = {("ops/a.py", "long"): "it is long", ("ops/b.py", "short"): "it was long"}
    monkeypatch.setattr(here, "LONG_FUNCTIONS", long)
    files = {"ops/a.py": _LONG + "\n" + "x = 1\n" * 451, "ops/b.py": "def short(): pass"}
    assert list(sizes(_package(tmp_path, files))) == [
        "LONG_FILES: ops/b.py is not needed any more: delete it",
        "LONG_FUNCTIONS: ('ops/b.py', 'short') is not needed any more: delete it",
    ]


def test_what_is_allowed(tmp_path: Path) -> None:
    modules = _package(
        tmp_path,
        {
            "config.py": "import os\nfrom tilewright.errors import E\nx = os.environ",
            "errors.py": "import os\nx = os.path.sep",
            "ir/__init__.py": "from tilewright.ir.a import x",
            "ir/a.py": "from typing import TYPE_CHECKING\n"
            "from tilewright.ir import b\nfrom tilewright.errors import E\n"
            "if TYPE_CHECKING:\n    from tilewright.ir.c import x",
            "ir/b.py": "from tilewright.ir.c import y\n",
            "ir/c.py": "import tilewright.ir.d",
            "ir/d.py": "x = kind == 'x'\ntry:\n    pass\nexcept NotImplementedError:\n    pass",
            "simplify/a.py": "from tilewright.facts import Facts",
            "recipes/a.py": "from tilewright.ir.visit import walk\nx = replace(config, step=1)\n"
            "y = f'{name}: the loop of m_o'\nz = ', '.join(names) + f'{seconds:.1f}'",
            "recipes/b.py": "class R:\n    def matches(self, s, m):\n        return m.banked",
            "schedule/a.py": "from tilewright.ir.visit import block\nx = replace(k, body=s)",
            "targets/registry.py": "x = name == 'x86'",
            "cli/a.py": "def f():\n    import json",
        },
    )
    assert [fault for check in CHECKS for fault in check(modules)] == []
