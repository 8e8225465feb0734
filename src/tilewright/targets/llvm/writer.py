"""The text of one LLVM function while it is being written: lines, fresh names, basic blocks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tilewright.targets.llvm.dialect import PLAIN, Dialect

# Pure instructions: the same text gives the same value anywhere in a block. Indices, masks and
# addresses consist of them.
_ARITHMETIC = ("add", "sub", "mul", "udiv", "sdiv", "urem", "srem")
_BITS = ("and", "or", "xor", "shl", "lshr", "ashr", "icmp", "trunc", "zext", "sext")
_PARTS = ("select", "getelementptr", "extractelement", "insertelement", "bitcast")
_PURE = frozenset((*_ARITHMETIC, *_BITS, *_PARTS))
# Of those with a result, what may write memory, as calls may that are no intrinsics.
_WRITING = frozenset(("atomicrmw", "cmpxchg"))
# The module's metadata for branches that mostly go one way.
_MOSTLY = "!1"


class Writer:
    """Collects instructions. ``block`` is the label of the basic block being written.

    Where the dialect reuses values, an instruction that the block already has is not written again:
    unrolled iterations and neighbouring accesses have most of their arithmetic in common.
    """

    def __init__(
        self, declarations: dict[str, str], dialect: Dialect = PLAIN, function: str = ""
    ) -> None:
        self.lines: list[str] = []
        self.allocas: list[str] = []
        self.globals: list[str] = []  # of this function; their names begin with its name
        self._function = function
        self.block = "entry"
        self.dialect = dialect
        self.declarations = declarations  # shared by all functions of a module: name -> line
        self._names = 0
        self._labels = 0
        self._reusable: dict[str, str] = {}  # names of values in this block, by instruction
        # Likewise of what was read and not written since, that used last at the end.
        self._read: dict[str, str] = {}

    def name(self, hint: str = "v") -> str:
        """A fresh local name."""
        self._names += 1
        return f"%{hint}{self._names}"

    def label(self, hint: str) -> str:
        """A fresh label."""
        self._labels += 1
        return f"{hint}{self._labels}"

    def assign(self, instruction: str, hint: str = "v") -> str:
        """Writes ``%name = instruction`` and returns the name."""
        name = self._reusable.get(instruction)
        if name is not None:
            return name
        name = self.name(hint)
        self.lines.append(f"  {name} = {instruction}")
        word = instruction.partition(" ")[0]
        if self.dialect.reuses_values and word in _PURE:
            self._reusable[instruction] = name
        elif word in _WRITING or (word == "call" and "@llvm." not in instruction):
            self._read = {}
        return name

    def read(self, instruction: str, most: int) -> str:
        """As `assign`, for what reads memory: where nothing was written since, the value of the
        same instruction before, if it is one of the ``most`` that were used last."""
        name = self._read.pop(instruction, None) or self.assign(instruction)
        self._read[instruction] = name
        while len(self._read) > most:
            del self._read[next(iter(self._read))]
        return name

    def once(self, instruction: str) -> str:
        """As `assign`, for a call without effects: the value of the same in this block before."""
        name = self._reusable[instruction] = self.assign(instruction)
        return name

    def emit(self, instruction: str) -> None:
        """Writes an instruction that has no result."""
        self.lines.append(f"  {instruction}")
        self._read = {}

    def start(self, label: str) -> None:
        """Begins the basic block ``label``."""
        self.lines.append(f"{label}:")
        self.block = label
        self._reusable, self._read = {}, {}

    def jump(self, label: str) -> None:
        self.emit(f"br label %{label}")

    def branch(self, condition: str, then: str, orelse: str, mark: str = "") -> None:
        self.emit(f"br i1 {condition}, label %{then}, label %{orelse}{mark}")

    def mostly(self) -> str:
        """The mark of a branch that hardly ever goes to its second label."""
        self.declarations[_MOSTLY] = f'{_MOSTLY} = !{{!"branch_weights", i32 4000, i32 1}}'
        return f", !prof {_MOSTLY}"

    @contextmanager
    def where(self, condition: str) -> Iterator[None]:
        """What the ``with`` block writes runs only where ``condition`` holds."""
        then, after = self.label("on"), self.label("off")
        before = self._reusable
        self.branch(condition, then, after)
        self.start(then)
        # Values from before hold inside and after; those from inside hold inside only.
        self._reusable = dict(before)
        yield
        self.jump(after)
        self.start(after)
        self._reusable = before

    def reserve(self) -> int:
        """A line to be written later with `fill`: the values of a phi are known after the loop."""
        self.lines.append("")
        return len(self.lines) - 1

    def fill(self, line: int, text: str) -> None:
        self.lines[line] = text

    def alloca(self, type_: str, count: int, align: int) -> str:
        """Stack memory, allocated once at function entry."""
        name = self.name("stack")
        self.allocas.append(f"  {name} = alloca [{count} x {type_}], align {align}")
        return name

    def shared(self, hint: str, type_: str, count: int, space: int) -> str:
        """Memory that the work-items of a group share: a global in the address space.

        It is external: LLVM assumes that a barrier, an external function, does not touch memory
        that only this module can see, and a device's compiler would move loads across barriers.
        """
        name = f"@{self._function}.{hint}{len(self.globals)}"
        self.globals.append(
            f"{name} = addrspace({space}) global [{count} x {type_}] undef, align 64"
        )
        return name

    def call(
        self, result: str, function: str, arguments: str, types: str, attributes: str = ""
    ) -> str:
        """Calls an intrinsic or external function that gives a value, declaring it once."""
        self.declare(result, function, types, attributes)
        return self.assign(f"call {result} @{function}({arguments})")

    def call_void(self, function: str, arguments: str, types: str, attributes: str = "") -> None:
        self.declare("void", function, types, attributes)
        self.emit(f"call void @{function}({arguments})")

    def declare(self, result: str, function: str, types: str, attributes: str = "") -> None:
        if function not in self.declarations:
            line = f"declare {result} @{function}({types}) {attributes}"
            self.declarations[function] = line.rstrip()
