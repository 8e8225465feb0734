"""Mutated kernels: each compiles, or is refused with a place in its source.

``python tests/fuzz_lang.py --count 100000 --seed 1`` prints what raises anything else.
"""

from __future__ import annotations

import argparse
import random
import sys
import traceback
import warnings
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from lang_kernels import CASES
from lang_texts import defined, mutated, source
from tilewright.errors import TilewrightError
from tilewright.lang import HelperFunction, KernelFunction

LOCAL = (1, 1, 16)


def sources() -> list[tuple[str, dict[str, Any]]]:
    """The text of each kernel of the suite, with the names around it."""
    result = {}
    for case in CASES:
        around = inspect_names(case.kernel)
        result[case.name] = (source(case.kernel), around)
    return list(result.values())


def inspect_names(kernel: KernelFunction) -> dict[str, Any]:
    """What the module of ``kernel`` has: helpers and numbers, no kernels."""
    space = kernel.__wrapped__.__globals__
    return {name: value for name, value in space.items() if not isinstance(value, KernelFunction)}


def tried(text: str, around: dict[str, Any]) -> str | None:
    """What is wrong with how the kernel of ``text`` is refused; None where nothing is."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            kernels = defined(text, **around)
    except TilewrightError as error:
        return None if error.span is not None else f"no place: {error}"
    except Exception:
        return None  # no Python, or Python's own refusal of a decorator's arguments
    for kernel in kernels.values():
        if not isinstance(kernel, KernelFunction) or isinstance(kernel, HelperFunction):
            continue
        for local in ((16,), (2, 16), (1, 2, 16)):
            try:
                kernel.over(local=local, **choices(kernel))
            except TilewrightError as error:
                if error.span is None:
                    return f"no place: {error}"
            except RecursionError:
                return None
            except Exception:
                return traceback.format_exc()
    return None


def choices(kernel: KernelFunction) -> dict[str, Any]:
    """Types and constants for what calls decide."""
    result: dict[str, Any] = {}
    for name, annotation in kernel.parameters.items():
        if type(annotation).__name__ == "Constant":
            result[name] = 4
        elif isinstance(getattr(annotation, "dtype", None), str):
            result[annotation.dtype] = "f32"
        elif type(annotation).__name__ == "ScalarType":
            result[annotation.name] = "f32"
    return result


def fuzz(count: int, seed: int) -> list[str]:
    """What ``count`` mutated kernels raise that they should not, with their texts."""
    rng = random.Random(seed)
    texts, wrong = sources(), []
    for _ in range(count):
        text, around = rng.choice(texts)
        changed = mutated(text, rng)
        result = tried(changed, around)
        if result is not None:
            wrong.append(f"{changed}\n{result}")
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    wrong = fuzz(args.count, args.seed)
    print("\n\n".join(wrong[:10]))
    print(f"{len(wrong)} of {args.count} raise what they should not")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
