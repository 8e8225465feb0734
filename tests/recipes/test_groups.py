"""Kernels of many computes: cut into groups by data flow, scheduled one by one, put together."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from kernel_examples import EXAMPLES
from needs import NVIDIA, need_device
from renaming import renamed, with_names
from schedule_replays import fault_of
from sweeps import in_turns
from tilewright.bench import catalog
from tilewright.errors import ScheduleError
from tilewright.interpret import run as interpret
from tilewright.ir.printer import to_text
from tilewright.ir.stmt import Kernel
from tilewright.ir.verify import verify
from tilewright.passes import run as run_passes
from tilewright.problems import Direction, Problem
from tilewright.recipes import choose
from tilewright.recipes.config import ContractionConfig, GroupsConfig, PlainConfig, parse_config
from tilewright.recipes.start import Start
from tilewright.schedule.groups import as_contraction, cut
from tilewright.targets.registry import find_target

FIXED = """
kernel k(in x: f32[20, 24], in w: f32[24, 40], in b: f32[40], out y: f32[20, 40]):
{body}
"""


def parsed(text: str) -> Kernel:
    """The kernel that ``text`` is, where computes may stand in a line."""
    return tw.parse_kernel(re.sub(r"( *)(compute \w+\([^)]*\):) (.+)", r"\1\2\n\1  \3", text))


def kernel_of(body: str) -> Kernel:
    return parsed(FIXED.format(body=body))


def arrays_of(kernel: Kernel, seed: int = 0) -> dict[str, Any]:
    """Small whole numbers, of which every order of a sum gives the same."""
    rng = np.random.default_rng(seed)
    return {
        array.name: rng.integers(-3, 4, array.buffer.shape).astype(array.dtype.numpy)
        for array in kernel.arrays
        if array.access != "out"
    }


def interpreted(kernel: Kernel, arrays: Mapping[str, Any]) -> dict[str, Any]:
    """What the kernel's definition gives, by name."""
    memory = {
        array.name: arrays.get(array.name, np.zeros(array.buffer.shape, array.dtype.numpy))
        .copy()
        .reshape(-1)
        for array in kernel.arrays
    }
    interpret(kernel, memory)
    return {
        array.name: memory[array.name].reshape(array.buffer.shape)
        for array in kernel.arrays
        if array.access != "in"
    }


def check(kernel: Kernel, target: str = "x86:avx2", constant: tuple[str, ...] = ()) -> Any:
    """Compiles ``kernel`` and compares its results with the interpreter's; gives its config."""
    verify(kernel)
    arrays = arrays_of(kernel)
    wanted = interpreted(kernel, arrays)
    result = tw.compile(kernel, target, threads=2, constant=constant)
    verify(result.schedule.kernel)
    values = result(**{name: array.copy() for name, array in arrays.items()})
    results = values if isinstance(values, dict) else {result.signature.results[0]: values}
    assert wanted
    for name, want in wanted.items():
        np.testing.assert_array_equal(results[name], want, err_msg=name)
    return result.config


PRODUCT = "  compute product(m in 20, n in 40, k in 24): y[m, n] add= x[m, k] * w[k, n]\n"
CLEAR = "  compute clear(m in 20, n in 40): y[m, n] = 0.0\n"
BODIES = {
    "cleared": CLEAR + PRODUCT,
    "bias in front": "  compute start(m in 20, n in 40): y[m, n] = b[n]\n" + PRODUCT,
    "a number in front": "  compute start(m in 20, n in 40): y[m, n] = 2.5\n" + PRODUCT,
    "dims in another order": "  compute start(n in 40, m in 20): y[m, n] = b[n]\n"
    "  compute product(k in 24, n in 40, m in 20): y[m, n] add= w[k, n] * x[m, k]\n"
    "  compute relu(q in 40, p in 20): y[p, q] = max(y[p, q], 0.0)\n",
    "relu in place": CLEAR
    + PRODUCT
    + "  compute relu(i in 20, j in 40): y[i, j] = max(y[i, j], 0.0)\n",
    "twice": CLEAR + PRODUCT + PRODUCT.replace("product", "again"),
    "products that another wants": "  alloc t: f32[20, 40]\n"
    "  compute clear(m in 20, n in 40): t[m, n] = 0.0\n"
    + PRODUCT.replace("y", "t")
    + "  compute relu(m in 20, n in 40): y[m, n] = max(t[m, n], 0.0)\n"
    "  compute skip(m in 20, n in 40): y[m, n] = y[m, n] + t[m, n]\n",
    "a chain": "  alloc t: f32[20, 40]\n  alloc u: f32[40, 20]\n"
    "  compute clear(m in 20, n in 40): t[m, n] = 0.0\n"
    + PRODUCT.replace("y", "t")
    + "  compute turned(n in 40, m in 20): u[n, m] = max(t[m, n], 0.0) + b[n]\n"
    "  compute back(m in 20, n in 40): y[m, n] = u[n, m] * u[n, m]\n",
    "operands that change in between": "  alloc t: f32[24, 40]\n"
    "  compute copy(k in 24, n in 40): t[k, n] = w[k, n]\n"
    + CLEAR
    + PRODUCT.replace("w[", "t[")
    + "  compute other(k in 24, n in 40): t[k, n] = 7.0\n"
    "  compute relu(m in 20, n in 40): y[m, n] = y[m, n] + t[0, n]\n",
    "a start that something reads": CLEAR + "  alloc t: f32[20, 40]\n"
    "  compute save(m in 20, n in 40): t[m, n] = y[m, n] + 1.0\n"
    + PRODUCT
    + "  compute end(m in 20, n in 40): y[m, n] = y[m, n] * t[m, n]\n",
    "names that recipes use": "  alloc acc: f32[20, 40]\n"
    "  compute epilogue(a in 20, b in 40): acc[a, b] = 1.0\n"
    "  compute init(step in 20, element in 40, a in 24):\n"
    "    acc[step, element] add= x[step, a] * w[a, element]\n"
    "  compute main(k_o in 20, k in 40): y[k_o, k] = acc[k_o, k] + b[k]\n",
    "products that nobody wants": "  alloc t: f32[20, 40]\n"
    "  compute clear(m in 20, n in 40): t[m, n] = 0.0\n"
    + PRODUCT.replace("y", "t")
    + "  compute other(m in 20, n in 40): y[m, n] = b[n]\n",
    "a result that something still reads": "  alloc t: f32[20, 20]\n  alloc s: f32[20, 20]\n"
    "  compute first(i in 20, j in 20): s[i, j] = x[i, j] - x[j, 0]\n"
    "  compute start(i in 20, j in 20): t[i, j] = s[j, i]\n"
    "  compute product(i in 20, j in 20, k in 24): t[i, j] add= x[i, k] * w[k, j]\n"
    "  compute end(i in 20, j in 20): s[i, j] = max(t[i, j], 0.0)\n"
    "  compute wide(m in 20, n in 40): y[m, n] = s[m, n % 20]\n",
    "products of groups": "  alloc t: f32[2, 20, 20]\n  alloc u: f32[20, 40]\n"
    "  compute start(g in 2, m in 20, n in 20): t[g, m, n] = 0.0\n"
    "  compute product(g in 2, m in 20, n in 20, k in 12):\n"
    "    t[g, m, n] add= x[m, g * 12 + k] * w[g * 12 + k, g * 20 + n]\n"
    "  compute flat(g in 2, m in 20, n in 20): u[m, g * 20 + n] = t[g, m, n]\n"
    "  compute relu(m in 20, n in 40): y[m, n] = max(u[m, n] + b[n], 0.0)\n",
    "windows": "  compute start(m in 20, n in 40): y[m, n] = 0.0\n"
    "  compute slide(m in 20, n in 40, k in 24, t in 3):\n"
    "    y[m, n] add= w[k, n] * x[m + t - 1, k | 0 <= m + t - 1 and m + t - 1 < 20]\n",
}


@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize("target", ["x86:avx2", "spirv:gpu", NVIDIA])
def test_results_are_those_of_the_interpreter(name: str, target: str) -> None:
    need_device(target)
    check(kernel_of(BODIES[name]), target)


@pytest.mark.parametrize("name", BODIES)
def test_for_nvidia(name: str) -> None:
    """What the target gets runs in the interpreter."""
    kernel = kernel_of(BODIES[name])
    target = find_target("nvidia:sm_80")
    _, scheduled = choose.choose(Start(kernel, kernel), target.machine)
    arrays = arrays_of(kernel)
    wanted = interpreted(kernel, arrays)
    values = interpreted(run_passes(scheduled.kernel), arrays)
    assert wanted
    for name, want in wanted.items():
        np.testing.assert_array_equal(values[name], want, err_msg=name)


def test_what_is_added_to_goes_on() -> None:
    """Without a start, sums go on from what the caller gave."""
    kernel = parsed(
        """
        kernel more(in x: f32[20, 24], in w: f32[24, 40], inout y: f32[20, 40]):
          compute product(m in 20, n in 40, k in 24): y[m, n] add= x[m, k] * w[k, n]
        """
    )
    assert isinstance(check(kernel), ContractionConfig)


PERCEPTRON = """\
kernel perceptron_1(in x: f32[32, 64], in w1: f32[64, 96], in b1: f32[96], out hidden: f32[32, 96]):
  alloc acc: f32[32, 96] private
  compute init(m in 32, n in 96):
    acc[m, n] = 0.0
  compute main(m in 32, n in 96, k in 64):
    a = x[m, k]
    b = w1[k, n]
    acc[m, n] add= a * b
  compute epilogue(m in 32, n in 96):
    acc = acc[m, n]
    b1 = b1[n]
    hidden[m, n] = max(b1 + acc, 0.0)
"""


def test_what_follows_products_of_groups_is_theirs() -> None:
    """Groups and their columns count what one dim does where the sums are read."""
    kernel = kernel_of(BODIES["products of groups"])
    text = to_text(as_contraction(kernel))
    assert "y[m, batch * 20 + n] = max(acc + b, 0.0)" in text
    # Not all columns: who reads the others would miss them.
    part = BODIES["products of groups"].replace("u[m, g * 20 + n]", "u[m, g * 10 + n]")
    assert len(cut(kernel_of(part)).groups) == 2


def test_the_groups_of_a_perceptron() -> None:
    result = cut(tw.parse_kernel(EXAMPLES["perceptron"].text))
    assert [group.contracts for group in result.groups] == [True, True]
    assert to_text(result.groups[0].kernel) == PERCEPTRON.rstrip()
    assert [buffer.name for buffer in result.between] == ["hidden"]


def test_constants_of_several_groups_are_packed() -> None:
    """Each group packs its own weights, where it is worth it."""
    kernel = parsed(
        """
        kernel two(in x: f32[64, 128], in v: f32[128, 96], in w: f32[96, 80], out y: f32[64, 80]):
          alloc t: f32[64, 96]
          compute clear(m in 64, n in 96): t[m, n] = 0.0
          compute first(m in 64, n in 96, k in 128): t[m, n] add= x[m, k] * v[k, n]
          compute clear2(m in 64, n in 80): y[m, n] = 0.0
          compute second(m in 64, n in 80, k in 96): y[m, n] add= t[m, k] * w[k, n]
        """
    )
    result = tw.compile(kernel, "x86:avx2", constant=("v", "w"))
    assert result.packed == ("v", "w")
    arrays = arrays_of(kernel)
    packed = {n: result.pack(n, a) if n in result.packed else a for n, a in arrays.items()}
    np.testing.assert_array_equal(result(**packed), arrays["x"] @ arrays["v"] @ arrays["w"])


def test_a_batch_of_one_is_no_hindrance() -> None:
    """Buffers keep their dim of one element where computes have none for it, as graphs do."""
    kernel = parsed(
        """
        kernel one(in x: f32[1, 9, 9, 8], in w: f32[16, 8, 1, 1], in v: f32[16, 16], in b: f32[16],
                   out y: f32[1, 16, 9, 9]):
          alloc t: f32[1, 16, 9, 9]
          alloc u: f32[1, 16, 9, 9]
          alloc s: f32[1, 16, 16]
          compute twice(o in 16, c in 16): s[0, o, c] = v[o, c] * 2.0
          compute clear(o in 16, i in 9, j in 9): t[0, o, i, j] = 0.0
          compute first(o in 16, i in 9, j in 9, c in 8):
            t[0, o, i, j] add= x[0, i, j, c] * w[o, c, 0, 0]
          compute shift(o in 16, i in 9, j in 9): t[0, o, i, j] = t[0, o, i, j] + b[o]
          compute relu(o in 16, i in 9, j in 9): u[0, o, i, j] = max(t[0, o, i, j], 0.0)
          compute clear2(o in 16, i in 9, j in 9): y[0, o, i, j] = 0.0
          compute second(o in 16, i in 9, j in 9, c in 16):
            y[0, o, i, j] add= u[0, c, i, j] * s[0, o, c]
        """
    )
    assert [group.contracts for group in cut(kernel).groups] == [True, True]
    config = check(kernel)
    assert isinstance(config, GroupsConfig)
    assert all(isinstance(group, ContractionConfig) for group in config.groups)


def test_buffers_that_groups_see_in_other_shapes() -> None:
    """A 1x1 convolution makes rows and columns one dim; the 3x3 one behind it cannot."""
    kernel = parsed(
        """
        kernel two(in x: f32[2, 9, 9, 8], in v: f32[8, 16], in w: f32[3, 3, 16, 8],
                   out y: f32[2, 9, 9, 8]):
          alloc t: f32[2, 9, 9, 16]
          compute clear(b in 2, i in 9, j in 9, o in 16): t[b, i, j, o] = 0.0
          compute narrow(b in 2, i in 9, j in 9, o in 16, c in 8):
            t[b, i, j, o] add= x[b, i, j, c] * v[c, o]
          compute clear2(b in 2, i in 9, j in 9, o in 8): y[b, i, j, o] = 0.0
          compute wide(b in 2, i in 9, j in 9, o in 8, r in 3, s in 3, c in 16):
            y[b, i, j, o] add= w[r, s, c, o] * t[b, i + r - 1, j + s - 1, c | 0 <= i + r - 1 and
              i + r - 1 < 9 and 0 <= j + s - 1 and j + s - 1 < 9]
        """
    )
    config = check(kernel)
    assert isinstance(config, GroupsConfig)
    first, second = config.groups
    assert isinstance(first, ContractionConfig) and "m_m2_m3" in {new for *_, new in first.fuse}
    assert isinstance(second, ContractionConfig) and {"m", "m2", "m3"} <= set(second.order)


def drawn(rng: random.Random) -> Kernel:
    """A kernel of random steps on a few square matrices: products, elementwise, sums, copies."""
    size = rng.choice([5, 8, 16, 17])
    lines = []
    inputs, own = ["a", "b"], [f"t{n}" for n in range(rng.randint(1, 3))]
    written: list[str] = []
    for number in range(rng.randint(2, 7)):
        into = rng.choice([*own, "y", "y"])
        readable = [*inputs, *written]
        p, q = rng.choice(readable), rng.choice([r for r in readable if r != into] or ["a"])
        head = f"compute s{number}(i in {size}, j in {size}"
        ij = rng.choice(["i, j", "j, i"])
        match rng.randrange(5):
            case 0 | 1 if p != into and (into in written or rng.random() < 0.8):
                if into not in written or rng.random() < 0.5:
                    value = rng.choice(["0.0", "1.0", f"{q}[i, j]"])
                    lines.append(
                        f"compute z{number}(i in {size}, j in {size}): {into}[i, j] = {value}"
                    )
                lines.append(f"{head}, k in {size}): {into}[i, j] add= {p}[i, k] * {q}[k, j]")
            case 2 if p != into and into in written:
                lines.append(f"{head}, k in {size}): {into}[i, j] max= {p}[k, j]")
            case 3:
                p = into if into in written and rng.random() < 0.5 else q
                ij = "i, j" if p == into else ij
                lines.append(f"{head}): {into}[i, j] = max({p}[{ij}], {q}[i, j])")
            case _:
                lines.append(f"{head}): {into}[i, j] = {q}[{ij}] - {inputs[0]}[j, i]")
        written.append(into)
    if "y" not in written:
        lines.append(f"compute last(i in {size}, j in {size}): y[i, j] = {written[-1]}[i, j]")
    matrix = f"f32[{size}, {size}]"
    head = f"kernel random(in a: {matrix}, in b: {matrix}, out y: {matrix}):"
    allocs = [f"alloc {name}: {matrix}" for name in own]
    return parsed("\n  ".join([head, *allocs, *lines]) + "\n")


def is_whole(kernel: Kernel) -> bool:
    """Whether f32 tells apart all whole numbers that its results may be."""
    return bool(np.abs(interpreted(kernel, arrays_of(kernel))["y"]).max() < 2**22)


@pytest.mark.parametrize("part", in_turns(2, range(4)))
def test_random_kernels(part: int) -> None:
    """Values stay whole numbers, but may grow beyond what f32 tells apart: those are left out."""
    seed = f"{random.randrange(2**32)} {part}"
    print(f"seed {seed!r}")
    rng = random.Random(seed)
    with np.errstate(over="ignore", invalid="ignore"):
        kernels = list(islice((k for k in iter(partial(drawn, rng), None) if is_whole(k)), 8))
    assert len(kernels) == 8
    for kernel in kernels:
        check(kernel, rng.choice(["x86:avx2", "x86:avx2", "x86"]))


def problems(count: int) -> list[tuple[str, Problem, Direction]]:
    """Some of the shipped problems, the same every time."""
    result = [
        (problem_set.driver, problem, direction)
        for problem_set in map(catalog.load, catalog.names())
        if problem_set.driver in ("conv", "matmul")
        for problem in problem_set.problems
        for direction in (Direction if problem_set.driver == "conv" else (Direction.FWD_D,))
        if direction in (Direction.FWD_D, Direction.BWD_D, Direction.BWD_W)
    ]
    return random.Random(1).sample(result, count)


def kernel_for(driver: str, problem: Problem, direction: Direction) -> Kernel:
    if driver == "matmul":
        return tw.matmul(problem.descriptor()).resolved().kernel()
    op = tw.convolution(problem.descriptor(), direction=direction, dtype="f32")
    return op.resolved().kernel()


# Of each ten problems, where they run.
RENAMED = ("nvidia:sm_80", "spirv:gpu", "spirv:gpu", *["x86:avx2"] * 7)


@pytest.mark.parametrize("place", in_turns(10, range(len(RENAMED))))
def test_names_do_not_matter(place: int) -> None:
    """Every dim, compute and buffer of ten problems gets another name: the code is the same."""
    target = find_target(RENAMED[place])
    numbered = list(enumerate(problems(100)))[place :: len(RENAMED)]
    assert len(numbered) == 10
    for number, problem in numbered:
        kernel = kernel_for(*problem)
        other, old = renamed(kernel, random.Random(number))
        config, scheduled = choose.choose(Start(kernel, kernel), target.machine)
        again, same = choose.choose(Start(other, other), target.machine)
        assert not isinstance(config, PlainConfig)
        assert repr(again) == repr(config), problem
        texts = [target.lower(run_passes(schedule.kernel)).text for schedule in (scheduled, same)]
        assert texts[0] == with_names(texts[1], old), problem


def test_configs_of_groups_print_and_parse() -> None:
    kernel = tw.parse_kernel(EXAMPLES["perceptron"].text)
    result = tw.compile(kernel, "x86:avx2")
    assert isinstance(result.config, GroupsConfig)
    assert parse_config(repr(result.config)) == result.config
    again = tw.compile(kernel, "x86:avx2", config=repr(result.config))
    assert to_text(again.schedule.kernel) == to_text(result.schedule.kernel)
    plain = GroupsConfig((result.config.groups[0], PlainConfig(8)))
    arrays = arrays_of(kernel)
    np.testing.assert_array_equal(
        tw.compile(kernel, "x86:avx2", config=plain)(**arrays), result(**arrays)
    )
    tw.compile(kernel, "x86:avx2", config="PlainConfig(vector=8)")


@pytest.mark.parametrize(
    ("config", "what"),
    [
        ("GroupsConfig(groups=(PlainConfig(vector=8),))", "1 configs are given, and perceptron"),
        ("ElementwiseConfig(vector=8)", "1 configs are given, and perceptron has 2 groups"),
        ("GroupsConfig(groups=(3, 4))", "is not a tuple of configs"),
        ("GroupsConfig(groups=(GroupsConfig(groups=()), PlainConfig()))", "is not a tuple of"),
    ],
)
def test_configs_that_do_not_fit(config: str, what: str) -> None:
    kernel = tw.parse_kernel(EXAMPLES["perceptron"].text)
    with pytest.raises(ScheduleError) as caught:
        tw.compile(kernel, "x86:avx2", config=config)
    assert what in str(caught.value)


def test_groups_of_something_else_take_no_config_of_contractions() -> None:
    kernel = kernel_of(BODIES["products that another wants"])
    config = "GroupsConfig(groups=(PlainConfig(), ElementwiseConfig(vector=8)))"
    with pytest.raises(ScheduleError, match="k_2 is no contraction"):
        tw.compile(kernel, "x86:avx2", config=config)
    op = tw.matmul("8x8:8x8")
    with pytest.raises(ScheduleError, match="has one group"):
        tw.compile(op, "x86:avx2", config="GroupsConfig(groups=(PlainConfig(), PlainConfig()))")


def test_as_contraction_refuses_what_is_not_one() -> None:
    with pytest.raises(ScheduleError, match="is not one contraction") as caught:
        as_contraction(tw.parse_kernel(EXAMPLES["perceptron"].text))
    assert "perceptron_1, perceptron_2" in str(caught.value)
    with pytest.raises(ScheduleError, match="no sum of products"):
        as_contraction(tw.parse_kernel(EXAMPLES["cumulative sum"].text))


def test_records_of_groups_replay() -> None:
    """Each group has a schedule of its own, and what it packs another."""
    kernel = tw.parse_kernel(EXAMPLES["perceptron"].text)
    result = tw.compile(kernel, "x86:avx2", constant=("w1", "w2"))
    text = result.source("schedule")
    assert "group, group_2 = schedule.cut()" in text
    assert "pack_2 = group_2.hoist_pack" in text and text.endswith("schedule.put_together()\n")
    again = tw.compile(kernel, "x86:avx2", constant=("w1", "w2"), schedule=text)
    assert again.source("schedule") == text and again.packed == result.packed
    assert again.source("llvm") == result.source("llvm")


@pytest.mark.parametrize("name", in_turns(2, BODIES))
def test_records_replay(name: str) -> None:
    kernel = kernel_of(BODIES[name])
    for target in ("x86:avx2", "spirv:gpu"):
        result = find_target(target)
        _, scheduled = choose.choose(Start(kernel, kernel), result.machine)
        assert fault_of(scheduled, Start(kernel, kernel), result) is None


def test_groups_are_scheduled_by_hand() -> None:
    """And refused where the kernel is still in groups, or is one."""
    schedule = tw.Schedule(tw.parse_kernel(EXAMPLES["perceptron"].text), "x86:avx2")
    first, second = schedule.cut()
    with pytest.raises(ScheduleError, match="the kernel is in groups"):
        schedule.lower_computes()
    first.compute_at("epilogue", {"m": 4})
    for group in (first, second):
        group.lower_computes()
    schedule.put_together()
    with pytest.raises(ScheduleError, match="there are no groups"):
        schedule.put_together()
    arrays = arrays_of(schedule.start)
    np.testing.assert_array_equal(
        tw.compile(schedule)(**arrays), interpreted(schedule.start, arrays)["y"]
    )
    with pytest.raises(ScheduleError, match="is one group"):
        tw.Schedule(tw.matmul("8x8:8x8"), "x86:avx2").cut()


def test_lanes_are_not_along_what_taps_move_where_channels_fill_them() -> None:
    """Vectors of moved rows are never aligned, and have masks at both ends."""

    def lanes(channels: int, taps: int) -> str:
        ends = f"i + r - {taps // 2}", f"j + s - {taps // 2}"
        inside = " and ".join(f"0 <= {end} and {end} < 16" for end in ends)
        kernel = tw.parse_kernel(f"""
kernel k(in x: f32[4, 16, 16], in w: f32[{channels}, 4, {taps}, {taps}],
         out y: f32[{channels}, 16, 16]):
  compute clear(o in {channels}, i in 16, j in 16):
    y[o, i, j] = 0.0
  compute add(o in {channels}, i in 16, j in 16, c in 4, r in {taps}, s in {taps}):
    y[o, i, j] add= w[o, c, r, s] * x[c, {", ".join(ends)} | {inside}]
""")
        config = tw.compile(kernel, "x86:avx2", constant=("w",)).config
        assert isinstance(config, ContractionConfig)
        return config.lanes

    assert lanes(16, 3) == "n" and lanes(1, 3) == "m2"
