"""A headless Chromium, driven through its DevTools protocol over the websocket that aiohttp brings anyway."""

from __future__ import annotations

import asyncio
import base64
import itertools
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import aiohttp

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
START_S = 30
WAIT_S = 20
_FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-port=0",
    "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-extensions", "--mute-audio", "--hide-scrollbars", "--force-color-profile=srgb",
)  # fmt: skip


class Page:
    """One tab. `complaints` are what its console was told in anger, `asked` the addresses that it asked for."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.complaints: list[str] = []
        self.asked: list[str] = []
        self._socket = socket
        self._loaded = asyncio.Event()
        self._numbers = itertools.count(1)
        self._replies: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._reader = asyncio.create_task(self._read())

    async def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One command of the protocol."""
        number = next(self._numbers)
        reply = self._replies[number] = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": number, "method": method, "params": parameters})
        async with asyncio.timeout(WAIT_S):
            return await reply

    async def open(self, url: str) -> None:
        """Have the tab load a page, scripts and all."""
        self._loaded.clear()
        await self.call("Page.navigate", url=url)
        async with asyncio.timeout(WAIT_S):
            await self._loaded.wait()

    async def run(self, script: str) -> Any:
        """The value of an expression; promises are waited for."""
        reply = await self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in reply, reply["exceptionDetails"]
        return reply["result"].get("value")

    async def until(self, script: str) -> Any:
        """The value of an expression once it is true."""
        look = f"const look = () => {{ const value = {script}; value ? told(value) : setTimeout(look, 10); }}"
        return await self.run(f"new Promise((told) => {{ {look}; look(); }})")

    async def text(self, selector: str) -> str:
        """What an element shows."""
        return str(await self.run(f"document.querySelector({selector!r}).innerText"))

    async def size(self, width: int, height: int, *, scale: float = 1) -> None:
        await self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=scale,
            mobile=width < 500,
        )

    async def prefer(self, scheme: str) -> None:
        """Light or dark, as a system would say."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        await self.call("Emulation.setEmulatedMedia", features=features)

    async def key(self, key: str) -> None:
        """A key is pressed."""
        code = {"Tab": 9, "Enter": 13, "ArrowLeft": 37}[key]
        text = {"text": "\r"} if key == "Enter" else {}
        for kind in ("keyDown", "keyUp"):
            await self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, **text)

    async def type(self, text: str) -> None:
        """Text is put where the focus is."""
        await self.call("Input.insertText", text=text)

    async def picture(self) -> bytes:
        """A PNG of what is seen."""
        return base64.b64decode((await self.call("Page.captureScreenshot", format="png"))["data"])

    async def _read(self) -> None:
        async for message in self._socket:
            told = message.json()
            if "id" in told:
                reply = self._replies.pop(told["id"])
                if "error" in told:
                    reply.set_exception(RuntimeError(told["error"]["message"]))
                else:
                    reply.set_result(told.get("result", {}))
                continue
            method, what = told["method"], told.get("params", {})
            if method == "Network.requestWillBeSent":
                self.asked.append(what["request"]["url"])
            elif method == "Page.loadEventFired":
                self._loaded.set()
            elif method == "Runtime.exceptionThrown":
                details = what["exceptionDetails"]
                self.complaints.append(details.get("exception", {}).get("description", details["text"]))
            elif method == "Runtime.consoleAPICalled" and what["type"] in ("error", "warning", "assert"):
                self.complaints.append(str([argument.get("value") for argument in what["args"]]))
            elif method == "Log.entryAdded" and what["entry"]["level"] in ("error", "warning"):
                self.complaints.append(f"{what['entry']['text']} {what['entry'].get('url', '')}")


@asynccontextmanager
async def browser() -> AsyncIterator[Page]:
    """A Chromium of its own with an empty profile, and its one tab."""
    assert CHROMIUM is not None
    with tempfile.TemporaryDirectory(prefix="headgate-chromium-", ignore_cleanup_errors=True) as profile:
        process = await asyncio.create_subprocess_exec(
            CHROMIUM, *_FLAGS, f"--user-data-dir={profile}", "about:blank", stderr=asyncio.subprocess.PIPE
        )
        try:
            address = await _tab(process)
            async with aiohttp.ClientSession() as session, session.ws_connect(address, max_msg_size=0) as socket:
                page = Page(socket)
                for domain in ("Page", "Runtime", "Network", "Log"):
                    await page.call(f"{domain}.enable")
                yield page
        finally:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()


async def _tab(process: asyncio.subprocess.Process) -> str:
    """The websocket of the first tab: Chromium says on its standard error where it listens."""
    assert process.stderr is not None
    async with asyncio.timeout(START_S), aiohttp.ClientSession() as session:
        while b"DevTools listening on ws://" not in (line := await process.stderr.readline()):
            assert line, "Chromium ended at its start"
        host = line.decode().split("ws://")[1].split("/")[0]
        async with session.get(f"http://{host}/json/list") as reply:
            targets = await reply.json(content_type=None)
    return str(next(target["webSocketDebuggerUrl"] for target in targets if target["type"] == "page"))
