"""Conversions to narrow floats on NVIDIA GPUs: the instructions, and what they are said to do.

No GPU is at hand: the PTX of straight-line kernels is interpreted here, ``cvt`` as the manual has
it ("rn": to nearest even, subnormals kept, NaN stays NaN; of a pair, the first operand becomes the
upper half), and has to give what the interpreter gives.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from assembly import assembled, ptx
from sweeps import in_turns
from test_nvidia_configs import scheduled
from tilewright.conversions import convert
from tilewright.dtypes import DType, bf16, dtype, f16, f32
from tilewright.machines import nvidia
from tilewright.targets.nvidia.assemble import to_ptx
from tilewright.targets.nvidia.lower import lower_launches

# numpy warns about the overflows and signaling NaNs that are tested here.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

ROUND = """kernel k(in x: f32[{count}], out y: {to}[{count}]):
  grid for g in 1:
    vector for i in {count}:
      y[i] = {to}(x[i])
"""
NEW, OLD = ("sm_80", "sm_89", "sm_90a", "sm_100a"), ("sm_70", "sm_75")


def _values() -> Any:
    """Zeros, subnormals, ties, the ends of both formats, infinities and NaNs; random bits."""
    ties = np.arange(0x7F7F - 40, 0x7F80, dtype=np.uint32) << 16 | 0x8000
    small = np.arange(0, 40, dtype=np.uint32) << 16 | 0x8000
    halves = np.float32([2.0**-25, 2.0**-24, 1.5 * 2.0**-24, 65504, 65519.996, 65520, 65536])
    special = np.float32([0.0, 1.0, 3.4e38, 3.4028235e38, np.inf, np.nan, 1e-45, 1.17549435e-38])
    near = np.concatenate([ties, small, halves.view(np.uint32), special.view(np.uint32)])
    codes = np.concatenate([near, near + 1, near - 1, [0x7F800001, 0x7FBFFFFF, 0x7FC00000]])
    random = np.random.default_rng(3).integers(0, 2**32, 2048, np.uint32)
    codes = np.concatenate([codes, codes | 0x80000000, random]).astype(np.uint32)
    return np.resize(codes, -(-len(codes) // 8) * 8).view(np.float32)


class Lines:
    """What one work-item does to memory, by the lines of PTX."""

    def __init__(self, text: str, to: DType) -> None:
        body = text[text.rindex(".minnctapersm") :]
        self.lines = re.findall(r"^\t([a-z]+[\w.]*) \t(.*);$", body, re.MULTILINE)
        self.to = to

    def run(self, x: bytes) -> bytes:
        """The results, behind one another, of the arguments."""
        self.memory = {"0": x, "1": bytearray(len(x) * self.to.bytes // 4)}
        self.values: dict[str, Any] = {}
        for name, operands in self.lines:
            getattr(self, "_" + name.split(".")[0])(name, re.findall(r"[%\w.+-]+", operands))
        return bytes(self.memory["1"])

    def _ld(self, name: str, operands: list[str]) -> None:
        if ".param" in name:
            self.values[operands[0]] = operands[1][-1]
            return
        buffer, start = self._place(operands[-1])
        for i, operand in enumerate(operands[:-1]):
            part = self.memory[buffer][start + 4 * i : start + 4 * i + 4]
            self.values[operand] = int.from_bytes(part, "little")

    def _st(self, name: str, operands: list[str]) -> None:
        buffer, start = self._place(operands[0])
        size = int(name[-2:]) // 8
        for operand in operands[1:]:
            code = int(self.values[operand]) % (1 << 8 * size)
            self.memory[buffer][start : start + size] = code.to_bytes(size, "little")
            start += size

    def _place(self, operand: str) -> tuple[str, int]:
        register, _, offset = operand.partition("+")
        return self.values[register], int(offset or 0)

    def _cvt(self, name: str, operands: list[str]) -> None:
        target, *sources = operands
        values = [self.values[source] for source in sources]
        if name == "cvt.u64.u32":
            self.values[target] = values[0]
            return
        # No other form: none that flushes subnormals, or ends at the greatest number.
        pair = name == f"cvt.rn.{self.to}x2.f32"
        assert pair or name == f"cvt.rn.{self.to}.f32"
        codes = [self._rounded(value) for value in values]
        self.values[target] = codes[0] << 16 | codes[1] if pair else codes[0]

    def _rounded(self, code: int) -> int:
        value = np.array([code], np.uint32).view(np.float32)
        return int(np.asarray(convert(value, f32, self.to)).view(np.uint16)[0])

    def _mov(self, name: str, operands: list[str]) -> None:
        assert name == "mov.b32"
        low, high = (self.values.get(operand, 0) for operand in operands[1:])
        self.values[operands[0]] = low | high << 16

    def _ret(self, name: str, operands: list[str]) -> None:
        del name, operands


@pytest.mark.parametrize("count", [1, 2, 3, 8])
@pytest.mark.parametrize("to", [bf16, f16], ids=str)
@pytest.mark.parametrize("level", NEW)
def test_rounding_is_the_interpreters(level: str, to: DType, count: int) -> None:
    lines = Lines(ptx(ROUND.format(to=to, count=count), level), to)
    assert [name for name, _ in lines.lines].count(f"cvt.rn.{to}x2.f32") == count // 2
    values = _values()[: len(_values()) // count * count]
    values = values[: 40 * count] if level != "sm_80" else values
    got = b"".join(lines.run(part.tobytes()) for part in values.reshape(-1, count))
    assert got == np.asarray(convert(values, f32, to)).tobytes()


@pytest.mark.parametrize("level", OLD)
def test_older_ones_round_by_integers(level: str) -> None:
    text = ptx(ROUND.format(to="bf16", count=8), level)
    assert "cvt.rn.bf16" not in text and text.count("setp.nan.f32") == 8
    assembled(text, level)


@pytest.mark.parametrize("level", [*NEW, *OLD])
def test_a_feature_says_who_has_it(level: str) -> None:
    assert ("cvt_bf16" in nvidia.machine(level).features) == (level in NEW)


@pytest.mark.parametrize(
    ("words", "level"),
    in_turns(
        2,
        [
            "matmul bf16:bf16:bf16 512x512:512x512",
            "matmul f16:f16:f16 512x512:512x512",
            "matmul bf16:bf16:bf16 4096x4096:4096x4096",
            "conv bf16:bf16:bf16 FWD_B mb8ic64ih28oc256kh1",
        ],
        ["sm_80", "sm_90a"],
    ),
)
def test_neighbours_of_a_fragment_are_rounded_in_pairs(words: str, level: str) -> None:
    """All of them, by as many instructions as there are registers to store."""
    to = dtype(words.split()[1].split(":")[2])
    kernel = scheduled(words, level)[1][0]
    text = to_ptx(lower_launches(kernel, nvidia.machine(level)).text, level)
    assert text.count(f"cvt.rn.{to}x2.f32") >= 4
    assert f"cvt.rn.{to}.f32" not in text and "setp.nan" not in text
    assert not re.search(r"st\.global\.(v2\.|v4\.)?b16", text)
    assembled(text, level)
