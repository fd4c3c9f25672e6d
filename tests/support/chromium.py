"""A real headless Chromium, spoken to over its debugging pipe: no library, no port, no network.

https://chromedevtools.github.io/devtools-protocol/ ; messages are JSON, ended by a NUL, on file
descriptors 3 and 4 (--remote-debugging-pipe).
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

NAMES = ("chromium-headless-shell", "chromium", "google-chrome", "chrome")
PATIENCE = 60.0
HIGH = 20
"""Descriptors from here on are neither 3 nor 4, which the browser reads and writes."""


def program() -> str | None:
    """Return the path of the browser; None if there is none."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


class Page:
    """One page, opened from a file; `said` is whatever console, log and network told of it."""

    def __init__(self, folder: Path) -> None:
        path = program()
        assert path is not None
        theirs_in, self._out = os.pipe()
        self._in, theirs_out = os.pipe()
        read, write = (fcntl.fcntl(end, fcntl.F_DUPFD, HIGH) for end in (theirs_in, theirs_out))
        self._process = subprocess.Popen(
            ["/bin/bash", "-c", f'exec "$@" 3<&{read} 4>&{write} {read}<&- {write}>&-', "browser",
             path, "--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe",
             "--disable-dev-shm-usage", f"--user-data-dir={folder}"],
            pass_fds=(read, write), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        for end in (theirs_in, theirs_out, read, write):
            os.close(end)
        self._rest = b""
        self._number = 0
        self._session = ""
        self.said: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]

    def open(self, file: Path) -> None:
        """Load the file and wait until it is whole."""
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.call("Page.navigate", url=file.as_uri())
        while not any(one["method"] == "Page.loadEventFired" for one in self.said):
            self._take()

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method of the protocol and return its result."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._take()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                result: dict[str, Any] = answer["result"]
                return result

    def value(self, expression: str) -> Any:
        """Evaluate an expression on the page and return its value."""
        told = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in told, told
        return told["result"].get("value")

    def scheme(self, name: str) -> None:
        """Make the page believe that its reader prefers light or dark."""
        self.call(
            "Emulation.setEmulatedMedia",
            features=[{"name": "prefers-color-scheme", "value": name}],
        )

    def size(self, width: int, height: int) -> None:
        """Make the window that large."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=1, mobile=False)  # fmt: skip

    def screenshot(self, file: Path) -> None:
        """Write what the window shows to a file."""
        told = self.call("Page.captureScreenshot", captureBeyondViewport=True)
        file.write_bytes(base64.b64decode(told["data"]))

    def troubles(self) -> list[dict[str, Any]]:
        """Return what the console, the log and broken scripts said, whatever it is."""
        named = ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded")
        return [one for one in self.said if one["method"] in named]

    def requests(self) -> list[str]:
        """Return the addresses that were asked for."""
        sent = [one for one in self.said if one["method"] == "Network.requestWillBeSent"]
        return [one["params"]["request"]["url"] for one in sent]

    def close(self) -> None:
        """End the browser."""
        self._process.kill()
        self._process.wait()
        os.close(self._out)
        os.close(self._in)

    def _take(self) -> dict[str, Any]:
        until = time.monotonic() + PATIENCE
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._in], [], [], max(0.0, until - time.monotonic()))
            part = os.read(self._in, 1 << 20) if ready else b""
            assert part, "the browser says nothing any more"
            self._rest += part
        text, self._rest = self._rest.split(b"\0", 1)
        message: dict[str, Any] = json.loads(text)
        if "method" in message:
            self.said.append(message)
        return message
