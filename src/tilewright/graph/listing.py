"""A program in words: its kernels, and what runs on what."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tilewright.graph.cutting import Cut, GraphStep, Launch
from tilewright.graph.memory import Arena
from tilewright.ir.buffer import Buffer
from tilewright.ir.printer import to_text
from tilewright.runtime.steps import IfStep, WhileStep, launches


def kernels_text(cut: Cut) -> str:
    """The kernels of ``cut``, each with what the graph calls what it does, as comments."""
    of: dict[int, list[Launch]] = {}
    for each in launches(cut.steps):
        of.setdefault(each.kernel, []).append(each)
    parts: list[str] = []
    for number, kernel in enumerate(cut.kernels):
        lines = [f"# kernel {number}, launched as"]
        lines += [f"#   {title(each)}" for each in of.get(number, ())]
        parts.append("\n".join([*lines, to_text(kernel)]))
    return "\n\n".join(parts)


def program_text(cut: Cut, arena: Arena) -> str:
    """The steps of ``cut``: each kernel by its number, with the buffers that it gets; and where
    those between steps lie in ``arena``."""
    places = {each: n for n, each in enumerate(launches(cut.steps))}
    lines = [f"arena of {arena.bytes} bytes; at most {arena.live} live at once"]
    for each in cut.between:
        lines.append(f"  {arena.offsets[each]:>10} {each!r}")
    lines += _lines(cut.steps, cut, places, "")
    return "\n".join(lines)


def title(launch: Launch) -> str:
    """What the graph calls what a launch does."""
    return ", ".join(launch.computes) or "a condition"


def _lines(
    steps: Sequence[GraphStep], cut: Cut, places: Mapping[Launch, int], indent: str
) -> Iterator[str]:
    deeper = indent + "  "
    for step in steps:
        match step:
            case Launch():
                yield _line(step, cut, places, indent)
            case WhileStep():
                yield f"{indent}repeat:"
                yield from _lines(step.before, cut, places, deeper)
                yield f"{deeper}leave unless {step.condition.name}"
                yield from _lines(step.body, cut, places, deeper)
            case IfStep():
                yield f"{indent}if {step.condition.name}:"
                yield from _lines(step.then, cut, places, deeper)
                if step.orelse:
                    yield f"{indent}else:"
                    yield from _lines(step.orelse, cut, places, deeper)


def _line(step: Launch, cut: Cut, places: Mapping[Launch, int], indent: str) -> str:
    kernel = cut.kernels[step.kernel]
    given: list[Buffer] = list(step.buffers)
    names = ", ".join(each.name for each in given)
    return f"{indent}{places[step]}: {kernel.name} {step.kernel} ({names})  # {title(step)}"
