"""A process that compiles kernels for another one: ``python -m tilewright.graph.worker``.

It reads a task a line (JSON: the text of a kernel, the target, what is constant), leaves the code
in the disk cache, and answers each with a line, ``done`` or ``failed``: who asked compiles that one
itself, and meets the error. A task without ``threads`` is to predict the kernel's time, which it
leaves there, too. Its first line is ``ready``.
"""

from __future__ import annotations

import gc
import json
import sys

from tilewright.config import database_in
from tilewright.engine import compile_kernel
from tilewright.engine.choosing import predicted_seconds
from tilewright.errors import TilewrightError
from tilewright.ir.parser import parse_kernel
from tilewright.targets.registry import find_target

# New objects after which Python looks for garbage: it does for every 700 by default.
_MANY = 50_000


def main() -> None:
    """Says that it is there, and works until there are no more tasks."""
    # Nothing that is loaded is garbage, and what is made lives as long as a task.
    gc.freeze()
    gc.set_threshold(_MANY)
    print("ready", flush=True)
    for line in sys.stdin:
        task = json.loads(line)
        try:
            kernel, constant = parse_kernel(task["text"]), tuple(task["constant"])
            target = task["target"]
            if "threads" not in task:
                predicted_seconds(kernel, find_target(target).machine, constant)
            else:
                with database_in(task["database"]):
                    compile_kernel(kernel, target, task["threads"], constant=constant)
            answer = "done"
        except TilewrightError:
            answer = "failed"
        print(answer, flush=True)


if __name__ == "__main__":
    main()
