"""The first step of the command, which loads the others."""

from __future__ import annotations

import sys

from tilewright.cli.loading import INTERRUPTED, loading


def main() -> None:
    """The command ``tilewright``. Exits with 0, 1 (a case failed), 2 (bad input), or 130
    (interrupted)."""
    try:
        with loading():
            from tilewright.cli.app import run
        run()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
