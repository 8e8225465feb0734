"""What figures in a file begin with: when, and on what machine, they were written."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from tilewright.targets.x86.assemble import host_cpu


def stamp(schema: int, device: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The number of the file's form, the date, and the machine, with the ``device`` in it."""
    return {
        "schema": schema,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": {"cpu": host_cpu(), "system": platform.platform(), **(device or {})},
    }


def stamped(schema: int, data: Mapping[str, Any]) -> bytes:
    """``data`` after its `stamp`, as it is stored in a file."""
    return (json.dumps({**stamp(schema), **data}, indent=1, default=str) + "\n").encode()
