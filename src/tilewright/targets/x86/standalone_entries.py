"""The entry points of a program without Python: LLVM IR for x86 Linux.

Each runs the steps of its plan, written out: a call of each kernel, a branch for each condition.
It gets a *program*, 128 bytes and the state of a worker pool. The fields, at byte offsets:

    CONSTANTS  ptr  the file of constants, mapped
    PARALLEL   ptr  what runs a phase on several threads: `tw_parallel` on the program's own pool,
                    or the caller's
    POOL       ptr  its first argument
    THREADS    i64  how many threads a call uses
    STATE           of the own pool (`pool_code`)
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.config import MAX_THREADS
from tilewright.runtime.steps import IfStep, WhileStep, launches
from tilewright.targets.linking import Base, LinkedStep, Place, Run
from tilewright.targets.standalone import StandaloneFunction

CONSTANTS, PARALLEL, POOL, THREADS, STATE = 0, 8, 16, 24, 128

# In the order of their numbers, from 0 on: names, and what they mean.
ERRORS = (
    ("OK", "it is done"),
    ("NULL", "a pointer is null that must not be"),
    ("THREADS", f"the number of threads is not between 1 and {MAX_THREADS}"),
    ("FILE", "the file of constants cannot be read"),
    ("CONSTANTS", "the file of constants is another one's"),
    ("MEMORY", "there is not enough memory"),
    ("ALIGNMENT", "an array is not aligned to its element, or the arena not to 64 bytes"),
    ("PROCESSOR", "the system gives the process no tiles (AMX)"),
)
OK, NULL, BAD_THREADS, FILE, OTHER_CONSTANTS, MEMORY, ALIGNMENT, PROCESSOR = range(len(ERRORS))


def kernel_symbol(name: str, number: int) -> str:
    """What a kernel's function is called."""
    return f"{name}_kernel_{number}"


def entry_text(name: str, function: StandaloneFunction) -> str:
    """The function ``i32 NAME(program, arguments, arena)`` of the program called ``name``."""
    return _Entry(name, function).text()


class _Entry:
    """The code of one entry point: ``i32 NAME(program, arguments, arena)``."""

    def __init__(self, name: str, function: StandaloneFunction) -> None:
        self._name, self._function = name, function
        self._lines: list[str] = []
        self._labels = 0

    def text(self) -> str:
        """The function as LLVM IR."""
        function = self._function
        self._checks(function)
        self._steps(function.plan.steps)
        slots = max((_slots(run) for run in launches(function.plan.steps)), default=1)
        free = "  call void @free(ptr %allocated)\n" if function.plan.arena else ""
        return "\n".join(
            (
                f"define i32 @{function.name}(ptr %program, ptr %arguments, ptr %passed)",
                "nounwind {",
                "entry:",
                f"  %slots = alloca [{max(slots, 1)} x ptr], align 64",
                "  %own = alloca ptr",
                *self._lines,
                f"{free}  ret i32 {OK}",
                "null:",
                f"  ret i32 {NULL}",
                "alignment:",
                f"  ret i32 {ALIGNMENT}",
                "memory:",
                f"  ret i32 {MEMORY}",
                "}",
            )
        )

    def _add(self, *lines: str) -> None:
        self._lines += [line if line.endswith(":") else f"  {line}" for line in lines]

    def _label(self) -> str:
        self._labels += 1
        return f"l{self._labels}"

    def _checks(self, function: StandaloneFunction) -> None:
        """Loads what a call passes, and refuses what no kernel may be called with."""
        self._add(
            "%no_program = icmp eq ptr %program, null",
            "%no_arguments = icmp eq ptr %arguments, null",
            "%nothing = or i1 %no_program, %no_arguments",
            "br i1 %nothing, label %null, label %given",
            "given:",
            f"%parallel_p = getelementptr i8, ptr %program, i64 {PARALLEL}",
            "%parallel = load ptr, ptr %parallel_p",
            f"%pool_p = getelementptr i8, ptr %program, i64 {POOL}",
            "%pool = load ptr, ptr %pool_p",
            f"%threads_p = getelementptr i8, ptr %program, i64 {THREADS}",
            "%threads = load i64, ptr %threads_p",
            "%constants = load ptr, ptr %program",
        )
        nulls, bits = "false", "0"
        for n, argument in enumerate(function.arguments):
            self._add(
                f"%argument{n}_p = getelementptr ptr, ptr %arguments, i64 {n}",
                f"%argument{n} = load ptr, ptr %argument{n}_p",
                f"%address{n} = ptrtoint ptr %argument{n} to i64",
            )
            if argument.bytes:
                self._add(
                    f"%none{n} = icmp eq i64 %address{n}, 0", f"%nulls{n} = or i1 {nulls}, %none{n}"
                )
                nulls = f"%nulls{n}"
            self._add(
                f"%low{n} = and i64 %address{n}, {argument.dtype.bytes - 1}",
                f"%bits{n} = or i64 {bits}, %low{n}",
            )
            bits = f"%bits{n}"
        self._add(
            f"br i1 {nulls}, label %null, label %there",
            "there:",
            "%passed_address = ptrtoint ptr %passed to i64",
            "%arena_low = and i64 %passed_address, 63",
            f"%low = or i64 {bits}, %arena_low",
            "%aligned = icmp eq i64 %low, 0",
        )
        if not function.plan.arena:
            self._add("br i1 %aligned, label %begin, label %alignment", "begin:")
            return
        self._add(
            "br i1 %aligned, label %space, label %alignment",
            "space:",
            "%is_passed = icmp ne ptr %passed, null",
            "br i1 %is_passed, label %begin, label %allocate",
            "allocate:",
            f"%failed = call i32 @posix_memalign(ptr %own, i64 64, i64 {function.plan.arena})",
            "%got = icmp eq i32 %failed, 0",
            "br i1 %got, label %allocation, label %memory",
            "allocation:",
            "%fresh = load ptr, ptr %own",
            "br label %begin",
            "begin:",
            "%arena = phi ptr [ %passed, %space ], [ %fresh, %allocation ]",
            "%allocated = phi ptr [ null, %space ], [ %fresh, %allocation ]",
        )

    def _steps(self, steps: Sequence[LinkedStep]) -> None:
        for step in steps:
            match step:
                case Run():
                    self._run(step)
                case WhileStep():
                    head, body, end = self._label(), self._label(), self._label()
                    self._add(f"br label %{head}", f"{head}:")
                    self._steps(step.before)
                    self._branch(step.condition, body, end)
                    self._add(f"{body}:")
                    self._steps(step.body)
                    self._add(f"br label %{head}", f"{end}:")
                case IfStep():
                    then, orelse, end = self._label(), self._label(), self._label()
                    self._branch(step.condition, then, orelse)
                    self._add(f"{then}:")
                    self._steps(step.then)
                    self._add(f"br label %{end}", f"{orelse}:")
                    self._steps(step.orelse)
                    self._add(f"br label %{end}", f"{end}:")

    def _branch(self, flag: Place, then: str, orelse: str) -> None:
        label = self._label()
        place = self._pointer(flag)
        self._add(
            f"%flag_{label} = load i8, ptr {place}",
            f"%holds_{label} = icmp ne i8 %flag_{label}, 0",
            f"br i1 %holds_{label}, label %{then}, label %{orelse}",
        )

    def _run(self, run: Run) -> None:
        for slot, place in enumerate((*run.places, *run.workspaces)):
            pointer = self._pointer(place)
            at = self._label()
            self._add(
                f"%slot_{at} = getelementptr ptr, ptr %slots, i64 {slot}",
                f"store ptr {pointer}, ptr %slot_{at}",
            )
        symbol = kernel_symbol(self._name, run.program)
        self._add(
            f"call void @{symbol}(ptr %slots, ptr %parallel, ptr %pool, i64 %threads)",
        )

    def _pointer(self, place: Place) -> str:
        if place.base is Base.ARGUMENT:
            return f"%argument{place.number}"
        base = "%constants" if place.base is Base.CONSTANT else "%arena"
        label = self._label()
        self._add(f"%at_{label} = getelementptr i8, ptr {base}, i64 {place.number}")
        return f"%at_{label}"


def _slots(run: Run) -> int:
    return len(run.places) + len(run.workspaces)
