"""A browser that a test drives: headless Chromium, told what to do by its DevTools protocol over a
pair of pipes. It needs no network and no package."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from skips import lacking

_NAMES = ("chromium", "chromium-browser", "google-chrome")
# In a container neither a sandbox nor much shared memory is to be had.
_FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--window-size=1400,900",
    "--remote-debugging-pipe",
)


class Browser:
    """One page in a browser."""

    def __init__(self, process: subprocess.Popen[bytes], read: int, write: int) -> None:
        self._process = process
        self._read, self._write = read, write
        self._buffer = b""
        self._count = 0
        self._session: str | None = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        self.call("Page.enable")
        self.call("Runtime.enable")
        self.errors: list[str] = []
        """What the page's scripts did wrong."""

    def call(self, method: str, **parameters: Any) -> Any:
        """The browser's answer to a command of the protocol."""
        self._count += 1
        message = {"id": self._count, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._count:
                assert "error" not in answer, answer
                return answer["result"]

    def open(self, path: Path) -> None:
        """Loads a file, and waits until it is there."""
        self.call("Page.navigate", url=path.resolve().as_uri())
        while self._next().get("method") != "Page.loadEventFired":
            pass

    def value(self, script: str) -> Any:
        """What an expression of the page's script gives."""
        result = self.call("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def click(self, selector: str) -> None:
        """Presses and releases the mouse in the middle of an element."""
        place = self.value(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)}); "
            "e.scrollIntoView({block: 'nearest'}); const b = e.getBoundingClientRect(); "
            "return [b.x + b.width / 2, b.y + b.height / 2]; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.call(
                "Input.dispatchMouseEvent",
                type=kind,
                x=place[0],
                y=place[1],
                button="left",
                clickCount=1,
            )

    def press(self, key: str) -> None:
        """Presses and releases a key."""
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key)

    def screenshot(self) -> bytes:
        """What is seen, as a PNG."""
        return base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])

    def _next(self) -> Any:
        while b"\0" not in self._buffer:
            more = os.read(self._read, 2**16)
            assert more, f"the browser ended with {self._process.wait()}"
            self._buffer += more
        text, _, self._buffer = self._buffer.partition(b"\0")
        message = json.loads(text)
        if message.get("method") == "Runtime.exceptionThrown":
            self.errors.append(str(message["params"]))
        return message


@contextmanager
def browser(folder: Path) -> Iterator[Browser]:
    """A browser whose profile is in ``folder``; where there is none, the test is skipped."""
    program = next(filter(None, map(shutil.which, _NAMES)), None)
    if program is None and (os.geteuid() != 0 or shutil.which("apt-get") is None):
        lacking("a browser, nor leave to install one")
    if program is None:
        pytest.skip("no browser is here: apt-get install chromium")
    their_read, write = os.pipe()
    read, their_write = os.pipe()
    # The browser reads from 3 and writes to 4.
    command = f'exec "$0" "$@" 3<&{their_read} 4>&{their_write}'
    with subprocess.Popen(
        ["bash", "-c", command, program, *_FLAGS, f"--user-data-dir={folder}", "about:blank"],
        pass_fds=(their_read, their_write),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        os.close(their_read)
        os.close(their_write)
        try:
            yield Browser(process, read, write)
        finally:
            process.kill()
            os.close(read)
            os.close(write)
