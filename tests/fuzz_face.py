"""Mutates what users write, and looks for exceptions that are not of the project's tree.

    python tests/fuzz_face.py --count 500000 --seed 1

Calls of constructors with all their knobs, compiling, configs, calls with arrays (`face_calls`);
texts of kernels (`face_texts`): each is right, or a `TilewrightError` says why it is not. A case is
named by seed and number, so ``--start NUMBER --count 1`` runs one again. The suite runs some
thousands (`test_fuzz_face`).
"""

from __future__ import annotations

import argparse
import faulthandler
import os
import random
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Iterator
from dataclasses import dataclass

import face_texts
from face_calls import NAMES, Calls
from tilewright.errors import TilewrightError

# The share of cases that are texts of kernels.
_TEXTS = 0.15


@dataclass(frozen=True)
class Fault:
    """A case that ended in an exception of another tree; ``text`` reproduces it."""

    number: int
    text: str
    error: str

    @property
    def place(self) -> str:
        """The exception and where it was raised, which tells faults apart."""
        lines = self.error.strip().splitlines()
        places = [line.strip() for line in lines if line.startswith("  File")]
        kind = lines[-1].split(":")[0]
        return f"{kind} {places[-1] if places else ''}"


def faults(seed: int, start: int, count: int, texts: float = _TEXTS) -> Iterator[Fault | None]:
    """Runs cases ``start`` and following; None for each that ended well."""
    for number in range(start, start + count):
        yield fault(random.Random(f"{seed} {number}"), number, texts)


def fault(rng: random.Random, number: int, texts: float = _TEXTS) -> Fault | None:
    """Runs one case."""
    is_text = rng.random() < texts
    case = face_texts.text(rng) if is_text else Calls(rng).call()
    try:
        if is_text:
            face_texts.check(case)
        else:
            eval(case, NAMES)
    except TilewrightError as error:
        if str(error):
            return None
        return Fault(number, case, "an error that says nothing")
    except Exception:
        return Fault(number, case, traceback.format_exc())
    return None


def main() -> int:
    """The long sweep."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--count", type=int, default=10_000, help="so many cases")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--start", type=int, default=0, help="the first case")
    parser.add_argument("--texts", type=float, default=_TEXTS, help="the share of kernels' texts")
    parser.add_argument("--most", type=int, default=20, help="kinds of faults to print")
    args = parser.parse_args()
    faulthandler.enable()
    warnings.simplefilter("error")
    os.environ["TILEWRIGHT_CACHE_DIR"] = tempfile.mkdtemp(prefix="fuzz-face-")
    seen: dict[str, int] = {}
    begun = time.monotonic()
    for done, found in enumerate(faults(args.seed, args.start, args.count, args.texts), start=1):
        if found is not None:
            seen[found.place] = seen.get(found.place, 0) + 1
            if seen[found.place] == 1 and len(seen) <= args.most:
                print(f"case {found.number} of seed {args.seed}:\n{found.text[:2000]}")
                print(found.error[-1500:], flush=True)
        # Before a case of which nothing is heard again, its number is on the screen.
        if done % 1000 == 0:
            faulthandler.cancel_dump_traceback_later()
            faulthandler.dump_traceback_later(600, exit=True)
            rate = done / (time.monotonic() - begun)
            total = sum(seen.values())
            print(
                f"\r{args.start + done:,} cases, {total} faults, {rate:.0f}/s",
                end="", file=sys.stderr, flush=True,
            )  # fmt: skip
    faulthandler.cancel_dump_traceback_later()
    print(f"\n{args.count:,} cases of seed {args.seed}: {sum(seen.values())} foreign exceptions")
    for place, number in sorted(seen.items(), key=lambda item: -item[1]):
        print(f"  {number:6} {place}")
    return 1 if seen else 0


if __name__ == "__main__":
    sys.exit(main())
