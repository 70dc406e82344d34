"""Chromium without a window, told what to do through a pipe: what a page does when a person clicks."""

import base64
import itertools
import json
import os
import shutil
import subprocess
import tempfile
import time

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
    "--force-color-profile=srgb",
    "--font-render-hinting=none",
)
DRAWN = (
    "new Promise(done => setTimeout(() => requestAnimationFrame(() => requestAnimationFrame("
    "() => done(0))), 120))"
)
"""Longer than a search waits for the next key, and two frames."""


def found():
    """The program, or None where none is installed."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Chromium:
    """One tab. ``errors`` is what its console complains of, ``requests`` what it asks for."""

    def __init__(self):
        self.errors, self.requests = [], []
        self.numbers = itertools.count(1)
        self.profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        ours, theirs = os.pipe(), os.pipe()  # they read what we write, and the other way round
        self.process = subprocess.Popen(
            [
                "bash",  # the browser reads from 3 and writes to 4
                "-c",
                f'exec {{a}}<&{ours[0]} {{b}}>&{theirs[1]}; exec "$0" "$@" 3<&$a 4>&$b',
                found(),
                *FLAGS,
                f"--user-data-dir={self.profile.name}",
            ],
            pass_fds=(ours[0], theirs[1]),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(ours[0])
        os.close(theirs[1])
        self.into, self.out = os.fdopen(ours[1], "wb", 0), os.fdopen(theirs[0], "rb")
        self.pending = b""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self.session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    session = None

    def call(self, method, **parameters):
        """What the browser answers; what it tells meanwhile is kept."""
        number = next(self.numbers)
        message = {"id": number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        self.into.write(json.dumps(message).encode() + b"\0")
        while True:
            told = self.read()
            if told.get("id") == number:
                assert "error" not in told, told["error"]
                return told["result"]
            self.note(told)

    def read(self):
        while b"\0" not in self.pending:
            part = self.out.read1(1 << 20)
            assert part, "the browser has ended"
            self.pending += part
        message, _, self.pending = self.pending.partition(b"\0")
        return json.loads(message)

    def note(self, told):
        given = told.get("params", {})
        if told["method"] == "Runtime.exceptionThrown":
            self.errors.append(given["exceptionDetails"])
        elif told["method"] == "Log.entryAdded" and given["entry"]["level"] == "error":
            self.errors.append(given["entry"]["text"])
        elif told["method"] == "Network.requestWillBeSent":
            self.requests.append(given["request"]["url"])

    def open(self, file, *, width=1440, height=900, is_dark=False, has_scripts=True):
        """Open a file; the seconds until its table stands."""
        self.errors.clear()
        self.requests.clear()
        scheme = {"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call("Emulation.setScriptExecutionDisabled", value=not has_scripts)
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        start = time.perf_counter()
        self.call("Page.navigate", url=f"file://{file}")
        while self.evaluate(
            "document.readyState !== 'complete' || !document.querySelector('footer')"
        ):
            time.sleep(0.02)
        if has_scripts:
            self.settle()
        return time.perf_counter() - start

    def settle(self):
        """Wait until everything is drawn that is due."""
        self.evaluate(DRAWN)

    def evaluate(self, expression):
        answer = self.call(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def press(self, *keys):
        for key in keys:
            for kind in ("keyDown", "keyUp"):
                self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key)
        self.settle()

    def click(self, selector, text=""):
        """Click on the first element that a selector finds, whose text begins so."""
        box = self.evaluate(
            f"(() => {{ const e = [...document.querySelectorAll({json.dumps(selector)})]"
            f".find(e => e.textContent.startsWith({json.dumps(text)}));"
            " e.scrollIntoView({block: 'nearest'}); const b = e.getBoundingClientRect();"
            " return [b.x + b.width / 2, b.y + b.height / 2]; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.call(
                "Input.dispatchMouseEvent",
                type=kind,
                x=box[0],
                y=box[1],
                button="left",
                clickCount=1,
            )
        self.settle()

    def type(self, text):
        self.call("Input.insertText", text=text)
        self.settle()

    def texts(self, selector):
        """The texts of all elements that a selector finds."""
        return self.evaluate(
            f"[...document.querySelectorAll({json.dumps(selector)})].map(e => e.textContent)"
        )

    def picture(self):
        """What is seen, as a PNG."""
        return base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])

    def close(self):
        self.into.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.out.close()
        self.profile.cleanup()
