"""The call of the face that makes an op, as text: what ``repr`` prints of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields

from tilewright.dtypes import DType, f32, f64, s32
from tilewright.ops.attributes import Attributes
from tilewright.problems import (
    Binary,
    Direction,
    PostOp,
    Prelu,
    Record,
    Scale,
    Sum,
    Unary,
    ZeroPoint,
)

_DIRECTIONS = {
    Direction.BWD_D: "bwd_data",
    Direction.BWD_W: "bwd_weights",
}
_ARITHMETIC = ("add", "sub", "mul", "div")

# Functions of the library that are not called as their record's driver.
_FUNCTIONS = {
    "lnorm": "layer_norm",
    "bnorm": "batch_norm",
    "gnorm": "group_norm",
    "onehot": "one_hot",
    "prelu": "parametric_relu",
    "resampling": "resample",
    "deconv": "deconvolution",
    "maxpool": "max_pool",
    "sdpa": "attention",
}
# Keywords that stand for the letters of a record's flags, and what they are unless given.
_NORM = {"C": ("scale", True), "H": ("shift", True), "G": ("given", False)}
_SWITCHES = {
    "lnorm": _NORM,
    "bnorm": {**_NORM, "R": ("relu", False), "A": ("added", False)},
    "gnorm": _NORM,
    "scan": {"E": ("exclusive", False), "R": ("reversed", False)},
    "gather": {"C": ("counted", False)},
    "scatter": {"C": ("counted", False)},
    "sdpa": {"L": ("logarithms", False)},
    "rnn": {"P": ("peepholes", False), "R": ("projection", False)},
}


def called(function: str, *words: str, **keywords: object) -> str:
    """``function`` called with ``words``, and with those keywords that are not None."""
    return f"tw.{function}({', '.join((*words, *knobs(**keywords)))})"


def knobs(**keywords: object) -> list[str]:
    """What a call says of those that are not None."""
    return [f"{name}={value!r}" for name, value in keywords.items() if value is not None]


def types_text(types: Iterable[DType]) -> str | None:
    """What the knob ``dtype`` says; None for f32."""
    names = [dtype.name for dtype in types]
    if set(names) == {f32.name}:
        return None
    return names[0] if len(set(names)) == 1 else ":".join(names)


def direction_text(direction: Direction) -> str | None:
    """What the knob ``direction`` says; None for forward, with a bias or without."""
    if direction in (Direction.FWD_D, Direction.FWD_B):
        return None
    return _DIRECTIONS.get(direction) or str(direction.value)


def epilogue_text(attributes: Attributes, types: Sequence[DType], result: DType) -> str:
    """What the knob ``epilogue`` says, of an op of these types whose result is of the type
    ``result``; nothing where it is empty."""
    points = [
        (zero_point.tensor, _factor("zero_point", zero_point, s32))
        for zero_point in attributes.zero_points
    ]
    scales = [(scale.tensor, _factor("scale", scale, f32)) for scale in attributes.scales]
    elements = [text for tensor, text in (*points, *scales) if tensor != "dst"]
    if attributes.bias is not None:
        usual = f64 if f64 in types else f32
        has_type = attributes.bias is not usual
        elements.append(called("bias", dtype=attributes.bias.name if has_type else None))
    for place, post_op in enumerate(attributes.post_ops):
        elements.append(_post_op(post_op, repr(attributes.name_of(place)), result))
    elements += [text for tensor, text in (*scales, *points) if tensor == "dst"]
    return f"[{', '.join(elements)}]" if elements else ""


def _factor(function: str, factor: Scale | ZeroPoint, usual: DType) -> str:
    return called(
        function,
        *map(repr, (factor.tensor,) if factor.value is None else (factor.tensor, factor.value)),
        policy=None if factor.policy.name == "common" else factor.policy.name,
        dtype=None if factor.dtype is usual else factor.dtype.name,
        group=factor.group,
    )


def _post_op(post_op: PostOp, name: str, result: DType) -> str:
    match post_op:
        case Unary(function, alpha, 0.0, 1.0) if function == "relu":
            return called("relu", *([repr(alpha)] if alpha else []))
        case Unary():
            return called(
                "unary",
                repr(post_op.function),
                alpha=post_op.alpha or None,
                beta=post_op.beta or None,
                scale=None if post_op.scale == 1 else post_op.scale,
            )
        case Sum():
            return called(
                "sum",
                *([repr(post_op.scale)] if post_op.scale != 1 else []),
                zero_point=post_op.zero_point or None,
                dtype=post_op.dtype and post_op.dtype.name,
            )
        case Prelu():
            policy = post_op.policy.name
            return called("prelu", name, policy=None if policy == "per_oc" else policy)
        case Binary():
            short = post_op.function in _ARITHMETIC and post_op.tag == "any"
            return called(
                post_op.function if short else "binary",
                *([] if short else [repr(post_op.function)]),
                name,
                dtype=None if post_op.dtype is result else post_op.dtype.name,
                policy=None if post_op.policy.name == "per_tensor" else post_op.policy.name,
                tag=None if post_op.tag == "any" else post_op.tag,
            )


def library_call(problem: Record) -> tuple[str, list[str]] | None:
    """The function of a record, and its arguments: the problem, and settings that the problem's
    text does not have. None where no call gives the record's flags."""
    driver = problem.driver
    function = _FUNCTIONS.get(driver, driver)
    said = type(problem).parse(problem.descriptor())
    words = [repr(problem.descriptor())]
    for field in fields(problem):
        value = getattr(problem, field.name)
        if field.name == "algorithm":
            if driver == "arg":
                function = value
            elif value not in ("", getattr(said, field.name)):
                words.insert(1, _algorithm(driver, value))
        elif field.name == "flags":
            switches = _switches(driver, value)
            if switches is None:
                return None
            function = "rms_norm" if "M" in value else function
            words += switches
        elif field.name == "ss_dt" and value:
            return None
        elif value != getattr(said, field.name):
            words.append(f"{field.name}={value!r}")
    return function, words


def _algorithm(driver: str, algorithm: str) -> str:
    if driver == "sort":
        return f"descending={algorithm == 'sort_descending'}"
    keyword = {"gather": "outside=", "softmax": "algorithm="}.get(driver, "")
    return keyword + repr(algorithm.lower())


def _switches(driver: str, flags: str) -> list[str] | None:
    """What the letters of ``flags`` are as keywords."""
    switches = _SWITCHES[driver]
    if "M" in flags:
        if "I" not in flags or set(flags) & {"G", "H"}:
            return None
        switches = {"C": switches["C"]}
    words = [
        f"{name}={not usual}"
        for letter, (name, usual) in switches.items()
        if (letter in flags) != usual
    ]
    if driver.endswith("norm") and "I" not in flags:
        words.append("statistics=True")
    return words
