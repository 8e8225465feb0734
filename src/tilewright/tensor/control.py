"""Control flow that depends on data: loops and branches around computes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright.dtypes import boolean, s64
from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Expr, binary, const, var
from tilewright.ir.load import load
from tilewright.ir.stmt import Block, For, If, Stmt, While
from tilewright.ir.visit import loads_in
from tilewright.tensor.elementwise import elementwise
from tilewright.tensor.nests import copies
from tilewright.tensor.tensor import Builder, Tensor, described

Branch = Callable[[], Sequence[Tensor]]
# What becomes of values in an iteration, by its number.
Step = Callable[[Expr, Sequence[Tensor]], Sequence[Tensor]]
# Steps from values, so many of them.
Repeat = Callable[[Sequence[Tensor], int, Step, Builder], tuple[Tensor, ...]]


def while_(
    carried: Sequence[Tensor],
    condition: Callable[[Sequence[Tensor]], Tensor],
    body: Callable[[Sequence[Tensor]], Sequence[Tensor]],
    builder: Builder | None = None,
) -> tuple[Tensor, ...]:
    """``carried = body(carried)`` as long as ``condition(carried)`` (bool, rank 0) holds before.

    alloc x, go
    x = carried; go = condition(x)
    while go[]: x = body(x); go = condition(x)
    """
    builder = carried[0].builder if builder is None else builder
    builder.check_tensors(*carried)
    name = builder.named("loop")
    memory = copies(builder, carried, name, "begin")
    go = builder.allocate(f"{name}_go", boolean, ())
    values = tuple(map(builder.whole, memory))
    _decide(builder, go, condition(values), name)
    with builder.nested() as inside:
        _carry(builder, memory, body(values), name)
        _decide(builder, go, condition(values), name)
    builder.emit(While(load(go, ()), Block(tuple(inside)), builder.span))
    return values


def while_counted(
    carried: Sequence[Tensor], count: int, step: Step, builder: Builder
) -> tuple[Tensor, ...]:
    """``carried = step(n, carried)`` for n from 0 to ``count`` (exclusive), where n is one of what
    is carried: a loop of a graph."""

    def body(all_: Sequence[Tensor]) -> Sequence[Tensor]:
        return [elementwise(lambda n: n + const(1), all_[0]), *step(all_[0].value, all_[1:])]

    def more(all_: Sequence[Tensor]) -> Tensor:
        return builder.tensor((), all_[0].value < count)

    return while_([builder.splat(0, s64), *carried], more, body, builder)[1:]


def for_(carried: Sequence[Tensor], count: int, step: Step, builder: Builder) -> tuple[Tensor, ...]:
    """``carried = step(n, carried)`` for n from 0 to ``count`` (exclusive): a loop of a kernel.
    Where there is one step, its values may have other shapes.

    alloc x
    x = carried
    for n in count: x = step(n, x)
    """
    if count == 1:
        return tuple(step(const(0), carried))
    name = builder.named("loop")
    memory = copies(builder, carried, name, "begin")
    number = var(builder.fresh(f"{name}_step"), s64)
    values = tuple(map(builder.whole, memory))
    with builder.nested() as inside:
        _carry(builder, memory, step(number, values), name)
    builder.emit(For(number, const(count), Block(tuple(inside)), span=builder.span))
    return values


def _decide(builder: Builder, go: Buffer, test: Tensor, name: str) -> None:
    if test.shape or test.dtype is not boolean:
        cure = "give one bool"
        raise builder.refuse(f"the condition of a loop is {described(test)}", cure)
    builder.store(go, test, f"{name}_test")


def _carry(builder: Builder, memory: Sequence[Buffer], new: Sequence[Tensor], name: str) -> None:
    """Emits that ``memory`` becomes ``new``, all of which is computed before any of it changes."""
    if len(new) != len(memory):
        cure = "give a value for each"
        raise builder.refuse(
            f"a loop carries {len(memory)} values, its body gives {len(new)}", cure
        )
    changing = set(memory)
    values: list[tuple[Buffer, Tensor]] = []
    for target, tensor in zip(memory, new, strict=True):
        if (tensor.dtype, tensor.shape) != (target.dtype, target.sizes):
            raise builder.refuse(
                f"a loop carries {described(builder.whole(target))}, its body gives "
                f"{described(tensor)}",
                "let the body give what the loop takes",
            )
        if tensor.buffer is target:
            changing.discard(target)
        else:
            values.append((target, tensor))
    pairs: list[tuple[Buffer, Tensor]] = []
    for target, tensor in values:
        if any(read.buffer in changing for read in loads_in(tensor.value)):
            copy = builder.allocate(f"{name}_next", tensor.dtype, tensor.shape)
            builder.store(copy, tensor, f"{name}_next")
            tensor = builder.whole(copy)
        pairs.append((target, tensor))
    for target, tensor in pairs:
        builder.store(target, tensor, f"{name}_carry")


def if_(condition: Tensor, then: Branch, orelse: Branch) -> tuple[Tensor, ...]:
    """What ``then()`` gives where ``condition`` (bool, rank 0) holds, else ``orelse()``: only that
    one is computed."""
    builder = condition.builder
    if condition.shape or condition.dtype is not boolean:
        raise builder.refuse(f"the condition is {described(condition)}", "give one bool")
    decided = condition.constant
    if decided is not None:
        return tuple(then() if decided.value else orelse())
    name = builder.named("branch")
    test = builder.materialize(condition, f"{name}_test")
    arms = [_arm(builder, then), _arm(builder, orelse)]
    return _branches(builder, name, [test], arms)


def case(index: Tensor, branches: Sequence[Branch]) -> tuple[Tensor, ...]:
    """What ``branches[index]()`` gives; an index that is none is that of the last."""
    builder = index.builder
    if index.shape or not index.dtype.is_integer or not branches:
        raise builder.refuse(f"a case of {described(index)}", "give one integer, and branches")
    constant = index.constant
    if constant is not None or len(branches) == 1:
        place = 0 if constant is None else constant.value
        return tuple(branches[place if 0 <= place < len(branches) else -1]())
    name = builder.named("case")
    tests = []
    for number in range(len(branches) - 1):
        same = binary("eq", index.value, const(number, index.dtype))
        tests.append(builder.materialize(builder.tensor((), same), f"{name}_test"))
    return _branches(builder, name, tests, [_arm(builder, branch) for branch in branches])


Arm = tuple[list[Stmt], Sequence[Tensor]]


def _arm(builder: Builder, branch: Branch) -> Arm:
    with builder.nested() as inside:
        return inside, tuple(branch())


def _branches(
    builder: Builder, name: str, tests: Sequence[Tensor], arms: Sequence[Arm]
) -> tuple[Tensor, ...]:
    """Memory for what the arms give, and the statement that runs one of them."""
    first = arms[0][1]
    for _, results in arms[1:]:
        if [(t.dtype, t.shape) for t in results] != [(t.dtype, t.shape) for t in first]:
            forms = "; ".join(", ".join(map(described, r)) for _, r in arms)
            raise builder.refuse(f"branches give {forms}", "let all give the same types and shapes")
    memory = [builder.allocate(name, tensor.dtype, tensor.shape) for tensor in first]
    bodies: list[Stmt] = []
    for inside, results in arms:
        with builder.nested() as stores:
            for target, tensor in zip(memory, results, strict=True):
                builder.store(target, tensor, f"{name}_result")
        bodies.append(Block((*inside, *stores)))
    whole = bodies[-1]
    for test, body in reversed(list(zip(tests, bodies[:-1], strict=True))):
        whole = If(test.value, body, whole, builder.span)
    builder.emit(whole)
    return tuple(map(builder.whole, memory))
