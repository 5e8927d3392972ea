"""A headless Chromium, driven by the DevTools protocol: what a reader of the page sees and does."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from websockets.sync.client import ClientConnection, connect

NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome", "chrome")
FLAGS = (
    "--headless=new",
    "--no-sandbox",  # containers run as root
    "--disable-dev-shm-usage",
    "--enable-unsafe-swiftshader",  # WebGL without a GPU
    "--hide-scrollbars",
    "--no-first-run",
    "--disable-extensions",
    "--disable-background-networking",
    "--remote-debugging-port=0",
)
START_S = 60
ANSWER_S = 60


def find_chromium() -> str | None:
    """The browser's binary: ``CHROMIUM`` in the environment, or the first on the path."""
    given = os.environ.get("CHROMIUM")
    return given or next((found for name in NAMES if (found := shutil.which(name))), None)


class Page:
    """One page of the browser.

    Attributes:
        errors: What the console got as an error, uncaught exceptions, and refused loads.
        requests: Addresses that the page asked for.
    """

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.errors: list[str] = []
        self.requests: list[str] = []
        self.number = 0
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")

    def send(self, method: str, **params: Any) -> dict[str, Any]:
        """One command and its answer; events on the way are kept."""
        self.number += 1
        self.socket.send(json.dumps({"id": self.number, "method": method, "params": params}))
        while True:
            message = json.loads(self.socket.recv(timeout=ANSWER_S))
            if message.get("id") == self.number:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']}")
                return dict(message["result"])
            self._keep(message)

    def _keep(self, event: dict[str, Any]) -> None:
        """What an event tells about errors and requests."""
        params = event.get("params", {})
        match event.get("method"):
            case "Runtime.exceptionThrown":
                self.errors.append(json.dumps(params["exceptionDetails"])[:2000])
            case "Runtime.consoleAPICalled" if params["type"] in ("error", "assert"):
                self.errors.append(json.dumps(params["args"])[:2000])
            case "Log.entryAdded" if params["entry"]["level"] == "error":
                self.errors.append(json.dumps(params["entry"])[:2000])
            case "Network.requestWillBeSent":
                self.requests.append(params["request"]["url"])

    def run(self, expression: str) -> Any:
        """The value of an expression in the page; promises are awaited."""
        answer = self.send(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def open(self, file: Path) -> float:
        """Open a report and wait until all of it is drawn; returns the seconds that took."""
        start = time.perf_counter()
        self.send("Page.navigate", url=file.as_uri())
        self.wait("document.documentElement?.dataset.ready === 'true'")
        self.settle()
        return time.perf_counter() - start

    def wait(self, condition: str, seconds: float = 30.0) -> None:
        """Until a condition holds in the page."""
        end = time.monotonic() + seconds
        while not self.run(condition):
            if time.monotonic() > end:
                raise TimeoutError(f"{condition} did not hold within {seconds} s: {self.errors}")
            time.sleep(0.02)

    def settle(self) -> None:
        """Until two more frames are painted."""
        self.run(
            "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))"
        )

    def move(self, x: float, y: float) -> None:
        """Move the mouse there."""
        self.send("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def click(self, x: float, y: float) -> None:
        """Move there and click."""
        self.move(x, y)
        self.settle()
        for kind in ("mousePressed", "mouseReleased"):
            self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)
        self.settle()

    def click_on(self, selector: str) -> None:
        """Click in the middle of the element, scrolled into sight."""
        x, y = self.middle(selector)
        self.click(x, y)

    def middle(self, selector: str) -> tuple[float, float]:
        """The middle of an element, scrolled into sight."""
        box = self.run(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)});"
            "e.scrollIntoView({block: 'center', behavior: 'instant'});"
            "const b = e.getBoundingClientRect();"
            "return [b.x + b.width / 2, b.y + b.height / 2]; })()"
        )
        self.settle()
        return box[0], box[1]

    def type(self, text: str) -> None:
        """Type into what has the focus."""
        self.send("Input.insertText", text=text)
        self.settle()

    def press(self, key: str) -> None:
        """Press one of the keys that move: ``"ArrowDown"``, ``"End"``, ``"Enter"``, ``"Tab"``."""
        codes = {"Tab": 9, "Enter": 13, "End": 35, "Home": 36, "ArrowUp": 38, "ArrowDown": 40,
                 "PageUp": 33, "PageDown": 34}  # fmt: skip
        text = {"text": "\r"} if key == "Enter" else {}
        for kind in ("keyDown", "keyUp"):
            self.send(
                "Input.dispatchKeyEvent",
                type=kind, key=key, code=key, windowsVirtualKeyCode=codes[key], **text,
            )  # fmt: skip
        self.settle()

    def size(self, width: int, height: int, scale: float = 1.0) -> None:
        """Set the window's size."""
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=scale, mobile=False,
        )  # fmt: skip

    def prefer(self, scheme: str) -> None:
        """The system's wish: ``"light"`` or ``"dark"``; and no motion, so that clicks hit."""
        wishes = {"prefers-color-scheme": scheme, "prefers-reduced-motion": "reduce"}
        features = [{"name": name, "value": value} for name, value in wishes.items()]
        self.send("Emulation.setEmulatedMedia", features=features)

    def screenshot(self, whole: bool = False) -> bytes:
        """A PNG of the window, or of the whole page."""
        answer = self.send("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        return base64.b64decode(answer["data"])

    def pdf(self) -> bytes:
        """The page as it is printed."""
        answer = self.send("Page.printToPDF", printBackground=True, preferCSSPageSize=True)
        return base64.b64decode(answer["data"])


@contextmanager
def browser(binary: str) -> Iterator[Page]:
    """A browser of its own profile with one empty page, closed at the end."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        process = subprocess.Popen(
            [binary, *FLAGS, f"--user-data-dir={profile}", "about:blank"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            with connect(_page_address(Path(profile), process), max_size=None) as socket:
                yield Page(socket)
        finally:
            process.terminate()
            process.wait(timeout=20)


def _page_address(profile: Path, process: subprocess.Popen[bytes]) -> str:
    """The socket of the browser's first page."""
    import urllib.request

    file = profile / "DevToolsActivePort"
    end = time.monotonic() + START_S
    while not file.exists() or not file.read_text().strip():
        if process.poll() is not None:
            raise RuntimeError(f"the browser ended with code {process.returncode}")
        if time.monotonic() > end:
            raise TimeoutError(f"the browser did not start within {START_S} s")
        time.sleep(0.05)
    port = file.read_text().split()[0]
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/json/list", timeout=20) as answer:
        pages = json.load(answer)
    return str(next(page["webSocketDebuggerUrl"] for page in pages if page["type"] == "page"))
