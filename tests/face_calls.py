"""Calls at the Python face with arguments that a user may well write: right ones, mutated.

A call is a text, which `eval` runs with `NAMES`: what reproduces a failure is the text itself.
"""

from __future__ import annotations

import inspect
import pathlib
import random
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, TypeVar

import ml_dtypes
import numpy as np

import tilewright as tw
from tilewright.ir.buffer import Layout, LayoutBlock
from tilewright.problems import ConvProblem, Direction, MatmulProblem
from tilewright.recipes import choose
from tilewright.recipes.config import parse_config
from tilewright.recipes.start import Start
from tilewright.targets.registry import find_target


@cache
def compiled(text: str) -> Any:
    """The kernel of the op that ``text`` makes, compiled once."""
    return tw.compile(eval(text, NAMES), threads=1)


def schedule(text: str, target: str, config: Any) -> Any:
    """The kernels that a config makes of an op, for a target that need not be here."""
    op = eval(text, NAMES).resolved()
    chosen = parse_config(config) if isinstance(config, str) else config
    return choose.schedule(Start.of(op), find_target(target).machine, chosen)


@tw.kernel
def launched(n: tw.s32, x: tw.array("T", 1), y: tw.Array[tw.f32, 2]) -> None:
    """What is launched with all sorts of things, and called, and indexed."""
    i = tw.global_id(0)
    if i < n:
        y[i, 0] = tw.f32(x[i])


NAMES: dict[str, Any] = {
    "tw": tw,
    "np": np,
    "ml": ml_dtypes,
    "inf": float("inf"),
    "nan": float("nan"),
    "LayoutBlock": LayoutBlock,
    "Layout": Layout,
    "Direction": Direction,
    "parse_config": parse_config,
    "ConvProblem": ConvProblem,
    "MatmulProblem": MatmulProblem,
    "compiled": compiled,
    "schedule": schedule,
    "TypeVar": TypeVar,
    "pathlib": pathlib,
    "launched": launched,
}


def words(text: str) -> tuple[str, ...]:
    """The words of a text."""
    return tuple(text.split(" "))


# Values that fit nowhere, or that fit somewhere else.
ODD = words(
    "None True False 0 1 -1 2 3 7 16 64 1.5 -0.0 0.1 inf -inf nan 1e300 2**31 2**62 2**63 2**64 "
    "2**70 10**400 -2**63 '' 'x' 'any' 'nhwc' 'f32' 'u8' 'relu' 'src' '1' 'inf' '\\x00' 'ä' [] () "
    "{} set() [1] [1,2,3,4] (1,2) (1.5,2) (1,2,3,4) (10**20,1) (-1,1) [[1]] [None] {'src':1} "
    "b'f32' object() object int len ... np.float32 np.float32(2) np.int64(3) np.bool_(True) "
    "np.zeros(3) np.zeros((0,2)) np.array('f32') np.dtype('f4,i4') np.dtype('>f4') ml.bfloat16 1j "
    "range(3) iter([1]) lambda:0 tw tw.relu tw.relu() tw.bias() [tw.bias()] Direction.BWD_D "
    "'x'*5000 '('*9999 '1x'*3000+'1' '9'*5000 Layout(()) "
    "Layout((LayoutBlock(0,4,1),)) Layout((LayoutBlock(9,4,1),)) "
    "Layout((LayoutBlock(0,-4,2**70),),1.5) slice(2) frozenset('ab') Exception() "
    "type('E',(),{'__len__':len})() type('S',(str,),{})('f32') [[]] [()] (1,[]) ([],) "
    "(None,'n',[]) [1,None] [{}] [1.5] ['n',4] np.array([1,2]) np.zeros(0,int) bytearray() "
    "memoryview(b'') frozenset() TypeVar('T') TypeVar('x') pathlib.Path('nothing') (10**5000,1)"
)

TYPES = words(
    "'f32' 'f64' 'tf32' 'f16' 'bf16' 'f8_e4m3' 'f8_e5m2' 's64' 's32' 's16' 's8' 'u8' 's4' 'u4' "
    "'bool' np.float16 np.int8 'float32' np.dtype('int32') 'u8:s8:s32' 'f32:f32' 'bf16:f32' "
    "['u8','s8','f32'] ('f32','bf16') {'src':'u8','weights':'s8','dst':'s32'}"
)
TAGS = words(
    "'any' 'nhwc' 'nchw' 'axb' 'abx' 'ab' 'ba' 'acb' 'nChw16c' 'aBcd8b' 'oihw' 'OIhw4i16o4i' 'abc' "
    "'N(C/4)HW4' (1,2) [64,8] (36,36,6,1) [288,1,48,8] (0,0) (2**40,1) (np.int64(8),1) 'Ab16a'"
)
ELEMENTS = words("bias binary add mul unary relu prelu sum scale scale zero_point odd")
POLICIES = words("'common' 'per_oc' 'per_tensor' 'per_ocic' 'per_dim_0' 'per_dim_1' '3' '0'")
TENSORS = words("'src' 'weights' 'dst' 'src0' 'src1' 'wei' 'bias'")
FUNCTIONS = words(
    "'relu' 'clip' 'elu' 'gelu_erf' 'pow' 'linear' 'swish' 'soft_relu' 'log' 'add' 'max' 'div' "
    "'ge' 'prelu' 'sum'"
)
NUMBERS = words("0 1 2 -1 0.5 1.5 -3 1e-30 1e30 1e39 inf -inf nan 10**400 np.float32(0.1) 255 -129")
NAMED = words(
    "'residual' 'x' 'out' 'src' 'in' 'for' 'self' 'acc' 'a\\x20b' 'ä' 'stream' 'post_op_0'"
)
DIRECTIONS = words(
    "'fwd' 'bwd_data' 'bwd_weights' 'FWD_B' 'BWD_WB' 'FWD_I' Direction.BWD_W 'sideways'"
)
CONVS = words(
    "'mb1ic4ih5oc6kh3ph1' 'g4ic4ih6oc4kh3' 'mb1ic3iw9oc5kw3pw1sw2' 'ic2id3ih3oc2kd2kh2' "
    "'mb1ic8ih6oc8kh3ph1dh1' ConvProblem.parse('ic4ih5oc6kh3') 'g0ic1ih1oc1kh1' 'ic1ih1oc1kh99'"
)
MATMULS = words(
    "'4x5:5x6' '2x3x4:1x4x5' '1x1:1x1' '4x5:6x7' MatmulProblem.parse('3x4:4x5') '2x2x2x2:2x2x2x2'"
)
POOLS = words("'mb1ic3ih6kh2' 'ic3iw8kw3sw2pw1' 'ic2id4ih4kd2kh2ph1'")
REDUCES = words("'2x3x4:2x1x4' '5x7:1x1' '9:1' '4x5:4x5' '2x3:2x2'")
SHAPES = words(
    "'8x16' '2x3x4:2x1x4' (4,5) '4' (3,) 'x16x16:1x1' '2x3x4x5' '16' (0,3) (2.5,3) [4,5]"
)
ALGORITHMS = words("'max' 'avg_np' 'avg_p' 'sum' 'mean' 'mul' 'min'")
TARGETS = words(
    "'x86' 'x86:avx2' 'x86:generic' 'spirv' 'spirv:gpu' 'nvidia:sm_80' 'nvidia' 'z80' 'x86:'"
)
CONSTANTS = words("'weights' ('weights',) ['weights','src'] ('dst',) 'w'")
SIZES = words("1 2 3 5 8 0 -1 2**40 2**64 1.0 '3' None True 10**5000")
KEYS = words("g mb ic ih iw id oc oh kh kw sh ph dh pw sw name x")

Pool = Sequence[str]
# Functions of the library, and a problem for each.
LIBRARY = {
    "softmax": "'3x5'",
    "layer_norm": "'3x4x5'",
    "rms_norm": "'3x5'",
    "batch_norm": "'mb2ic3ih4'",
    "group_norm": "'g2mb2ic4ih3'",
    "argmax": "'3x5'",
    "argmin": "(3, 5)",
    "moments": "'3x5'",
    "logsumexp": "'3x5'",
    "scan": "'3x5'",
    "concat": "'2x3x4:2x5x4'",
    "slice": "'8x9:1x8:3x4:2x-2'",
    "tile": "'4x5:2x3'",
    "transpose": "'2x3x4:2x0x1'",
    "pixels": "'2x3x4x6:2'",
    "shuffle": "'2x12x5'",
    "pad": "'4x5:1x-1:0x2'",
    "zeropad": "'2x13x5'",
    "gather": "'10x4:6'",
    "scatter": "'10x4:6'",
    "one_hot": "'3x4:5'",
    "sort": "'3x6'",
    "topk": "'3x6:2'",
    "resample": "'mb2ic3ih4oh8'",
    "parametric_relu": "'2x3x4:1x3x1'",
    "deconvolution": "'mb1ic4oc2ih3kh3sh2ph1'",
    "max_pool": "'mb1ic2ih6kh2'",
    "attention": "'1x2x3x4:1x1x5x4'",
    "rnn": "'l1t2mb2sic3slc4dhc3'",
}
LIBRARY_ALGORITHMS = words(
    "'softmax' 'logsoftmax' 'cumsum' 'cummax' 'pixel_shuffle' 'space_to_depth' 'constant' 'edge' "
    "'reflect' 'add' 'max' 'nearest' 'linear' 'cubic' 'best'"
)
LISTS = words("(1,2) [0,1] (2,0,1) (0,-1) (1,) (2**40,1) (2,3) ()")
AXES = words("0 1 -1 2 -2 7 -9 2**40")
FUNCTIONS_OF_OPS = words("matmul convolution pool reduce elementwise reorder relu bias")
# Keywords that one may think of.
MISNAMED = words("axes dim shape problem dtyp alg kernel_size stride x name")
RANKS = words("1 2 8 9 0 -1 2**70 10**9 ('n',16) (None,4) ['n','m'] ('n',) (0,)")
READERS = words(
    "parse_kernel parse_schedule from_stablehlo from_onnx from_torch register_recipe "
    "unregister_recipe matrix_combinations compile kernel function"
)
PROGRAMS = (
    "'kernel k():\\n  pass\\n'",
    "'func.func @main(%a: tensor<2xf32>) -> tensor<2xf32> {\\n  return %a : tensor<2xf32>\\n}'",
    "'func.func @main(%a: tensor<?xf32>) -> tensor<?xf32> {\\n  return %a : tensor<?xf32>\\n}'",
    "'nothing.mlir'",
    "'schedule.set_kind(4, LoopKind.UNROLLED)'",
    "'x86'",
)
# Pools by what an argument is said to be.
BY_ANNOTATION = {
    "int": AXES,
    "int | None": SIZES,
    "float": NUMBERS,
    "float | None": NUMBERS,
    "bool": words("True False 1"),
    "str": words("'clip' 'zero' 'wrap'"),
    "str | None": words("None 'left2right' 'concat' 'relu' 'tanh' 'logistic'"),
    "Sequence[int] | None": LISTS,
    "str | Direction": DIRECTIONS,
    "Types": TYPES,
    "LayoutSpec | None": TAGS,
}


class Calls:
    """Draws calls from a generator."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def call(self) -> str:
        """The text of a call of some kind."""
        makers: tuple[tuple[float, Callable[[], str]], ...] = (
            (0.25, self.convolution),
            (0.15, self.matmul),
            (0.1, self.pool),
            (0.08, self.reduce),
            (0.12, self.elementwise),
            (0.05, self.reorder),
            (0.1, self.library),
            (0.11, self.run),
            (0.03, self.config),
            (0.03, self.steps),
            (0.004, self.step),
            (0.006, self.compile),
            (0.004, self.scheduled),
            (0.05, self.misfit),
            (0.04, self.annotation),
            (0.04, self.reading),
            (0.01, self.launch),
        )
        weights = [weight for weight, _ in makers]
        return self.rng.choices([maker for _, maker in makers], weights)[0]()

    # Arguments.

    def of(self, pool: Pool, odd: float = 0.12) -> str:
        """One of ``pool``, mutated at times, or another thing altogether."""
        rng = self.rng
        if rng.random() < odd:
            return rng.choice(ODD)
        text = rng.choice(pool)
        if rng.random() < 0.05 and text[0] == text[-1] == "'" and len(text) > 2:
            return repr(mutated(rng, text[1:-1]))
        return text

    def element(self) -> str:
        """An element of an epilogue."""
        of = self.of
        kind = self.rng.choice(ELEMENTS)
        match kind:
            case "bias":
                return f"tw.bias({self.options(dtype=TYPES)})"
            case "binary":
                options = self.options(dtype=TYPES, policy=POLICIES, tag=TAGS)
                return f"tw.binary({of(FUNCTIONS)}, {of(NAMED)}, {options})"
            case "add" | "mul":
                return f"tw.{kind}({of(NAMED)}, {self.options(dtype=TYPES, policy=POLICIES)})"
            case "unary":
                options = self.options(alpha=NUMBERS, beta=NUMBERS, scale=NUMBERS)
                return f"tw.unary({of(FUNCTIONS)}, {options})"
            case "relu":
                return f"tw.relu({self.options(alpha=NUMBERS)})"
            case "prelu":
                return f"tw.prelu({of(NAMED)}, {self.options(policy=POLICIES)})"
            case "sum":
                return f"tw.sum({self.options(scale=NUMBERS, zero_point=NUMBERS, dtype=TYPES)})"
            case "scale" | "zero_point":
                options = self.options(value=NUMBERS, policy=POLICIES, dtype=TYPES, group=NUMBERS)
                return f"tw.{kind}({of(TENSORS)}, {options})"
        return self.rng.choice(ODD)

    def epilogue(self) -> str:
        rng = self.rng
        if rng.random() < 0.04:
            return rng.choice(ODD)
        count = rng.choice((1, 1, 1, 2, 2, 3))
        return "[" + ", ".join(self.element() for _ in range(count)) + "]"

    def options(self, **pools: Pool) -> str:
        """Keyword arguments, each there at times."""
        rng = self.rng
        values = []
        for name, pool in pools.items():
            if rng.random() < 0.35:
                values.append(f"{name}={self.of(pool) if pool else self.epilogue()}")
        return ", ".join(values)

    def sizes(self) -> str:
        names = self.rng.sample(KEYS, self.rng.randint(1, 6))
        sizes = {"ic": "4", "ih": "5", "oc": "6", "kh": "3"} if self.rng.random() < 0.8 else {}
        sizes |= {name: self.rng.choice((*SIZES, *ODD)) for name in names[:2]}
        return ", ".join(f"{name}={size}" for name, size in sizes.items())

    # Calls.

    def convolution(self) -> str:
        problem = self.sizes() if self.rng.random() < 0.15 else self.of(CONVS)
        options = self.options(
            direction=DIRECTIONS, dtype=TYPES, src=TAGS, weights=TAGS, dst=TAGS,
            epilogue=(), accumulator=TYPES, fpmath=TYPES,
        )  # fmt: skip
        return f"tw.convolution({problem}, {options})"

    def matmul(self) -> str:
        options = self.options(
            dtype=TYPES, src=TAGS, weights=TAGS, dst=TAGS,
            epilogue=(), accumulator=TYPES, fpmath=TYPES,
        )  # fmt: skip
        return f"tw.matmul({self.of(MATMULS)}, {options})"

    def pool(self) -> str:
        problem = self.sizes() if self.rng.random() < 0.15 else self.of(POOLS)
        options = self.options(
            algorithm=ALGORITHMS, direction=DIRECTIONS, dtype=TYPES, src=TAGS, dst=TAGS, epilogue=()
        )
        return f"tw.pool({problem}, {options})"

    def reduce(self) -> str:
        options = self.options(algorithm=ALGORITHMS, dtype=TYPES, src=TAGS, dst=TAGS, epilogue=())
        return f"tw.reduce({self.of(REDUCES)}, {options})"

    def elementwise(self) -> str:
        options = self.options(
            alpha=NUMBERS, beta=NUMBERS, dtype=TYPES, src=TAGS, src1=TAGS, dst=TAGS, epilogue=()
        )
        return f"tw.elementwise({self.of(SHAPES)}, {self.of(FUNCTIONS)}, {options})"

    def reorder(self) -> str:
        options = self.options(dtype=TYPES, src=TAGS, dst=TAGS, epilogue=())
        return f"tw.reorder({self.of(SHAPES)}, {options})"

    def library(self) -> str:
        """An op of the library, with the arguments that its function has."""
        function = self.rng.choice(list(LIBRARY))
        parameters = inspect.signature(getattr(tw, function)).parameters
        pools = {
            name: LIBRARY_ALGORITHMS if name == "algorithm" else BY_ANNOTATION[parameter.annotation]
            for name, parameter in parameters.items()
            if parameter.kind is parameter.KEYWORD_ONLY
        }
        values = [
            self.of(
                (LIBRARY[function], *SHAPES) if self.rng.random() < 0.3 else (LIBRARY[function],)
            )
        ]
        if "algorithm" in parameters and "algorithm" not in pools and self.rng.random() < 0.3:
            values.append(self.of(LIBRARY_ALGORITHMS))
        return f"tw.{function}({', '.join(values)}, {self.options(**pools)})"

    def misfit(self) -> str:
        """A call with shapes as lists, with more arguments than there are, or other names."""
        rng = self.rng
        name = rng.choice((*LIBRARY, *FUNCTIONS_OF_OPS, "embedding"))
        words = [self.of((*LISTS, *SHAPES, "(8, 8)", "[2,3]")) for _ in range(rng.randint(0, 3))]
        for keyword in rng.sample(MISNAMED, rng.choice((0, 0, 1, 2))):
            words.append(f"{keyword}={self.of((*LISTS, *AXES))}")
        return f"tw.{name}({', '.join(words)})"

    def annotation(self) -> str:
        """What a parameter of a kernel is annotated with."""
        first, second = self.of((*TYPES, "'T'", "TypeVar('T')")), self.of((*RANKS, *LISTS))
        match self.rng.randrange(5):
            case 0:
                return f"tw.Array[{first}, {second}]"
            case 1:
                return f"tw.Array[{second}]"
            case 2:
                return f"tw.scalar({first})"
            case 3:
                return f"tw.array({first}, rank={second})"
        return f"tw.array({first}, {second})"

    def reading(self) -> str:
        """What reads a text or a file, or looks for a name, given something else."""
        name, values = self.rng.choice(READERS), self.of(PROGRAMS, 0.7)
        more = self.options(file=("'a.mlir'", "None"), constants=("{}", "None"))
        if name == "from_stablehlo":
            more = self.options(function=NAMED, arguments=("{'a': (2,)}", "{'a': 3}"), file=NAMED)
        elif name != "parse_kernel":
            more = ""
        return f"tw.{name}({values}, {more})"

    def launch(self) -> str:
        """A launch of a kernel in Python, in right forms and in those of others."""
        ranges = self.of(("8", "(8,)", "(4, 2)", "[8]"))
        arrays = [self.of((f"{_F32.format(text)}",)) for text in ("8,", "8, 2")]
        arguments = ", ".join([self.of(("8", "4")), *arrays])
        local = self.options(local=("4", "(8,)", "None"), offset=("0", "(1,)"))
        match self.rng.randrange(4):
            case 0:
                return f"launched[{ranges}]({arguments})"
            case 1:
                return f"launched({arguments})"
            case 2:
                return f"launched.over({self.of(('1', '2', 'None'))}, T={self.of(TYPES[:8])})"
        return f"launched.launch({ranges}, {arguments}, {local})"

    def run(self) -> str:
        """A call of a kernel that is there: with arrays, or with what is none."""
        rng = self.rng
        op, arrays = rng.choice(list(KERNELS.items()))
        values = {name: self.of((array,), 0.15) for name, array in arrays.items()}
        for name in list(values):
            if rng.random() < 0.1:
                del values[name]
        ordered = list(values.values())[: rng.randint(0, 2)] if rng.random() < 0.3 else []
        words = ordered + [f"{name}={text}" for name, text in list(values.items())[len(ordered) :]]
        if rng.random() < 0.15:
            words.append(f"{rng.choice(('out', 'stream', 'extra', 'dst'))}={rng.choice(ODD)}")
        kernel = f"compiled({op!r})"
        match rng.random():
            case chance if chance < 0.7:
                return f"{kernel}({', '.join(dict.fromkeys(words))})" if _once(words) else kernel
            case chance if chance < 0.8:
                return f"{kernel}.bind({', '.join(words)})()" if _once(words) else kernel
            case chance if chance < 0.9:
                return f"{kernel}.pack({self.of(TENSORS)}, {self.of(list(arrays.values()))})"
        return f"{kernel}.source({self.of(('1', repr('asm x')))})"

    def config(self) -> str:
        return f"parse_config({self.config_text()})"

    def config_text(self, kinds: tuple[str, ...] = ()) -> str:
        rng = self.rng
        text = rng.choice([c for c in CONFIGS if c.split("(")[0] in kinds] if kinds else CONFIGS)
        if not kinds and rng.random() < 0.05:
            return rng.choice((*ODD, *DEEP))
        return repr(mutated(rng, text, rng.randint(0, 3)))

    def steps(self) -> str:
        """Reads the text of a schedule."""
        text = mutated(self.rng, self.rng.choice(STEPS), self.rng.randint(0, 3))
        values = self.rng.choice((*ODD, *DEEP)) if self.rng.random() < 0.1 else repr(text)
        return f"tw.parse_schedule({values})"

    def step(self) -> str:
        """Takes steps of a schedule, from a text or by themselves."""
        op, target = self.of(("tw.matmul('4x5:5x6')",), 0.05), self.of(TARGETS[:2], 0.05)
        names, sizes = self.of(NAMED_PARTS), self.of(("{'m': 2}", "{'n': 4, 'm': 1}", "{'k': 0}"))
        match self.rng.randrange(5):
            case 0:
                text = mutated(self.rng, self.rng.choice(STEPS), self.rng.randint(0, 2))
                return f"tw.Schedule.replay({op}, {text!r}, {target}, strict={self.of(('True',))})"
            case 1:
                text = mutated(self.rng, self.rng.choice(STEPS), self.rng.randint(0, 2))
                return f"tw.compile({op}, schedule={self.of((repr(text), repr(text)))})"
            case 2:
                return f"tw.Schedule({op}, {target}).tile({names}, {sizes})"
            case 3:
                lanes, order = self.of(SIZES), self.of(("['k']", "['m', 'n']", "('n',)"))
                options = f"vector={names}, lanes={lanes}, order={order}"
                return f"tw.Schedule({op}, {target}).lower_computes({options})"
        options = f"layout={self.of(LAYOUTS)}, space={self.of(('tw.Space.GLOBAL',))}"
        return f"tw.Schedule({op}, {target}).stage('main', {names}, shape='dims', {options})"

    def compile(self) -> str:
        """Compiles an op, which takes a while: with what is refused, mostly."""
        rng = self.rng
        op = self.of([*KERNELS, "tw.matmul('4x5:5x6')"])
        options = [f"threads={self.of(('1', '2'))}"]
        if rng.random() < 0.6:
            options.append(f"target={self.of(TARGETS[:3], 0.4)}")
        if rng.random() < 0.6:
            cpu = ("ContractionConfig", "ElementwiseConfig", "FactoredConfig")
            options.append(f"config={self.config_text(cpu)}")
        elif rng.random() < 0.3:
            options.append(f"config={rng.choice(ODD)}")
        elif rng.random() < 0.5:
            options.append(f"config={self.of(CHANGES)}")
        if rng.random() < 0.2:
            options.append(f"constant={self.of(CONSTANTS, 0.5)}")
        return f"tw.compile({op}, {', '.join(options)})"

    def scheduled(self) -> str:
        target = self.rng.choice(TARGETS[:6])
        gpu = "spirv" in target or "nvidia" in target
        cpu = ("ContractionConfig", "FactoredConfig")
        kinds = ("WorkgroupConfig", "StencilConfig") if gpu else cpu
        op = self.rng.choice(list(KERNELS)[:2])
        return f"schedule({op!r}, {target}, {self.config_text(kinds)})"


def _once(words: list[str]) -> bool:
    """Whether no keyword is given twice, which Python would refuse before us."""
    names = [word.split("=")[0] for word in words if "=" in word.split("(")[0]]
    return len(set(names)) == len(names)


# Changes of a default config.
CHANGES = (
    "\"tile={'oc': 8}, step={'ic': 2}\"",
    "{'tile': {'n': 8}}",
    "{'order': ('m', 'n'), 'lanes': 'n'}",
    "{'vector': 4}",
    "{'tile': {3: 4}}",
    "{}",
    "{'fuse': [('oh', 'ow', 'p')]}",
    "\"staging={'stages': 1, 'fill': 'copy'}\"",
    "{'tile': {'group': {'n': 8}}, 'reduction': {'step': 2}}",
)
_F32 = "np.ones(({}), np.float32)"
# Ops that are compiled, and what each is called with.
KERNELS = {
    "tw.convolution('mb1ic4ih5oc6kh3ph1', src='nchw', weights='oihw', dst='nchw')": {
        "src": _F32.format("1,4,5,5"),
        "weights": _F32.format("6,4,3,3"),
    },
    "tw.matmul('4x5:5x6', weights='ab', epilogue=[tw.bias(), tw.add('x'), tw.relu()])": {
        "src": _F32.format("4,5"),
        "weights": _F32.format("5,6"),
        "bias": _F32.format("6,"),
        "x": _F32.format("4,6"),
        "dst": _F32.format("4,6"),
    },
    "tw.matmul('4x5:5x16', dtype='u8:s8:s32', epilogue=[tw.scale('src'), tw.sum()])": {
        "src": "np.ones((4,5), np.uint8)",
        "weights": "np.ones((5,16), np.int8)",
        "src_scale": _F32.format("1,"),
        "dst": "np.ones((4,16), np.int32)",
    },
    "tw.matmul('4x16:16x8', dtype='f32:u4:f32', "
    "epilogue=[tw.scale('weights', policy='per_ocic', group=8)])": {
        "src": _F32.format("4,16"),
        "weights": "np.ones((8,8), np.uint8)",
        "weights_scale": _F32.format("2,8"),
    },
    "tw.reduce('4x5:4x1')": {"src": _F32.format("4,5")},
    "tw.reorder('4x5', dtype='bf16:f32', dst='aB4b')": {"src": "np.ones((4,5), ml.bfloat16)"},
}
CONFIGS = (
    "ContractionConfig(instruction='fma', lanes='oc', tile={'oh': 2, 'ow': 3, 'oc': 16}, "
    "order=('mb', 'oc', 'oh', 'ow'), step={'ic': 4}, reduce_order=('ic', 'kh', 'kw'), k='', "
    "fuse=(), split=(), pack_a=False, pack_b=True)",
    "ContractionConfig(instruction='fma', lanes='n', tile={'m': 2, 'n': 16}, order=('n', 'm'), "
    "step={'k': 1}, reduce_order=('k',), fuse=(('m', 'n', 'mn'),), split=(('k', 2),), pack_a=True)",
    "FactoredConfig(lanes='n', tile={'m': 2, 'n': 8}, columns=16, step=2, pack=True)",
    "ElementwiseConfig(vector=8, unroll=2)",
    "StencilConfig(lanes='ow', vector=1, item={'oh': 2})",
    "WorkgroupConfig(product=Product(instruction='', lanes='oc'), "
    "tile=Tile(group={'oc': 8, 'mb_oh_ow': 8}, item={'oc': 2, 'mb_oh_ow': 2}), "
    "reduction=Reduction(step={'ic': 2}, loops=('ic', 'kh', 'kw')), "
    "staging=Staging(fill='registers', stages=2), order=Order(loops=('mb_oh_ow', 'oc')))",
    "WorkgroupConfig(product=Product(instruction='', lanes='n'), "
    "tile=Tile(group={'m': 4, 'n': 8}, item={'m': 1, 'n': 2}), "
    "reduction=Reduction(step={'k': 2}, loops=('k',), slices=(('k', 2),)), "
    "order=Order(loops=('m', 'n'), raster=2), storing=Storing(tile={'m': 1}, padding=1))",
)
STEPS = (
    'schedule.tile("main", {"m": 2, "n": 4})\nschedule.lower_computes(vector="n", lanes=4)\n',
    'm_o, n_o = schedule.tile("main", {"m": 2, "n": 2})\n'
    "schedule.set_kind([m_o, n_o], LoopKind.PARALLEL)\n"
    "schedule.lower_computes()\n",
    'schedule.stage("main", "b", shape="dims", space=Space.GLOBAL, layout=["n", ("k", 2)], '
    'name="p")\npack = schedule.hoist_pack("p")\npack.lower_computes()\n'
    "schedule.lower_computes()\n",
    "# Tilewright schedule, format 2; machine x86-avx2; kernel k 0123456789abcdef\n"
    'schedule.set_kind("k", LoopKind.UNROLLED)\n',
)
NAMED_PARTS = words("'main' 'init' 'm' 'n' 'k' 'a' 'b' 'acc' ['main'] ['m','n']")
LAYOUTS = words("['n','k'] ['n',('k',2)] [('n',None),('k',3)] [('k',0)] [('z',1)] ()")
# Texts that make a parser recurse.
DEEP = ("'['*3000", "'ElementwiseConfig(vector='+'['*100+']'*100+')'", "'-'*20000+'1'", "'f('*5000")

_WORDS = words(
    "0 1 -1 2 3 64 100000 4611686018427387904 9223372036854775807 9223372036854775808 1.5 1e400 "
    "inf True None '' 'x' () {} [] ( ) , : = x _ not lambda"
)


def mutated(rng: random.Random, text: str, times: int = 1) -> str:
    """``text`` with some characters, numbers or words changed, gone or doubled."""
    for _ in range(times):
        place = rng.randrange(len(text) + 1)
        end = min(len(text), place + rng.choice((0, 1, 1, 2, 5)))
        match rng.randrange(5):
            case 0:
                text = text[:place] + text[end:]
            case 1:
                text = text[:place] + rng.choice(_WORDS) + text[end:]
            case 2:
                text = text[:end] + text[place:]
            case 3:
                digits = [i for i, char in enumerate(text) if char.isdigit()]
                if digits:
                    at = rng.choice(digits)
                    text = text[:at] + rng.choice(_WORDS[:12]) + text[at + 1 :]
            case _:
                text = text[:place] + chr(rng.randrange(32, 127)) + text[place:]
    return text
