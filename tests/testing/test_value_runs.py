"""Values at the ends of their types: a plain evaluation, the interpreter and machine code agree, on
what is documented and on random kernels."""

from __future__ import annotations

import math

import numpy as np
import pytest

import value_runs
from needs import DEVICES, need_device
from plain_values import bits_of, converted, with_bits
from scalar_runs import interpreted
from staged import carried_out
from sweeps import in_turns
from tilewright.conversions import convert
from tilewright.dtypes import COMPUTED, DType, bf16, dtype, f8_e4m3, f8_e5m2, f16, f64, tf32
from tilewright.engine.program import Code
from tilewright.ir import Kernel, parse_kernel
from tilewright.passes import run as run_passes
from tilewright.recipes import plain
from tilewright.targets.program import abi_of
from tilewright.targets.registry import find_target

NARROW = [f8_e4m3, f8_e5m2, f16, bf16]

# What is documented of conversions, narrow extremes and remainders, said in kernels of few lines.
CASES = {
    # NaN gives 0, and so do its remainders.
    "u8(bitcast(f32, s32(-3)) / f32(x)) % u8(2)": 0,
    "u8(f8_e4m3(f32(x) * 1000.0)) ^ u8(2)": 2,  # beyond 448 there is only NaN
    # What does not fit saturates: none of it wraps.
    "u16(bf16(x) / bf16(0.0)) ^ u16(64)": 65471,
    "s8(f8_e5m2(-57344.0) * f8_e5m2(x))": -128,
    "u64(f64(x) * f64(-1.0))": 0,
    # Integers wrap, whatever they are converted from.
    "u8(u64(1232357989620660136)) - u8(x)": 167,
    "s16(f8_e4m3(min(s8(x), s8(-56) ^ s8(x))))": -56,
    "(-(u8(s8(x)))) % u8(3)": 0,
    "u8(x) << u8(11) or u8(5)": 5,
    "popcount(s8(-1) - s8(x))": 7,
}


@pytest.mark.parametrize("target", ["interpreter", "x86", "x86:sse42", *DEVICES])
def test_what_is_documented_of_narrow_types(target: str) -> None:
    """Where x is 1."""
    need_device(target)
    types = [line.split("(")[0] for line in CASES]
    names = {"popcount": "s8", "": "u8"}
    types = [names.get(type_, type_) for type_ in types]
    outs = "".join(f", out y{n}: {type_}[16]" for n, type_ in enumerate(types))
    lines = "".join(f"    y{n}[i] = {line}\n" for n, line in enumerate(CASES))
    kernel = parse_kernel(
        f"kernel k(in a: s64[16]{outs}):\n  compute c(i in 16):\n    x = a[i]\n{lines}"
    )
    arrays = {"a": np.ones(16, np.int64)}
    arrays |= {f"y{n}": np.zeros(16, dtype(type_).numpy) for n, type_ in enumerate(types)}
    result = (
        interpreted(kernel, arrays) if target == "interpreter" else _ran(kernel, arrays, target)
    )
    assert [int(result[f"y{n}"][3]) for n in range(len(CASES))] == list(CASES.values())


def _ran(kernel: Kernel, arrays: dict[str, np.ndarray], name: str) -> dict[str, np.ndarray]:
    target = find_target(name)
    config = plain.default_config(kernel, target.machine)
    lowered = run_passes(carried_out(plain.Plain().schedule, kernel, target.machine, config).kernel)
    module = target.lower(lowered)
    code = Code(target, target.assemble(module), abi_of(lowered, module))
    memory = {name: array.copy() for name, array in arrays.items()}
    code.run([memory[p.name].ctypes.data for p in kernel.params], 1)
    return memory


@pytest.mark.parametrize("source", NARROW, ids=str)
def test_conversions_are_exact_fractions_rounded_once(source: DType) -> None:
    """Of all values of narrow types, to all types."""
    step = 1 if source.bits == 8 else 37
    codes = np.arange(0, 1 << source.bits, step, np.uint32).astype(f"u{source.bytes}")
    values = codes.view(source.numpy)
    assert values.size and len(COMPUTED) > 9
    for target in COMPUTED:
        result = np.atleast_1d(convert(values, source, target))
        for code, value in zip(codes.tolist(), result, strict=True):
            wanted = converted(with_bits(code, source), target)
            got = float(value) if target.is_float else value.item()
            assert got == wanted or (got != got and wanted != wanted), (source, code, target)


def test_rounding_is_to_even_and_once() -> None:
    generator = np.random.default_rng(0)
    wide = np.ldexp(
        generator.integers(1, 1 << 16, 600) / 2.0**15, generator.integers(-150, 128, 600)
    )
    wide *= 1 + generator.choice([0, 2.0**-40, -(2.0**-40)], 600)
    for target in (*NARROW, tf32):
        results = convert(wide, f64, target)
        assert results.size == 600
        for value, result in zip(wide.tolist(), results, strict=True):
            wanted = converted(value, target)
            assert float(result) == wanted or (math.isnan(wanted) and math.isnan(float(result)))


@pytest.mark.parametrize("type_", [t for t in COMPUTED if t.is_float], ids=str)
def test_codes_and_values_are_each_others_inverse(type_: DType) -> None:
    codes = np.random.default_rng(1).integers(0, 1 << min(type_.bits, 62), 500).tolist()
    assert len(codes) == 500
    for code in codes:
        value = with_bits(code, type_)
        assert value != value or bits_of(value, type_) == code


@pytest.mark.parametrize(
    ("target", "part"),
    in_turns(4, ["interpreter", "x86", "x86:avx2", "x86:sse42", "spirv"], range(4)),
)
def test_random_kernels_of_all_types(target: str, part: int) -> None:
    need_device(target)
    machine = None if target == "interpreter" else find_target(target)
    for number in range(6):
        seed = part + 4 * number
        assert value_runs.fault_of(seed, machine) is None, f"seed {seed}"


def test_a_wrong_conversion_is_found(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def wrong(value: object, type: DType) -> object:
        result = converted(value, type)  # type: ignore[arg-type]  # a scalar
        return 1 if type.is_integer and value != value else result  # NaN

    monkeypatch.setattr("plain_values.converted", wrong)
    assert value_runs.main(["--target", "interpreter", "--count", "20", "--here"]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("seed ")]
    assert lines and "the interpreter: " in lines[0]


def test_a_sweep_in_processes_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    assert value_runs.main(["--target", "interpreter", "--count", "2"]) == 0
    assert capsys.readouterr().out.endswith("2 kernels from seed 0 on interpreter: 0 are wrong\n")
    assert value_runs.main(["--seed", "3", "--show"]) == 0
    parse_kernel(capsys.readouterr().out)
