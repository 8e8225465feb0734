"""The reference of the API, made from the docstrings: `docs/reference.md`, `docs/transforms.md`.

Docstrings are plain text: names in backticks, what is literal in two of them, blocks that are
indented, lists with dashes. What they name of the API becomes a link.
"""

from __future__ import annotations

import enum
import inspect
import math
import re
import textwrap
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import ml_dtypes

import tilewright as tw
from tilewright import errors
from tilewright.dtypes import ALL, DType
from tilewright.lang.builtin import builtins
from tilewright.problems import BINARY_RECORDS, UNARY_ALIASES, UNARY_FUNCTIONS
from tilewright.testing.bounds import roundoff

# The names of `tw`, in reading order.
SECTIONS = {
    "Ops": ("convolution", "matmul", "pool", "reduce", "elementwise", "reorder"),
    "More ops": (
        "softmax",
        "layer_norm",
        "rms_norm",
        "batch_norm",
        "group_norm",
        "argmax",
        "argmin",
        "attention",
        "moments",
        "logsumexp",
        "scan",
        "concat",
        "slice",
        "tile",
        "transpose",
        "pixels",
        "shuffle",
        "pad",
        "zeropad",
        "gather",
        "embedding",
        "scatter",
        "one_hot",
        "sort",
        "topk",
        "resample",
        "max_pool",
        "deconvolution",
        "parametric_relu",
        "rnn",
    ),
    "What follows an op": (
        *("bias", "add", "sub", "mul", "div", "binary", "relu", "unary", "prelu", "sum"),
        *("scale", "zero_point"),
    ),
    "Graphs": ("from_stablehlo", "from_torch", "from_onnx"),
    "Kernels of your own": ("parse_kernel",),
    "Kernels in Python": (
        "kernel",
        "function",
        "array",
        "Array",
        "scalar",
        "constant",
        "tunable",
        "matrix_combinations",
    ),
    "Compiling and calling": ("compile", "autotune", "CompiledKernel", "Packed"),
    "Schedules and recipes": (
        *("Schedule", "parse_schedule"),
        *("Recipe", "Config", "register_recipe", "unregister_recipe"),
        *("CopyUnit", "Fill", "LoopKind", "Space", "Swizzle", "Threads"),
    ),
    "Queues": ("Queue", "Buffer", "Accessor", "Event", "wait"),
    "Errors": ("TilewrightError", "QueueError", "FusionError"),
}
# Classes whose instances calls give.
MADE_BY_CALLS = ("CompiledKernel", "Packed", "Array", "Buffer", "Accessor", "Event")
NAMES = [name for names in SECTIONS.values() for name in names]
# What kernels in Python call: they have a page of their own.
KERNEL_SECTIONS = {
    "Who a work-item is": (
        *("global_id", "local_id", "group_id", "global_size", "local_size", "num_groups"),
        *("subgroup_id", "lane_id", "subgroup_size"),
    ),
    "Memory and barriers": ("local", "private", "barrier"),
    "Atomic updates": (
        *("atomic_add", "atomic_sub", "atomic_min", "atomic_max", "atomic_and", "atomic_or"),
        *("atomic_xor", "atomic_exchange", "atomic_compare_exchange"),
    ),
    "Together: workgroups": (
        *("group_reduce", "group_scan", "group_broadcast", "group_any", "group_all"),
    ),
    "Together: subgroups": (
        *("subgroup_reduce", "subgroup_scan", "subgroup_broadcast", "subgroup_any"),
        *(
            "subgroup_all",
            "subgroup_ballot",
            "shuffle",
            "shuffle_xor",
            "shuffle_up",
            "shuffle_down",
        ),
    ),
    "Joint matrices": ("joint_matrix",),
    "Numbers": (
        *("exp", "exp2", "log", "log1p", "sqrt", "rsqrt", "sin", "cos", "tanh", "erf", "floor"),
        *("ceil", "fma", "where", "divide", "remainder", "mulhi", "clz", "popcount", "bitcast"),
        *("tan", "asin", "acos", "atan", "atan2", "sinh", "cosh", "asinh", "acosh", "atanh"),
        *("log2", "log10", "expm1", "cbrt", "trunc", "lgamma", "erfc", "ldexp"),
        *("ctz", "bit_reverse", "rotate", "isnan", "isinf", "isfinite", "common_type"),
    ),
    "Vectors": ("vector", "load_vector", "store_vector", "vector_reduce"),
    "Loops and messages": ("static_range", "printf"),
}
KERNEL_NAMES = [name for names in KERNEL_SECTIONS.values() for name in names]
# Of Python: kernels call them by their own names.
OF_PYTHON = ("range", "min", "max", "abs", "round", "pow", "len", "int", "float", "bool", "print")
TYPES = [name for name in tw.__all__ if isinstance(getattr(tw, name), DType)]
ERRORS = {
    name: value
    for name, value in vars(errors).items()
    if inspect.isclass(value) and issubclass(value, errors.TilewrightError) and value is not tw
}
# The transforms have a page of their own.
TRANSFORMS = "transforms.md"
KERNEL_FUNCTIONS = "kernel-functions.md"
_HEAD = "<!-- Made from the docstrings by `pytest --accept`: change those. -->\n\n"


def reference() -> str:
    """The text of ``docs/reference.md``."""
    lines = [
        _HEAD + "# The API, name by name",
        "",
        "`import tilewright as tw`. Shapes are logical, whatever the layout; a layout is a tag "
        '(`"nhwc"`), strides in elements, or a layout that another tensor has. What makes no sense '
        "raises an error of the tree [below](#errors), which says what, where, why and the cure. "
        "[The tour](tour.md) shows how it goes together, [the IR](ir.md) is the language of "
        "kernels.",
    ]
    for title, names in SECTIONS.items():
        lines += ["", f"## {title}"]
        for name in names:
            lines += ["", *_entry(name, getattr(tw, name))]
        if title == "What follows an op":
            lines += ["", *_unary_table(), "", *_binary_table()]
        if title == "Ops":
            lines += ["", *_type_table()]
        if title == "Errors":
            lines += ["", *_error_table()]
    return "\n".join(lines) + "\n"


def transforms() -> str:
    """The text of ``docs/transforms.md``."""
    lines = [
        _HEAD + "# Transforms",
        "",
        "Each is a method of [`tw.Schedule`](reference.md#schedule), and leaves what the kernel "
        "computes as it is, or raises `ScheduleError` and leaves the schedule as it was. "
        "[Schedules](schedules.md) shows how one writes one.",
    ]
    for name, method in _transforms():
        lines += ["", f"## {name}", "", *_signature(f"schedule.{name}", method)]
        lines += ["", markdown(inspect.getdoc(method) or "", here=TRANSFORMS)]
    return "\n".join(lines) + "\n"


def kernel_functions() -> str:
    """The text of ``docs/kernel-functions.md``."""
    lines = [
        _HEAD + "# What kernels call",
        "",
        "These are functions of [kernels in Python](kernels.md): `tw.NAME(...)` in a function "
        "with `@tw.kernel` or `@tw.function`, which work-items run. Types convert: `tw.f32(x)`. "
        "What is wrong with a call is a `KernelError` at its place.",
    ]
    for title, names in KERNEL_SECTIONS.items():
        lines += ["", f"## {title}"]
        for name in names:
            lines += ["", *_kernel_function(name, f"tw.{name}")]
    lines += ["", "## Of Python, by their own names"]
    for name in OF_PYTHON:
        lines += ["", *_kernel_function(name, name)]
    return "\n".join(lines) + "\n"


def _kernel_function(name: str, called: str) -> Iterator[str]:
    what = builtins()[name]
    yield f"### {name}"
    yield ""
    parts = []
    for parameter in what.__signature__.parameters.values():
        star = "*" if parameter.kind is parameter.VAR_POSITIONAL else ""
        default = "" if parameter.default is parameter.empty else f"={parameter.default!r}"
        parts.append(f"{star}{parameter.name}{default}")
    yield from ("```text", f"{called}({', '.join(parts)})", "```", "")
    yield markdown(inspect.getdoc(what) or "", here=KERNEL_FUNCTIONS)


def _transforms() -> Iterator[tuple[str, Any]]:
    for name, method in inspect.getmembers(tw.Schedule, inspect.isfunction):
        if not name.startswith("_") and name not in vars(tw.Schedule) and name != "text":
            yield name, method


def _entry(name: str, what: Any) -> Iterator[str]:
    yield f"### {name}"
    yield ""
    if inspect.isclass(what) and issubclass(what, enum.Enum):
        yield markdown(inspect.getdoc(what) or "")
        yield ""
        yield "One of " + ", ".join(f"`{name}.{choice.name}`" for choice in what) + "."
    elif inspect.isclass(what):
        if not issubclass(what, Exception) and name not in MADE_BY_CALLS:
            yield from _signature(f"tw.{name}", what)
            yield ""
        yield markdown(inspect.getdoc(what) or "")
        for member, value in _members(what):
            yield ""
            yield f"#### {name}.{member}"
            yield ""
            if callable(value):
                called = "kernel" if name == "CompiledKernel" else name.lower()
                method = "" if member == "__call__" else f".{member}"
                yield from _signature(called + method, value)
                yield ""
            yield markdown(inspect.getdoc(value) or "")
    else:
        if callable(what):
            yield from _signature(f"tw.{name}", what)
            yield ""
        yield markdown(inspect.getdoc(what) or "")


def _members(kind: type) -> Iterator[tuple[str, Any]]:
    """The methods and properties of a class that are documented; not the transforms."""
    for name in vars(kind):
        each = inspect.getattr_static(kind, name)
        result = getattr(kind, name) if isinstance(each, classmethod) else each
        documented = inspect.isroutine(result) or isinstance(result, property)
        documented = documented or type(result).__name__ == "cached_property"
        if (name == "__call__" or not name.startswith("_")) and documented and result.__doc__:
            yield name, result


def _signature(name: str, what: Callable[..., Any]) -> list[str]:
    """The call, an argument a line where one line does not hold it."""
    signature = inspect.signature(what)
    parts: list[str] = []
    before = inspect.Parameter.POSITIONAL_OR_KEYWORD
    for parameter in (p for p in signature.parameters.values() if p.name != "self"):
        if before is parameter.POSITIONAL_ONLY and parameter.kind is not before:
            parts.append("/")
        if parameter.kind is parameter.KEYWORD_ONLY and before not in (
            parameter.kind,
            parameter.VAR_POSITIONAL,
        ):
            parts.append("*")
        parts.append(_parameter(parameter))
        before = parameter.kind
    if before is inspect.Parameter.POSITIONAL_ONLY:
        parts.append("/")
    result = signature.return_annotation
    arrow = f" -> {result}" if isinstance(result, str) and not inspect.isclass(what) else ""
    line = f"{name}({', '.join(parts)}){arrow}"
    if len(line) > 100:
        line = "\n".join([f"{name}(", *(f"    {part}," for part in parts), f"){arrow}"])
    return ["```text", line, "```"]


def _parameter(parameter: inspect.Parameter) -> str:
    stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
    text = f"{stars}{parameter.name}: {parameter.annotation}"
    if parameter.default is parameter.empty:
        return text
    return f"{text} = {parameter.default!r}".replace("'", '"')


# Docstrings to Markdown.


def markdown(text: str, here: str = "reference.md") -> str:
    """A docstring as Markdown: its paragraphs, blocks, and names."""
    blocks = re.split(r"\n\s*\n", textwrap.dedent(text).strip("\n"))
    result: list[str] = []
    for block in blocks:
        lines = block.split("\n")
        # A block may follow its paragraph without a blank line.
        for indented, group in _grouped(lines):
            part = "\n".join(group)
            if not indented:
                result.append(_inline(part, here))
            elif result and result[-1].endswith("\n```") and result[-1].startswith("```text\n"):
                result[-1] = f"{result[-1][:-4]}\n\n{part}\n```"
            else:
                result.append(f"```text\n{part}\n```")
    return "\n\n".join(map(_dedented, result))


def _dedented(block: str) -> str:
    if not block.startswith("```text\n"):
        return block
    inside = block.removeprefix("```text\n").removesuffix("\n```")
    return f"```text\n{textwrap.dedent(inside)}\n```"


def _grouped(lines: Sequence[str]) -> Iterator[tuple[bool, list[str]]]:
    """Lines in a row that are indented, or not; a list's, which are for its dashes, are not, and
    the arrow of a transform belongs to what it stands between."""
    group: list[str] = []
    kind = False
    listed = any(line.startswith("- ") for line in lines)
    for line in lines:
        indented = not listed and line.startswith(("    ", "->  "))
        if group and indented is not kind:
            yield kind, group
            group = []
        kind = indented
        group.append(line)
    if group:
        yield kind, group


def _inline(text: str, here: str) -> str:
    """Literals and names of a paragraph; `NAME` links to what the reference has of it."""
    return re.sub(r"``(.+?)``|`([^`\n]+)`", lambda found: _named(found, here), text, flags=re.S)


def _named(found: re.Match[str], here: str) -> str:
    literal, name = found.groups()
    if literal is not None:
        return f"`{literal}`"
    own = here == TRANSFORMS and name in dict(_transforms())
    own = own or (here == KERNEL_FUNCTIONS and name in (*KERNEL_NAMES, *OF_PYTHON))
    known = name in NAMES or name in ERRORS
    if not own and not known:
        return f"`{name}`"
    page = "" if own or here == "reference.md" else "reference.md"
    return (
        f"[`{name}`]({page}#{'errors' if name in ERRORS and name not in NAMES else anchor(name)})"
    )


def anchor(title: str) -> str:
    """What a heading is linked by."""
    return re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")


# Tables.


def _table(head: Sequence[str], rows: Iterator[Sequence[str]]) -> list[str]:
    lines = [f"| {' | '.join(head)} |", f"| {' | '.join('---' for _ in head)} |"]
    return lines + [
        f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows
    ]


def _type_table() -> list[str]:
    lines = ["### Element types", ""]
    lines += [
        "By our name or numpy's, or as a type of numpy's, torch's or JAX's. Range and precision",
        "",
    ]
    lines[-2] += " (the relative distance of neighbours):"
    rows = ([f"`{t}`", f"`{t.numpy_name}`", str(t.bits), *_range(t)] for t in ALL)
    return lines + _table(["type", "numpy", "bits", "from", "to", "precision"], rows)


def _range(type_: DType) -> tuple[str, str, str]:
    if type_.kind == "bool":
        return "false", "true", ""
    if not type_.is_float:
        return str(type_.lowest), str(type_.highest), ""
    most = float(ml_dtypes.finfo(type_.numpy).max)
    return f"{-most:.6g}", f"{most:.6g}", f"2^{math.log2(2 * roundoff(type_)):.0f}"


def _unary_table() -> list[str]:
    lines = ["### Functions of one argument", ""]
    lines += [
        "Of `elementwise`, `unary`, and `--attr-post-ops`. What computes in f32 is off by no more "
        "than so many roundings of f32, relative to (1 + |s|) * |result| and the numbers; 0: exact "
        "where the result is a number of f32.",
        "",
    ]
    rows = (
        [
            f"`{function.name}`",
            f"`{function.formula}`",
            ", ".join(function.parameters),
            str(function.units),
        ]
        for function in UNARY_FUNCTIONS.values()
    )
    lines += _table(["function", "formula", "numbers", "roundings"], rows)
    lines += ["", "Names that PyTorch and JAX have: "]
    lines[-1] += ", ".join(
        f"`{name}` is `{meant}`" + (f" with alpha {alpha:g}" if alpha else "")
        for name, (meant, alpha) in UNARY_ALIASES.items()
    )
    lines[-1] += "."
    return lines


def _binary_table() -> list[str]:
    lines = ["### Functions of two arguments", "", "Of `elementwise` and `binary`.", ""]
    rows = ([f"`{function.name}`", f"`{function.formula}`"] for function in BINARY_RECORDS.values())
    return lines + _table(["function", "formula"], rows)


def _error_table() -> list[str]:
    tree = (inspect.getdoc(errors) or "").split("\n\n")[1]
    return ["Its kinds, in `tilewright.errors`:", "", "```text", textwrap.dedent(tree), "```"]
