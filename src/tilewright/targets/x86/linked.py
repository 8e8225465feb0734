"""Several x86 kernels as one native call, which runs the steps of a `targets.linking.Plan`.

A call gets a *frame*: a table of instructions and, for each kernel that runs, its *slots*: the
pointers that it takes (to arrays and workspaces). All but those of the caller's arrays are filled
when the frame is built. An instruction is four 64-bit numbers: an opcode and three operands.

    0  END
    1  CALL    address of the kernel, address of its slots
    2  UNLESS  address of a byte, address of the instruction to go to if the byte is 0
    3  GOTO    address of the instruction to go to

Before the first instruction, the caller's pointers are stored into slots as the frame's *patches*
say: pairs of a slot's address and the index of an argument.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.runtime.steps import IfStep, WhileStep
from tilewright.targets.linking import (
    ArenaMemory,
    Base,
    LinkedStep,
    Place,
    Plan,
    Run,
    busy_arena,
)
from tilewright.targets.program import Passed
from tilewright.targets.x86.assemble import assemble
from tilewright.targets.x86.driver import Program
from tilewright.targets.x86.pool import worker_pool
from tilewright.targets.x86.program import KernelProgram

_CODE = """
define void @tw_steps(ptr %patches, i64 %count, ptr %args, ptr %code, ptr %parallel, ptr %pool,
                      i64 %threads) nounwind {
entry:
  %any = icmp sgt i64 %count, 0
  br i1 %any, label %patch, label %step
patch:
  %p = phi i64 [ 0, %entry ], [ %p_next, %patch ]
  %at = getelementptr { ptr, i64 }, ptr %patches, i64 %p
  %slot = load ptr, ptr %at
  %number_at = getelementptr { ptr, i64 }, ptr %patches, i64 %p, i32 1
  %number = load i64, ptr %number_at
  %given = getelementptr i64, ptr %args, i64 %number
  %value = load i64, ptr %given
  store i64 %value, ptr %slot
  %p_next = add i64 %p, 1
  %p_more = icmp slt i64 %p_next, %count
  br i1 %p_more, label %patch, label %step
step:
  %now = phi ptr [ %code, %entry ], [ %code, %patch ], [ %next, %call ], [ %chosen, %unless ],
                 [ %target, %goto ]
  %op = load i64, ptr %now
  %first_at = getelementptr i64, ptr %now, i64 1
  %first = load ptr, ptr %first_at
  %second_at = getelementptr i64, ptr %now, i64 2
  %second = load ptr, ptr %second_at
  %next = getelementptr i64, ptr %now, i64 4
  switch i64 %op, label %done [ i64 1, label %call i64 2, label %unless i64 3, label %goto ]
call:
  call void %first(ptr %second, ptr %parallel, ptr %pool, i64 %threads)
  br label %step
unless:
  %flag = load i8, ptr %first
  %holds = icmp ne i8 %flag, 0
  %chosen = select i1 %holds, ptr %next, ptr %second
  br label %step
goto:
  %target = getelementptr i8, ptr %first, i64 0
  br label %step
done:
  ret void
}
"""
_END, _CALL, _UNLESS, _GOTO = range(4)
_WORDS = 4  # per instruction

_Steps = ctypes.CFUNCTYPE(
    None,
    ctypes.c_void_p,
    ctypes.c_int64,
    ctypes.c_void_p,
    ctypes.c_void_p,
    ctypes.c_void_p,
    ctypes.c_void_p,
    ctypes.c_int64,
)


class _Frame:
    """Instructions and slots for one call at a time, with the arena that they point into."""

    def __init__(
        self,
        programs: Sequence[KernelProgram],
        plan: Plan,
        constants: Sequence[NDArray[Any]],
        arena: Any,
    ) -> None:
        self.arena = ArenaMemory(plan.arena, arena)
        self._programs, self._constants = programs, constants
        self._slots: list[int] = []
        self._code: list[list[int]] = []
        # Pairs of a slot's index and the index of the argument that is stored into it.
        self._patched: list[tuple[int, int]] = []
        self._steps(plan.steps)
        self._code.append([_END, 0, 0])
        self.slots = np.array(self._slots or [0], np.int64)
        self.code = np.zeros((len(self._code), _WORDS), np.int64)
        base, start = self.slots.ctypes.data, self.code.ctypes.data
        size = _WORDS * 8
        # Operands that are indices of slots or instructions become addresses.
        for row, (op, first, second) in zip(self.code, self._code, strict=True):
            if op == _CALL:
                second = base + 8 * second
            elif op == _UNLESS:
                second = start + size * second
            elif op == _GOTO:
                first = start + size * first
            row[:3] = op, first, second
        self.patched = [(base + 8 * slot, argument) for slot, argument in self._patched]
        self._patches = np.array(self.patched or [(0, 0)], np.int64)
        self.addresses = self._patches.ctypes.data, len(self.patched), start

    def _steps(self, steps: Sequence[LinkedStep]) -> None:
        for step in steps:
            match step:
                case Run():
                    self._run(step)
                case WhileStep():
                    head = len(self._code)
                    self._steps(step.before)
                    unless = self._unless(step.condition)
                    self._steps(step.body)
                    self._code.append([_GOTO, head, 0])
                    unless[2] = len(self._code)
                case IfStep():
                    unless = self._unless(step.condition)
                    self._steps(step.then)
                    over = [_GOTO, 0, 0]
                    self._code.append(over)
                    unless[2] = len(self._code)
                    self._steps(step.orelse)
                    over[1] = len(self._code)

    def _unless(self, flag: Place) -> list[int]:
        instruction = [_UNLESS, self._pointer(flag), 0]
        self._code.append(instruction)
        return instruction

    def _run(self, step: Run) -> None:
        self._code.append([_CALL, self._programs[step.program].address, len(self._slots)])
        for place in (*step.places, *step.workspaces):
            if place.base is Base.ARGUMENT:
                self._patched.append((len(self._slots), place.number))
                self._slots.append(0)
            else:
                self._slots.append(self._pointer(place))

    def _pointer(self, place: Place) -> int:
        if place.base is Base.CONSTANT:
            return int(self._constants[place.number].ctypes.data)
        if place.base is Base.NUMBER:
            return place.number
        assert place.base is Base.ARENA, "flags and workspaces lie in the arena"
        return int(self.arena.pointer) + place.number


class LinkedProgram:
    """A linked `targets.program.Program` of x86 kernels, called by native code.

    Frames are kept between calls. Each call takes one, so that several Python threads may run the
    program at once, unless the caller passed an arena: then there is only one frame.
    """

    def __init__(
        self,
        programs: Sequence[KernelProgram],
        plan: Plan,
        constants: Sequence[NDArray[Any]],
        arena: Any = None,
    ) -> None:
        self._parts = (programs, plan, constants)
        self._callers_arena = arena is not None
        self._arguments = ctypes.c_void_p * len(plan.arguments)
        self._entry = _Steps(_steps().address("tw_steps"))
        self._pool = worker_pool()
        self._spare: list[_Frame] = [] if arena is None else [_Frame(*self._parts, arena)]

    def run(self, arguments: Sequence[Passed], threads: int) -> None:
        """Runs all steps on these pointers, which may be an array of ctypes'."""
        pool = self._pool
        try:
            frame = self._spare.pop()
        except IndexError:
            frame = self._new()
        patches, count, code = frame.addresses
        plain = not isinstance(arguments, ctypes.Array)
        pointers = self._arguments(*arguments) if plain else arguments  # type: ignore[misc]
        self._entry(patches, count, pointers, code, pool.entry, pool.state, threads)
        self._spare.append(frame)

    def bound(self, arguments: Sequence[Passed], threads: int) -> Callable[[], None]:
        """A function without arguments that runs all steps on these pointers, in its own frame."""
        frame = self._spare.pop() if self._callers_arena and self._spare else self._new()
        for slot, number in frame.patched:
            ctypes.c_int64.from_address(slot).value = int(arguments[number])
        _, _, code = frame.addresses
        entry, parallel, state = self._entry, self._pool.entry, self._pool.state

        def call(_keep: Any = (frame, self)) -> None:
            entry(0, 0, 0, code, parallel, state, threads)

        return call

    def _new(self) -> _Frame:
        if self._callers_arena:
            raise busy_arena()
        return _Frame(*self._parts, None)


@cache
def _steps() -> Program:
    return Program(assemble(_CODE, cpu="x86-64", opt=0), ("tw_steps",))
