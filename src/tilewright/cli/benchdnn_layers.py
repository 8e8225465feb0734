"""benchdnn's options and descriptors of recurrent layers and of attention, in our words."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from tilewright.problems import Problem
from tilewright.problems.library import AttentionProblem, RecurrentProblem

# What types of a recurrent layer's numbers are called, with those of src.
_RECURRENT_TYPES = {
    "f32": "f32",
    **dict.fromkeys(("bf16", "bf16f32"), "bf16"),
    **dict.fromkeys(("f16", "f16f32"), "f16"),
}
# Letters of our ``--flags``, and sizes that replace those of descriptors.
_RECURRENT_FLAGS = {"with-peephole": "P", "with-projection": "R"}
_RECURRENT_SIZES = {"l": "layers", "t": "steps"}
# benchdnn's own, which change no number, or none of what is computed here.
_RECURRENT_IGNORED = ("flags", "attr-fpmath")
_RECURRENT_TAGS = {"abcde": "any", "ldigo": "any", "abdec": "abdc", "ldgoi": "abdc"}
# Which scores of attention count, and how many of the last dims of scores a mask of numbers has.
_SCORES = {"none": "full", "causal_top_left": "causal", "causal_bottom_right": "lower_right"}
_MASK_DIMS = {"buffer": 4, "buffer_2d": 2, "buffer_1d": 1}
# How scores are multiplied with one over the root of the size.
_USUAL_SCALES = ("", "library", "mul", "div")


def with_sizes(problem: RecurrentProblem, values: dict[str, str]) -> tuple[Problem, dict[str, str]]:
    """The layers and steps that ``--l`` and ``--t`` give instead of the descriptor's."""
    sizes = {name: values.pop(name, "") for name in _RECURRENT_SIZES}
    changed = {_RECURRENT_SIZES[n]: int(size) for n, size in sizes.items() if size.strip("0")}
    return problem.changed(**changed) if changed else problem, values


def descriptor_in_our_words(driver: str, word: str) -> str:
    """benchdnn's keys of attention are (batch, heads, size, keys), and its values have all dims."""
    lists = [sizes.split("x") for sizes in word.split(":")]
    if driver != "sdpa" or [len(sizes) for sizes in lists] != [4, 4, 4]:
        return word
    queries, (batch, heads, size, keys), values = lists
    if values[:3] != [batch, heads, keys]:
        return word
    return ":".join(("x".join(queries), f"{batch}x{heads}x{keys}x{size}", values[3]))


def with_mask(problem: AttentionProblem, values: dict[str, str]) -> tuple[Problem, dict[str, str]]:
    """The shape of the mask that ``--mask`` names."""
    broadcast_dims = 4 - _MASK_DIMS.get(values.pop("mask", ""), 0)
    if broadcast_dims == 4:
        return problem, values
    scores = (*problem.queries[:3], problem.keys[2])
    return problem.changed(
        mask_shape=(*(1 for _ in range(broadcast_dims)), *scores[broadcast_dims:])
    ), values


def recurrent_words(texts: dict[str, str]) -> Iterator[dict[str, str]]:
    """Options of recurrent layers, each combination of what has no list here."""
    lists = {"prop": "FWD_I", "cfg": "f32", "tag": "any:any:any"}
    lists |= dict.fromkeys(_RECURRENT_FLAGS, "false")
    taken = {*lists, "direction", *_RECURRENT_IGNORED}
    said = {name: text for name, text in texts.items() if name not in taken}
    said["order"] = texts.get("direction", "")
    values = (texts.get(name, usual).split(",") for name, usual in lists.items())
    for prop, cfg, tags, *flags in itertools.product(*values):
        parts = dict(zip(("stag", "wtag", "dtag"), tags.split(":"), strict=False))
        parts["wtag"] = _RECURRENT_TAGS.get(parts.get("wtag", "any"), parts.get("wtag", "any"))
        types = _RECURRENT_TYPES.get(cfg)
        result = {**said, **parts, "dt": types or "f32", "cfg": "" if types else cfg}
        result["dir"] = prop.upper().replace("BWD_DW", "BWD_D")
        letters = zip(_RECURRENT_FLAGS.values(), flags, strict=True)
        result["flags"] = "".join(letter for letter, value in letters if value == "true")
        if "activation" in result:
            result["activation"] = result["activation"].upper().replace("UNDEF", "")
        yield {name: text for name, text in result.items() if text}


def attention_words(texts: dict[str, str]) -> Iterator[dict[str, str]]:
    """Options of attention; a scale of 0 is one over the root of the size."""
    scales = ("0" if word in _USUAL_SCALES else word for word in texts.get("scale", "").split(","))
    texts["scale"] = ",".join(dict.fromkeys(scales))
    if "mask" not in texts:
        yield texts
        return
    for mask in texts["mask"].split(","):
        algorithm = "bias" if mask in _MASK_DIMS else _SCORES.get(mask, mask)
        yield {**texts, "alg": algorithm, "mask": mask}
