"""What generated code costs: read off its assembly and off the problem."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

from tilewright.ops.op import Op

_INSTRUCTION = re.compile(r"^\t(?:%\d+ = )?([a-z][a-z0-9]+|Op[A-Z]\w+)\s*(.*)$")
_FUNCTION = " = OpFunction "
_REGISTER = re.compile(r"%([xyz]mm\d+)")
_STACK = re.compile(r"\(%r[sb]p\)")


@dataclass(frozen=True)
class Cost:
    """``bytes`` is what must move at least: every argument once. ``flops`` are valid ones.

    ``spills`` counts vector moves to and from the stack in the whole code, loops or not.
    """

    flops: int
    bytes: int
    instructions: int
    vector_registers: int
    spills: int
    mix: dict[str, int]

    def floor_seconds(self, flops_per_second: float, bytes_per_second: float) -> float:
        """The least time by the roofline."""
        return max(self.flops / flops_per_second, self.bytes / bytes_per_second)


def cost_of(op: Op, assembly: str) -> Cost:
    """The cost of ``op`` as compiled to ``assembly`` (AT&T syntax, or SPIR-V's).

    SPIR-V has no registers yet: there are none, and no spills.
    """
    mix: Counter[str] = Counter()
    registers: set[str] = set()
    spills = 0
    # In SPIR-V, what stands before the first function declares.
    for line in (assembly.partition(_FUNCTION)[2] or assembly).splitlines():
        match = _INSTRUCTION.match(line)
        if match is None:
            continue
        name, operands = match.groups()
        mix[name] += 1
        used = _REGISTER.findall(operands)
        registers.update(register[1:] for register in used)
        spills += bool(used) and name.startswith("vmov") and bool(_STACK.search(operands))
    moved = sum(a.layout.extent * a.dtype.bytes for a in op.arguments)
    flops = getattr(op.problem, "valid_flops", 0)
    return Cost(flops, moved, sum(mix.values()), len(registers), spills, dict(mix.most_common()))
