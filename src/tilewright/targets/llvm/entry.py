"""The function that a CPU's caller calls: it runs phases on threads, and the control around them.

It is ``void NAME(ptr args, ptr parallel, ptr pool, i64 threads)``. ``args`` has a slot of 8 bytes
for each argument in the kernel's order: a pointer, or the bits of a scalar in the first bytes; then
a pointer for each workspace. If the host has values, phases get a copy of these slots followed by a
slot for each value: the *frame*.

``parallel`` is called as ``parallel(pool, phase, args, threads)`` for every parallel phase and must
run ``phase(args, thread, threads)`` for each thread; with one thread it is not called.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class Entry:
    """Writes the function, step by step. Numbers and conditions are LLVM values."""

    def __init__(self, name: str, slots: int, framed: bool) -> None:
        """The caller passes ``slots`` slots; with ``framed`` there is a frame."""
        self._name = name
        self._arguments = slots
        self._slots = slots
        self._frame = "%frame" if framed else "%args"
        self._lines: list[str] = []
        self._labels = 0
        self._names = 0

    @property
    def frame(self) -> str:
        """The pointer to the slots that phases get."""
        return self._frame

    def text(self) -> str:
        """The function, and the attributes of all functions."""
        header = f"define void @{self._name}(ptr %args, ptr %parallel, ptr %pool, i64 %threads) #0"
        lines = [header + " {"]
        if self._frame != "%args":
            lines.append(f"  %frame = alloca [{self._slots} x i64], align 8")
            for slot in range(self._arguments):
                lines += [
                    f"  %given{slot} = getelementptr i64, ptr %args, i64 {slot}",
                    f"  %own{slot} = getelementptr i64, ptr %frame, i64 {slot}",
                    f"  %bits{slot} = load i64, ptr %given{slot}",
                    f"  store i64 %bits{slot}, ptr %own{slot}",
                ]
        lines += self._lines
        lines += ["  ret void", "}", 'attributes #0 = { nounwind "prefer-vector-width"="512" }']
        return "\n".join(lines)

    def slot(self) -> int:
        """A new slot of the frame."""
        self._slots += 1
        return self._slots - 1

    def evaluate(self, function: str, type_: str) -> str:
        """The result of a function of the frame."""
        name = self._fresh()
        self._lines.append(f"  {name} = call {type_} @{function}(ptr {self._frame})")
        return name

    def keep(self, slot: int, type_: str, value: str) -> None:
        """Stores a value in a slot."""
        self._lines.append(f"  store {type_} {value}, ptr {self._place(slot)}")

    def phase(self, number: int, count: int | str) -> None:
        """Runs ``phaseN``, which has ``count`` iterations."""
        n = number
        if isinstance(count, int) and count <= 1:
            self._lines.append(f"  call void @phase{n}(ptr {self._frame}, i64 0, i64 1)")
            return
        self._lines += [
            f"  %many{n} = icmp slt i64 %threads, {count}",
            f"  %count{n} = select i1 %many{n}, i64 %threads, i64 {count}",
            f"  %alone{n} = icmp sle i64 %count{n}, 1",
            f"  br i1 %alone{n}, label %serial{n}, label %fork{n}",
            f"serial{n}:",
            f"  call void @phase{n}(ptr {self._frame}, i64 0, i64 1)",
            f"  br label %join{n}",
            f"fork{n}:",
            f"  call void %parallel(ptr %pool, ptr @phase{n}, ptr {self._frame}, i64 %count{n})",
            f"  br label %join{n}",
            f"join{n}:",
        ]

    @contextmanager
    def counting(self, slot: int, extent: str) -> Iterator[None]:
        """A loop around the ``with`` block; its variable is in the slot."""
        self.keep(slot, "i64", "0")
        head, body, after = self._label("count"), self._label("body"), self._label("after")
        self._jump(head)
        self._lines.append(f"{head}:")
        index, runs = self._fresh(), self._fresh()
        self._lines += [
            f"  {index} = load i64, ptr {self._place(slot)}",
            f"  {runs} = icmp slt i64 {index}, {extent}",
            f"  br i1 {runs}, label %{body}, label %{after}",
            f"{body}:",
        ]
        yield
        following = self._fresh()
        self._lines.append(f"  {following} = add nsw i64 {index}, 1")
        self.keep(slot, "i64", following)
        self._jump(head)
        self._lines.append(f"{after}:")

    @contextmanager
    def repeating(self) -> Iterator[str]:
        """A loop around the ``with`` block that `leave` leaves, given the label after it."""
        head, after = self._label("again"), self._label("after")
        self._jump(head)
        self._lines.append(f"{head}:")
        yield after
        self._jump(head)
        self._lines.append(f"{after}:")

    def leave(self, condition: str, after: str) -> None:
        """Goes to ``after`` if the condition (a byte) does not hold."""
        body = self._label("body")
        self._branch(condition, body, after)
        self._lines.append(f"{body}:")

    @contextmanager
    def choosing(self, condition: str) -> Iterator[tuple[str, str]]:
        """Two branches by a condition (a byte): the first is written up to `otherwise`, and runs if
        the condition holds."""
        then, orelse, after = self._label("then"), self._label("else"), self._label("join")
        self._branch(condition, then, orelse)
        self._lines.append(f"{then}:")
        yield orelse, after
        self._jump(after)
        self._lines.append(f"{after}:")

    def otherwise(self, labels: tuple[str, str]) -> None:
        """Begins the second branch; ``labels`` are the result of `choosing`."""
        orelse, after = labels
        self._jump(after)
        self._lines.append(f"{orelse}:")

    def _place(self, slot: int) -> str:
        name = self._fresh()
        self._lines.append(f"  {name} = getelementptr i64, ptr {self._frame}, i64 {slot}")
        return name

    def _branch(self, condition: str, then: str, orelse: str) -> None:
        flag = self._fresh()
        self._lines += [
            f"  {flag} = icmp ne i8 {condition}, 0",
            f"  br i1 {flag}, label %{then}, label %{orelse}",
        ]

    def _jump(self, label: str) -> None:
        self._lines.append(f"  br label %{label}")

    def _fresh(self) -> str:
        self._names += 1
        return f"%v{self._names}"

    def _label(self, hint: str) -> str:
        self._labels += 1
        return f"{hint}.{self._labels}"
