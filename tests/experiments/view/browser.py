"""A headless Chromium, spoken to by its DevTools protocol."""

from __future__ import annotations

import asyncio
import base64
import json
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from tornado.websocket import WebSocketClientConnection, websocket_connect

from weft.testbed.linux.clock import wait_until

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
SAYS = "DevTools listening on "


def program() -> str | None:
    """The browser of this machine, if there is one."""
    return next((found for name in PROGRAMS if (found := shutil.which(name))), None)


class Page:
    """One page; every call returns when the browser has done what it says."""

    def __init__(self, loop: asyncio.AbstractEventLoop, socket: WebSocketClientConnection) -> None:
        self._loop, self._socket, self._number = loop, socket, 0
        self.errors: list[str] = []
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        request = json.dumps({"id": self._number, "method": method, "params": parameters})
        return self._loop.run_until_complete(self._call(request))

    async def _call(self, request: str) -> dict[str, Any]:
        await self._socket.write_message(request)
        while True:
            message = json.loads(await self._socket.read_message() or "{}")
            if message.get("method") == "Runtime.exceptionThrown":
                self.errors.append(json.dumps(message["params"]["exceptionDetails"]))
            if (
                message.get("method") == "Log.entryAdded"
                and message["params"]["entry"]["level"] == "error"
            ):
                self.errors.append(json.dumps(message["params"]["entry"]))
            if message.get("id") == self._number:
                assert "error" not in message, message
                result: dict[str, Any] = message["result"]
                return result

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression; of a promise, what it is kept with."""
        answer = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def wait(self, expression: str) -> Any:
        """Its value once that is true."""
        return wait_until(expression, lambda: self.evaluate(expression), every_s=0.05)

    def open(
        self, address: str, *, width: int = 1280, height: int = 860, scheme: str = "light"
    ) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        self.call(
            "Emulation.setEmulatedMedia",
            features=[{"name": "prefers-color-scheme", "value": scheme}],
        )
        self.call("Page.navigate", url=address)

    def screenshot(self, path: Path, *, whole: bool = False) -> bytes:
        data = base64.b64decode(
            self.call("Page.captureScreenshot", captureBeyondViewport=whole)["data"]
        )
        path.write_bytes(data)
        return data


async def connected(address: str) -> WebSocketClientConnection:
    return await websocket_connect(address, max_message_size=1 << 26)


@contextmanager
def browser() -> Iterator[Page]:
    """A browser with a page that is blank."""
    path = program()
    assert path
    with tempfile.TemporaryDirectory(prefix="weft-browser-", ignore_cleanup_errors=True) as folder:
        options = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            "--remote-debugging-port=0",
        ]
        command = [
            path,
            *options,
            "--disable-dev-shm-usage",
            f"--user-data-dir={folder}",
            "about:blank",
        ]
        process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        assert process.stderr
        loop = asyncio.new_event_loop()
        try:
            line = next(line for line in process.stderr if SAYS in line)
            port = line.split(SAYS)[1].split("/")[2]
            with urlopen(f"http://{port}/json") as answer:
                target = next(
                    target_row for target_row in json.load(answer) if target_row["type"] == "page"
                )
            socket = loop.run_until_complete(connected(target["webSocketDebuggerUrl"]))
            yield Page(loop, socket)
            socket.close()
        finally:
            process.terminate()
            process.wait(20)
            process.stderr.close()
            loop.close()
