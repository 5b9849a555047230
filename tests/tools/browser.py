"""Headless Chromium over the DevTools protocol, through a pipe: needs only Python's standard library."""

import json
import os
import shutil
import subprocess
import tempfile

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


# The middle of an element in sight, once it stays there: parts of a page take their size when they come into sight.
STEADY_PLACE = """(async () => {
  const element = document.querySelector(SELECTOR);
  let before = null, same = 0;
  while (same < 3) {
    element.scrollIntoView({ block: "center", inline: "center" });
    await new Promise((done) => requestAnimationFrame(done));
    const { x, y, width, height } = element.getBoundingClientRect(), at = [x + width / 2, y + height / 2];
    same = before && before[0] === at[0] && before[1] === at[1] ? same + 1 : 0;
    before = at;
  }
  return before;
})()"""


class Browser:
    """One page. `complaints` has what its console printed and what its scripts threw."""

    def __init__(self, width=1200, height=900):
        self._profile = tempfile.TemporaryDirectory(prefix="lenslet-chromium-", ignore_cleanup_errors=True)
        theirs_in, self._to = os.pipe()
        self._from, theirs_out = os.pipe()
        self._process = subprocess.Popen(
            ["bash", "-c", f'exec "$@" 3<&{theirs_in} 4>&{theirs_out}', "chromium", CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu",
             "--disable-ipc-flooding-protection", "--remote-debugging-pipe", f"--user-data-dir={self._profile.name}", "about:blank"],
            pass_fds=(theirs_in, theirs_out), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(theirs_in)
        os.close(theirs_out)
        self._read, self._number, self._session, self._events, self.complaints = b"", 0, None, [], []
        (page,) = [one for one in self.call("Target.getTargets")["targetInfos"] if one["type"] == "page"]
        self._session = self.call("Target.attachToTarget", targetId=page["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "DOM"):
            self.call(f"{domain}.enable")
        self.resize(width, height)

    def _message(self):
        while b"\0" not in self._read:
            block = os.read(self._from, 1 << 20)
            if not block:
                raise RuntimeError("Chromium has ended")
            self._read += block
        text, _, self._read = self._read.partition(b"\0")
        message = json.loads(text)
        if message.get("method") in ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded"):
            self.complaints.append(json.dumps(message["params"])[:1000])
        return message

    def call(self, method, **parameters):
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while (answer := self._message()).get("id") != self._number:
            self._events.append(answer.get("method"))
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        return answer["result"]

    def open(self, address):
        self._events.clear()
        self.call("Page.navigate", url=address)
        while "Page.loadEventFired" not in self._events:
            self._events.append(self._message().get("method"))

    def run(self, script):
        """The value of an expression, a promise's when it is there."""
        done = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in done:
            raise RuntimeError(done["exceptionDetails"].get("exception", {}).get("description", done["exceptionDetails"]["text"]))
        return done["result"].get("value")

    def click(self, selector):
        """As by a mouse: what lies above the middle of the element gets the click."""
        x, y = self.run(STEADY_PLACE.replace("SELECTOR", json.dumps(selector)))
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def resize(self, width, height):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def close(self):
        self._process.kill()
        self._process.wait()
        os.close(self._to)
        os.close(self._from)
        self._profile.cleanup()
