"""Mutates StableHLO programs: whatever comes in, what comes out is a graph, or an error of ours.

    python tests/fuzz_stablehlo.py --count 200000 --seed 1 [FOLDER with .mlir files]

Programs are the small ones here, those of the tests, and files of the folder that are short. Words
go, are doubled, change places, are replaced by others of the pool or of the text; or the text ends.
"""

from __future__ import annotations

import argparse
import random
import re
import resource
import sys
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "frontends"))

import test_stablehlo
import test_stablehlo_parser
from tilewright.errors import TilewrightError
from tilewright.frontends.stablehlo import from_stablehlo

A = test_stablehlo.A
_WORD = re.compile(r"[%@#!^]?[\w.]+|->|\S|\s+")
_POOL = [
    *("0", "1", "-1", "2", "7", "99999999999", "4294967296", "1.5", "0x7F80", "?", "x", "*", "<"),
    *("[", "]", "(", ")", "{", "}", ",", ":", "=", "->", '"', "//", "\n", "dense", "true", "[]"),
    *("tensor<f32>", "tensor<?xf32>", "tensor<0xf32>", "tensor<4x3xi1>", "tensor<2xcomplex<f32>>"),
    *("tensor<9999999x9999999xf32>", "tuple<>", "i4", "ui64", "f8E5M2", "index"),
    "!stablehlo.token",
    *("stablehlo.add", "stablehlo.sort", "stablehlo.while", '"stablehlo.if"', "stablehlo.gather"),
    *("stablehlo.reshape", "stablehlo.iota", "stablehlo.pad", "call @main", "%0#1"),
    *("array<i64: 1>", "stablehlo.return", "return", "module", "func.func", "^bb0", "loc(x)"),
]  # fmt: skip


def programs(folder: Path | None) -> list[str]:
    """What is mutated."""
    takes = "%a: tensor<4x3xf32>, %b: tensor<2x2x2xf32>, %s: tensor<f32>"
    result = [
        test_stablehlo_parser.function(text, takes)
        for pair in test_stablehlo_parser.FORMS.values()
        for text in pair
    ]
    result += [
        test_stablehlo.main(
            refused[0], f"{test_stablehlo.A}, %n: tensor<1xi32>", "tensor<2xf32>", "%a"
        )
        for refused in test_stablehlo.REFUSED.values()
    ]
    result.append(
        test_stablehlo.main(
            test_stablehlo.REDUCE,
            "%a: tensor<4x3xf32>",
            "tensor<4xf32>, tensor<4xi32>",
            "%0#0, %0#1",
        )
    )
    if folder is not None:
        for path in sorted(folder.rglob("*.mlir")):
            if path.stat().st_size < 3000:
                text = path.read_text(encoding="utf-8")
                result.append("\n".join(x for x in text.splitlines() if not x.startswith("//")))
    return result


def mutated(text: str, rng: random.Random) -> str:
    """``text`` with one to three changes."""
    words = _WORD.findall(text)
    for _ in range(rng.randint(1, 3)):
        solid = [n for n, word in enumerate(words) if not word.isspace()] or [0]
        place = rng.choice(solid)
        match rng.randrange(9):
            case 0:
                del words[place]
            case 1:
                words.insert(place, words[place])
            case 2:
                other = rng.choice(solid)
                words[place], words[other] = words[other], words[place]
            case 3:
                words[place] = rng.choice(_POOL)
            case 4:
                words[place] = words[rng.choice(solid)]
            case 5:
                words.insert(place, rng.choice(_POOL))
            case 6:
                numbers = [n for n in solid if words[n].isdigit()] or [place]
                words[rng.choice(numbers)] = str(rng.choice([0, 1, 2, 3, 5, 64, 2**31, 2**40]))
            case 7:
                # Where all of a type, or of an operation, becomes another one, the text reads.
                names = [n for n in solid if "." in words[n] or words[n][0].isalpha()] or [place]
                old, new = words[rng.choice(names)], words[rng.choice(names)]
                words = [new if word == old else word for word in words]
            case _:
                words = words[: place + 1] if rng.random() < 0.2 else words
        if not words:
            words = [" "]
    return "".join(words)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    texts = programs(options.folder)
    counts: Counter[str] = Counter()
    slowest = 0.0
    for number in range(options.count):
        rng = random.Random(f"{options.seed}:{number}")
        text = mutated(rng.choice(texts), rng)
        start = time.perf_counter()
        try:
            from_stablehlo(text)
            counts["graphs"] += 1
        except TilewrightError as error:
            counts[type(error).__name__] += 1
            if error.span is None or error.cure is None:
                counts[f"{type(error).__name__} without place or cure: {error.what[:60]}"] += 1
        except Exception:
            print(f"--- mutation {number} of seed {options.seed}\n{text}")
            raise
        slowest = max(slowest, time.perf_counter() - start)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(f"{options.count} mutations, no exception but ours: {dict(counts)}")
    print(f"slowest {slowest:.2f} s, at most {memory} MiB")


if __name__ == "__main__":
    main()
