"""What generated code costs: read off its assembly and off the kernel."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

from tilewright.engine.request import Request
from tilewright.engine.signature import Signature

_INSTRUCTION = re.compile(r"^\t(?:%\d+ = |@!?%p\d+ )?([a-z][a-z0-9_.]+|Op[A-Z]\w+)\s*(.*)$")
_FUNCTION = " = OpFunction "
_REGISTER = re.compile(r"%([xyz]mm\d+)")
_STACK = re.compile(r"\(%r[sb]p\)")
# What an assembler of a GPU said of a function, as a comment.
_ASSEMBLED = re.compile(r"^// \w+: (\d+) registers, (\d+) bytes spilled")
_REGISTER_BYTES = 4


@dataclass(frozen=True)
class Cost:
    """``bytes`` is what must move at least: every argument once; None where that depends on the
    numbers of a call. ``flops`` are valid ones.

    ``spills`` counts vector moves to and from the stack in the whole code, loops or not. On a GPU,
    both are those of a work-item, in registers of 4 bytes: the most that any function takes, and
    all that are spilled.
    """

    flops: int
    bytes: int | None
    instructions: int
    vector_registers: int
    spills: int
    mix: dict[str, int]


def cost_of(request: Request, signature: Signature, assembly: str) -> Cost:
    """The cost of a kernel as compiled to ``assembly`` (AT&T syntax, SPIR-V's, or PTX with what its
    assembler says).

    SPIR-V has no registers yet: there are none, and no spills.
    """
    mix: Counter[str] = Counter()
    registers: set[str] = set()
    spills = most = 0
    # In SPIR-V, what stands before the first function declares.
    for line in (assembly.partition(_FUNCTION)[2] or assembly).splitlines():
        if said := _ASSEMBLED.match(line):
            most = max(most, int(said.group(1)))
            spills += int(said.group(2)) // _REGISTER_BYTES
        match = _INSTRUCTION.match(line)
        if match is None:
            continue
        name, operands = match.groups()
        mix[name] += 1
        used = _REGISTER.findall(operands)
        registers.update(register[1:] for register in used)
        spills += bool(used) and name.startswith("vmov") and bool(_STACK.search(operands))
    arguments = [each.buffer for each in signature.arguments]
    moved = None if any(each.symbols for each in arguments) else sum(b.bytes for b in arguments)
    used_most = max(most, len(registers))
    return Cost(
        request.flops(), moved, sum(mix.values()), used_most, spills, dict(mix.most_common())
    )
