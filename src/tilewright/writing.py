"""Files that are written whole or not at all."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path

# What names of files begin with that are being written, or were when their process was killed.
UNFINISHED = ".writing-"


def write_whole(path: Path, *parts: bytes) -> None:
    """Writes the file ``path``, for this user alone, in place of what is there: another process, or
    a kill at any moment, leaves all ``parts`` there, or what was there. Raises `OSError`.

    A power failure may leave less: nothing waits for the disk."""
    handle, temporary = tempfile.mkstemp(prefix=UNFINISHED, dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.writelines(parts)
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise
