"""What generated code costs: read off its assembly and off the kernel."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields

from tilewright.engine.request import Request
from tilewright.engine.signature import Signature
from tilewright.notebook import facts_html, table_html

# With the guard of one of a GPU; those of inline assembly are indented by spaces.
_INSTRUCTION = re.compile(
    r"^[ \t]+(?:%\d+ = |@!?%?\w+[ \t]+)?([a-z][a-z0-9_.]+|Op[A-Z]\w+)\s*(.*)$"
)
_SPIRV, _PTX = " = OpFunction ", re.compile(r"^\.version ", re.MULTILINE)
_REGISTER = re.compile(r"%([xyz]mm\d+)")
_TILE = re.compile(r"%tmm\d+")
# What LLVM says of moves to and from the stack for want of registers.
_SPILL = re.compile(r"#.*\b\d+-byte (?:Folded )?(?:Spill|Reload)")
# What an assembler of a GPU said of a function, as a comment.
_ASSEMBLED = re.compile(r"^// \w+: (\d+) registers, (\d+) bytes spilled", re.MULTILINE)
_REGISTER_BYTES = 4


@dataclass(frozen=True)
class Cost:
    """``bytes`` is what must move at least: every argument once; None where that depends on the
    numbers of a call. ``flops`` are valid ones; of a kernel that is no op, all operations on floats
    that it may do; None where that is not known before it runs. ``instructions`` are those of the
    text, and ``mix`` how many there are of each, inline assembly included.

    ``spills`` counts vectors and tiles that are stored and loaded again for want of registers, in
    the whole code, loops or not; what has its place on the stack is none. On a GPU,
    ``vector_registers`` and ``spills`` are those of a work-item, in registers of 4 bytes: the most
    that any function takes, and all that are spilled. Both are None where it is unknown: the code
    has no registers yet (SPIR-V), or there is no assembler.
    """

    flops: int | None
    bytes: int | None
    instructions: int
    vector_registers: int | None
    spills: int | None
    mix: dict[str, int]

    def _repr_html_(self) -> str:
        said = {field.name: getattr(self, field.name) for field in fields(self)}
        mix = said.pop("mix")
        shown = {
            name.replace("_", " "): "unknown" if value is None else f"{value:,}"
            for name, value in said.items()
        }
        return facts_html(shown) + table_html(list(mix.items()), ("instruction", "count"))


def cost_of(request: Request, signature: Signature, assembly: str) -> Cost:
    """The cost of a kernel as compiled to ``assembly``: AT&T syntax with LLVM's remarks, SPIR-V's,
    or PTX with what its assembler says."""
    # In SPIR-V, what stands before the first function declares.
    lines = (assembly.partition(_SPIRV)[2] or assembly).splitlines()
    instructions = [match.groups() for line in lines if (match := _INSTRUCTION.match(line))]
    mix = Counter(name for name, _ in instructions)
    registers, spills = _registers(assembly, [operands for _, operands in instructions])
    arguments = [argument.buffer for argument in signature.arguments]
    moved = (
        None if any(argument.symbols for argument in arguments) else sum(b.bytes for b in arguments)
    )
    return Cost(
        request.flops(), moved, sum(mix.values()), registers, spills, dict(mix.most_common())
    )


def _registers(assembly: str, operands: Sequence[str]) -> tuple[int | None, int | None]:
    """Vector registers and spills."""
    if _SPIRV in assembly:
        return None, None
    if _PTX.search(assembly):
        said = [tuple(map(int, numbers)) for numbers in _ASSEMBLED.findall(assembly)]
        if not said:
            return None, None
        return max(entry[0] for entry in said), sum(entry[1] // _REGISTER_BYTES for entry in said)
    # The same register by its widths.
    used = {register[1:] for operand in operands for register in _REGISTER.findall(operand)}
    spilled = [operand for operand in operands if _SPILL.search(operand)]
    return len(used), sum(bool(_REGISTER.search(name) or _TILE.search(name)) for name in spilled)
