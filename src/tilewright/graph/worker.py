"""A process that compiles kernels for another one: ``python -m tilewright.graph.worker``.

It reads a task a line (JSON: the text of a kernel, the target, what is constant), leaves the code
in the disk cache, and answers each with a line, ``done`` or ``failed``: who asked compiles that one
itself, and meets the error. Its first line is ``ready``.
"""

from __future__ import annotations

import json
import sys

from tilewright.config import database_in
from tilewright.engine import compile_kernel
from tilewright.errors import TilewrightError
from tilewright.ir.parser import parse_kernel


def main() -> None:
    """Says that it is there, and works until there are no more tasks."""
    print("ready", flush=True)
    for line in sys.stdin:
        task = json.loads(line)
        try:
            kernel = parse_kernel(task["text"])
            with database_in(task["database"]):
                constant = tuple(task["constant"])
                compile_kernel(kernel, task["target"], task["threads"], constant=constant)
            answer = "done"
        except TilewrightError:
            answer = "failed"
        print(answer, flush=True)


if __name__ == "__main__":
    main()
