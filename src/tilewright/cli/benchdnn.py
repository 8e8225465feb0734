"""benchdnn's options, as its files have them, in ours.

Some of them say what is computed, in other words than ours; some say how benchdnn runs, which
changes no result; some ask for what is not available here. What is none of these is unknown.
"""

from __future__ import annotations

import itertools
import re
import string
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from tilewright.cli.benchdnn_layers import attention_words, recurrent_words
from tilewright.errors import UnsupportedError
from tilewright.problems import (
    DRIVERS,
    OTHER_DRIVER_NAMES,
    UNARY_FUNCTIONS,
    MatmulProblem,
    PoolProblem,
    Problem,
    ReduceProblem,
    ReorderProblem,
    plain_name,
)
from tilewright.problems.library import DeconvProblem, MaxPoolProblem
from tilewright.problems.reduce import NORMS
from tilewright.testing.case import TAG_KNOBS

# Why options are left, which change no result.
IGNORED: Mapping[str, str] = {
    name: why
    for why, names in {
        "a problem has one implementation": "impl skip-impl global-impl global-skip-impl",
        "all problems of a file run": "match",
        "results have memory of their own": "inplace",
        "memory between the steps is no argument": "attr-scratchpad",
        "any tag that has a meaning is taken": "allow-enum-tags-only",
        "kernels are compiled for their sizes": "runtime_dims_masks runtime-dim-mask",
        "sums are as exact as the strictest mode": "attr-acc-mode",
        "results are the same each time": "attr-deterministic",
        "statistics lie in the order of their dims": "stat_tag",
        "tensors lie without gaps": "trivial-strides",
        "sums of src are computed where they are needed": "attr-precomputed-reductions",
        "cells are computed with their functions, whose errors are bounded": "skip-nonlinear",
        "it says how benchdnn itself runs": (
            "mode mode-modifier engine stream-kind memory-kind mem-check canonical perf-template "
            "repeats-per-prb fix-times-per-prb max-ms-per-prb num-streams cold-cache fast-ref "
            "check-ref-impl cpu-isa-hints ctx-init ctx-exe start summary v verbose cross-engine "
            "check-alg debug-check-ws bitwise"
        ),
    }.items()
    for name in names.split()
}
# What is not available, with the values that ask for nothing.
_LACKING: Mapping[str, tuple[str, ...]] = {
    "strides": ("", ":", "::"),
    "grouped": ("",),
    "encoding": ("", ":", "::"),
    "oflag": ("", "none"),
    "attr-dropout": ("", "0"),
    "attr-rounding-mode": ("",),
    "buffer-prefix": ("",),
    "with-peephole": ("", "false"),
    "with-projection": ("", "false"),
    "scaling": ("",),
    "scaling-proj": ("",),
    **dict.fromkeys(("qtag", "ktag", "vtag"), ("",)),
    "mdt": ("", "f32"),
    "l": ("", "0"),
    "t": ("", "0"),
}
# Which of these a driver has; others have strides.
_AVAILABLE: Mapping[str, Collection[str]] = {
    "rnn": ("with-peephole", "with-projection", "l", "t"),
    "sum": (),
    "sdpa": (),
}
# Directions of transposed convolutions, and those of convolutions that they are.
_TRANSPOSED = {
    "FWD_D": "BWD_D",
    "FWD_B": "BWD_D",
    "FWD_I": "BWD_D",
    "BWD_D": "FWD_D",
    "BWD_W": "BWD_W",
    "BWD_WB": "BWD_W",
}
# Of their weights' scales, those that vary along outputs: without groups, and with.
_ALONG_OUTPUTS = {
    False: re.compile("(wei(?:ghts)?):(?:per_oc|per_dim_0|1)(?![a-z0-9])"),
    True: re.compile("(wei(?:ghts)?):(?:per_oc|per_dim_01|3)(?![a-z0-9])"),
}
# The layout of an operand of a post-op that has two dims.
_OPERAND_TAG = re.compile("(?<=:)(ab|ba)(?=[+,]|$)")
# Algorithms of convolutions: how, not what, they compute.
_WAYS = {"", "direct", "wino", "auto"}
# Lists of a sum, one for each of its tensors, or for all.
_OF_SUMS = {"sdt": "f32:f32", "stag": "any", "scales": "1"}
_OTHER_WORDS = (
    *("scales", "sdt", "ddt", "tag", "alpha", "beta", "bia_mask"),
    *("prop", "cfg", "direction", "mask"),
)
OPTIONS = (*_OTHER_WORDS, *_LACKING, *IGNORED)


def in_our_words(driver: str, options: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """The options of the command line that say the same, once for each combination of values that
    are not independent there. Those of `IGNORED` are left out, those that are not available stay:
    `check_available`."""
    texts = {name: text for name, text in options.items() if name not in IGNORED}
    if driver == "ip":
        for name in ("stag", "wtag", "dtag"):
            if name in texts:
                texts[name] = ",".join(map(_with_image, _list(texts, name)))
        chains = texts.get("attr-post-ops", "")
        texts["attr-post-ops"] = _OPERAND_TAG.sub(lambda m: _with_image(m[0]), chains)
    if driver == "sum":
        yield from _sums(texts)
        return
    if driver == "rnn":
        yield from recurrent_words(texts)
        return
    if driver == "sdpa":
        yield from attention_words(texts)
        return
    driver = OTHER_DRIVER_NAMES.get(driver, driver)
    if "sdt" in texts or "ddt" in texts:
        texts["dt"] = _types(driver, texts.pop("sdt", "f32"), texts.pop("ddt", ""))
    if "dir" in texts:
        texts["dir"] = texts["dir"].upper().replace("BWD_DW", "BWD_D,BWD_W")
        if driver.endswith("norm"):
            texts["dir"] = texts["dir"].replace("BWD_WB", "BWD_D,BWD_W")
    if "bia-dt" in texts:
        texts["bia-dt"] = texts["bia-dt"].replace("undef", "")
    if (
        "alg" not in DRIVERS[driver].knobs
        and {name.lower() for name in _list(texts, "alg")} <= _WAYS
    ):
        texts.pop("alg", None)
    if "attr-fpmath" in texts:
        texts["attr-fpmath"] = _fpmath(texts)
    if {"alpha", "beta"} & texts.keys():
        texts["alg"] = _with_numbers(texts)
    tags = list(itertools.product(*_tag_choices(driver, texts)))
    for said, chosen in itertools.product(_reductions(driver, texts), tags):
        yield {name: text for values in (said, *chosen) for name, text in values.items() if text}


def as_convolutions(
    deconv: DeconvProblem, values: Mapping[str, str]
) -> Iterator[tuple[Problem, dict[str, str]]]:
    """What is said of a transposed convolution, as said of the convolution whose gradient it is,
    which takes all that convolutions do: its src is the other's dst. The gradient of a bias is a
    reduction beside."""
    result = dict(values)
    direction = result["dir"].upper()
    if direction not in _TRANSPOSED:
        raise _lacking(f"--dir={result['dir']} of a transposed convolution")
    if direction == "FWD_B":
        result["bia-dt"] = result["bia-dt"] or "f32"
    types = result["dt"].split(":")
    if direction == "BWD_WB":
        yield _bias_gradient(deconv, result, types[-1])
        result["bia-dt"] = ""
    result["dir"] = _TRANSPOSED[direction]
    result["dt"] = ":".join(reversed(types))
    result["stag"], result["dtag"] = result["dtag"], result["stag"]
    grouped = deconv.conv.g > 1
    for name in ("attr-scales", "attr-zero-points"):
        along = "per_dim_02" if grouped else "per_dim_1"
        result[name] = _ALONG_OUTPUTS[grouped].sub(rf"\1:{along}", result[name])
    tag = result["wtag"]
    first = 1 if grouped else 0
    pair = "oi" if "o" in tag.lower() else string.ascii_lowercase[first : first + 2]
    other = pair[::-1]
    if tag[:1].isdecimal():
        strides = tag.split("x")
        strides[first : first + 2] = reversed(strides[first : first + 2])
        result["wtag"] = "x".join(strides)
    elif tag != "any":
        result["wtag"] = tag.translate(str.maketrans(pair + pair.upper(), other + other.upper()))
    yield deconv.conv, result


def by_places(pool: PoolProblem, values: Mapping[str, str]) -> tuple[Problem, dict[str, str]]:
    """The gradient of a maximum as that of ``maxpool``, whose forward pass keeps the places."""
    types = values["dt"].split(":")
    said = {**values, "alg": "", "dt": ":".join((types[0], types[-1], "s32"))}
    return MaxPoolProblem(replace(pool, name=""), pool.name), said


def _bias_gradient(
    deconv: DeconvProblem, values: Mapping[str, str], type_: str
) -> tuple[Problem, dict[str, str]]:
    """The sum of a gradient over all but its channels; of what is no larger, a copy."""
    shape = deconv.conv.src_shape
    sums = (1, shape[1], *(1 for _ in shape[2:]))
    said = {"dir": "FWD_D", "dt": f"{type_}:{values['bia-dt'] or type_}", "stag": values["dtag"]}
    said |= {"wtag": "any", "dtag": "any", "bia-dt": ""}
    problem = ReorderProblem(shape) if shape == sums else ReduceProblem(shape, sums)
    return problem, {**values, **said}


def _with_image(tag: str) -> str:
    """A tag of two dims as one of a tensor that has an image, too."""
    outer = len(tag) - len(tag.lstrip(string.ascii_letters))
    return f"{tag[:2]}x{tag[2:]}" if outer == 2 and "x" not in tag else tag


def check_available(driver: str, values: Mapping[str, str]) -> None:
    """Raises `UnsupportedError` for values of benchdnn's options that mean something which is not
    available here."""
    check_options(driver, values)
    if values.get("cfg"):
        raise _lacking(f"--cfg={values['cfg']}")


def check_options(driver: str, values: Mapping[str, str]) -> None:
    """Raises `UnsupportedError` for options that the driver does not have here, and whose values
    mean something."""
    for name, nothing in _LACKING.items():
        if name in _AVAILABLE.get(driver, ("strides",)):
            continue
        if all(value not in nothing for value in values.get(name, "").split(",")):
            raise _lacking(f"--{name}={values[name]}")


def with_bias(problem: Problem, values: dict[str, str]) -> dict[str, str]:
    """``values``, where a bias that does not vary along the last dim alone is the first post-op, a
    sum: bit i of ``bia_mask`` is set if it varies along dim i."""
    mask = values.get("bia_mask", "")
    if not (isinstance(problem, MatmulProblem) and values["bia-dt"] and mask):
        return values
    if mask == str(1 << (len(problem.dst_shape) - 1)):
        return values
    chain = f"add:{values['bia-dt']}:{mask}", values["attr-post-ops"]
    return values | {"bia-dt": "", "attr-post-ops": "+".join(filter(None, chain))}


def _lacking(what: str) -> UnsupportedError:
    return UnsupportedError(f"{what} is not available", cure="leave the option out")


def _list(texts: Mapping[str, str], name: str) -> list[str]:
    return texts.get(name, "").split(",")


def _types(driver: str, sources: str, results: str) -> str:
    """``--dt`` of types of sources and of results; where there are none of results, these have
    benchdnn's default."""
    count = len(DRIVERS[driver].roles) - 1
    combined = []
    for types in sources.split(","):
        names = types.split(":")
        if len(names) != count:
            # Of a list that is longer than there are types of tensors, all are alike.
            alike = len(set(names)) == 1
            if not alike:
                raise _lacking(f"--sdt={types}")
            names = names[:1] * count
        usual = names[0] if driver == "prelu" else "f32"
        combined += [":".join([*names, result or usual]) for result in results.split(",")]
    return ",".join(combined)


def _fpmath(texts: Mapping[str, str]) -> str:
    """What f32 may be rounded to, where there is any; no rounding at all is allowed, too."""
    words = [name.partition(":")[0] for name in _list(texts, "attr-fpmath")]
    wide = "f32" in texts.get("dt", "f32")
    return ",".join(word if word in ("bf16", "tf32") and wide else "" for word in words)


def _with_numbers(texts: dict[str, str]) -> str:
    """``--alg`` with alpha and beta in it, where the function takes them."""
    alphas, betas = (texts.pop(name, "") or "0" for name in ("alpha", "beta"))
    algorithms = []
    for name in _list(texts, "alg"):
        name = plain_name(name or "relu", UNARY_FUNCTIONS)
        unary_function = UNARY_FUNCTIONS.get(name)
        parameters = unary_function.parameters if unary_function else ()
        lists = (
            values.split(",") if parameter in parameters else ["0"]
            for parameter, values in (("alpha", alphas), ("beta", betas))
        )
        algorithms += [
            ":".join([name, alpha, beta]).removesuffix(":0").removesuffix(":0")
            for alpha, beta in itertools.product(*lists)
            if _sensible(name, float(alpha), float(beta))
        ]
    return ",".join(dict.fromkeys(algorithms))


def _sensible(function: str, alpha: float, beta: float) -> bool:
    """Whether the numbers go together: of lists, benchdnn leaves out those that do not."""
    if function in ("clip", "clip_v2"):
        return alpha <= beta
    return function != "soft_relu" or alpha != 0


def _tag_choices(driver: str, texts: dict[str, str]) -> Iterator[list[dict[str, str]]]:
    """What ``--tag``, ``--stag`` and ``--strides`` say of several tensors at once."""
    roles = DRIVERS[driver].roles
    knobs = list(dict.fromkeys(TAG_KNOBS[role] for role in roles if role in TAG_KNOBS))
    sources = [knob for knob in knobs if knob != "dtag"] or knobs
    for name in ("stag", "wtag", "dtag", "tag"):
        if name in texts:
            texts[name] = re.sub(r"\bundef\b", "any", texts[name])
    if "tag" in texts:
        ends = [sources[0], "dtag"] if "dtag" in knobs else sources
        yield [_spread(tag, ends) for tag in texts.pop("tag").split(",")]
    if ":" in texts.get("stag", ""):
        yield [_spread(tag, sources) for tag in texts.pop("stag").split(",")]
    if "strides" in texts:
        yield [_strides(name, knobs) for name in texts.pop("strides").split(",")]


def _sums(texts: dict[str, str]) -> Iterator[dict[str, str]]:
    """A sum of tensors with factors as the sum of two, to which post-ops add the others."""
    said = {name: text for name, text in texts.items() if name not in ("sdt", "stag", "scales")}
    results = said.pop("ddt", "f32").split(",")
    lists = (texts.get(name, usual).split(",") for name, usual in _OF_SUMS.items())
    for types, tags, factors in itertools.product(*(map(_split, part) for part in lists)):
        count = max(map(len, (types, tags, factors, ("", ""))))
        if {len(part) for part in (types, tags, factors)} - {1, count}:
            continue  # of lists, those that go together
        kinds, places, numbers = (part * (count // len(part)) for part in (types, tags, factors))
        places = ["any" if tag == "undef" else tag for tag in places]
        post_ops = []
        for kind, place, number in zip(kinds[2:], places[2:], numbers[2:], strict=True):
            added = f"add:{kind}:per_tensor" + (f":{place}" if place != "any" else "")
            scaled = float(number) != 1
            post_ops += (
                [f"linear:{1 / float(number)!r}", added, f"linear:{number}"] if scaled else [added]
            )
        yield {
            **said,
            "alg": "add",
            "dt": ",".join(":".join((*kinds[:2], result)) for result in results),
            "stag": places[0],
            "wtag": places[1],
            "dtag": said.get("dtag", "any").replace("undef", "any"),
            "attr-scales": f"src:common:{numbers[0]}+src1:common:{numbers[1]}",
            "attr-post-ops": "+".join(post_ops),
        }


def _split(text: str) -> list[str]:
    return text.split(":")


def _reductions(driver: str, texts: dict[str, str]) -> Iterator[dict[str, str]]:
    """The options for norms, and for other reductions, which take no ``p`` and no ``eps``."""
    if driver != "reduce" or not {"p", "eps"} & texts.keys():
        yield texts
        return
    names = [plain_name(name or "sum", ReduceProblem.algorithms) for name in _list(texts, "alg")]
    plain = [name for name in names if name not in NORMS]
    if plain:
        yield {name: text for name, text in texts.items() if name not in ("p", "eps")} | {
            "alg": ",".join(plain)
        }
    if len(plain) < len(names):
        norms = [name for name in names if name in NORMS]
        yield texts | {"alg": ",".join(norms)}


def _spread(tag: str, knobs: list[str]) -> dict[str, str]:
    parts = tag.split(":")
    if len(set(parts)) == 1:
        parts = parts[:1] * len(knobs)
    if len(parts) != len(knobs):
        return {knobs[0]: tag}  # one for each of many sources
    return dict(zip(knobs, parts, strict=True))


def _strides(text: str, knobs: list[str]) -> dict[str, str]:
    """Strides in the place of tags, where there are any."""
    parts = text.split(":")
    if any(parts[len(knobs) :]):
        raise _lacking(f"--strides={text}")
    return {knob: part for knob, part in zip(knobs, parts, strict=False) if part}
