"""The page at / in a headless Chromium, by the DevTools protocol.

    venv/bin/pip install websocket-client
    venv/bin/python tools/clients/page.py target/release/millrace /usr/bin/chromium pictures/

Writes a message by keyboard, waits for the answer as it streams, asks again, stops an answer, begins anew, and looks for
errors and for requests that leave the server. Pictures of the page, light, dark and narrow, are put into the folder.
"""

import base64
import json
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import websocket

failures = []


def check(name, ok, found=""):
    print(f"{'ok  ' if ok else 'FAIL'}  {name}" + ("" if ok else f": {found!r}"))
    if not ok:
        failures.append(name)


class Page:
    def __init__(self, port):
        for _ in range(100):
            try:
                targets = json.load(urllib.request.urlopen(f"http://127.0.0.1:{port}/json"))
                target = next(target for target in targets if target["type"] == "page")
                break
            except (OSError, StopIteration):
                time.sleep(0.1)
        self.socket = websocket.create_connection(target["webSocketDebuggerUrl"], suppress_origin=True)
        self.n = 0
        self.events = []
        for domain in ("Page", "Runtime", "Network", "Log", "Accessibility"):
            self.call(f"{domain}.enable")

    def call(self, method, **params):
        self.n += 1
        self.socket.send(json.dumps({"id": self.n, "method": method, "params": params}))
        while True:
            message = json.loads(self.socket.recv())
            if message.get("id") == self.n:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']}")
                return message["result"]
            self.events.append(message)

    def js(self, source):
        result = self.call("Runtime.evaluate", expression=source, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise RuntimeError(result["exceptionDetails"])
        return result["result"].get("value")

    def until(self, source, seconds=30):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if value := self.js(source):
                return value
            time.sleep(0.05)
        return None

    def write(self, text):
        self.call("Input.insertText", text=text)

    def press(self, key, code):
        for kind in ("keyDown", "keyUp"):
            text = "\r" if key == "Enter" and kind == "keyDown" else ""
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, text=text)

    def picture(self, path):
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))


def use(page, url, folder):
    page.call("Page.navigate", url=url)
    check("the model is shown", page.until("document.querySelector('#model')?.value === 'demo'"))
    check("its state is shown", "ready" in (page.until("document.querySelector('#where').textContent") or ""))
    check("the message has the focus", page.js("document.activeElement.id") == "message", page.js("document.activeElement.id"))
    page.js("document.querySelector('#temperature').value = 0")
    page.write("What is 7 plus 5?")
    page.press("Enter", 13)
    last = "document.querySelector('article.assistant:last-of-type div')?.textContent"
    done = "document.querySelector('article:last-of-type footer')?.textContent"
    note = page.until(done) or ""
    check("the answer", page.js(last) == "7 plus 5 is 12.", page.js(last))
    for words in ("tokens read", "first after", "tokens/s", "on cpu"):
        check(f"its note says `{words}`", words in note, note)
    check("it is told to screen readers", page.js("document.querySelector('#told').textContent") == "7 plus 5 is 12.")
    check("the focus stays", page.js("document.activeElement.id") == "message")
    page.js("document.querySelector('#again').click()")
    page.until("!document.querySelector('#send').disabled")
    check("asked again there is one answer", page.js("document.querySelectorAll('article.assistant').length") == 1)
    check("and it is the same", page.js(last) == "7 plus 5 is 12.", page.js(last))
    page.write("Tell me a story.")
    page.press("Enter", 13)
    page.until(done)
    scheme = [{"name": "prefers-color-scheme", "value": "dark"}]
    page.picture(folder / "light.png")
    page.call("Emulation.setEmulatedMedia", features=scheme)
    page.picture(folder / "dark.png")
    page.call("Emulation.setEmulatedMedia", features=[])
    page.call("Emulation.setDeviceMetricsOverride", width=390, height=844, deviceScaleFactor=2, mobile=True)
    page.js("document.querySelector('#settings').open = false")
    page.picture(folder / "narrow.png")
    wide = page.js("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    check("nothing is wider than a phone", wide)
    page.call("Emulation.clearDeviceMetricsOverride")
    page.js("document.querySelector('#clear').click()")
    check("a new conversation is empty", page.js("document.querySelectorAll('article').length") == 0)
    page.js("document.querySelector('#temperature').value = 3")
    page.js("document.querySelector('#max_tokens').value = 900")
    page.write("Go on.")
    page.press("Enter", 13)
    page.press("Escape", 27)
    stopped = page.until(done) or ""
    check("Escape stops it", "stopped" in stopped or "written" in stopped, stopped)


def look(page, url):
    entries = [event for event in page.events if event["method"] in ("Runtime.exceptionThrown", "Log.entryAdded")]
    errors = [event for event in entries if event["params"].get("entry", {}).get("level") != "verbose"]
    check("no errors in the console", not errors, errors[:2])
    requests = [event["params"]["request"]["url"] for event in page.events if event["method"] == "Network.requestWillBeSent"]
    strangers = [address for address in requests if not address.startswith((url, "data:"))]
    check("no request leaves the server", requests and not strangers, strangers)
    nodes = page.call("Accessibility.getFullAXTree")["nodes"]
    fields = ("textbox", "spinbutton", "button", "combobox")
    nameless = [node for node in nodes if node.get("role", {}).get("value") in fields and not node["name"].get("value")]
    check("every field and button has a name", not nameless, nameless[:2])


def main():
    binary, chromium, folder = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    folder.mkdir(parents=True, exist_ok=True)
    command = [binary, "serve", "demo", "--port", "0", "--quiet", "--ctx", "1024"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    url = server.stdout.readline().strip()
    with tempfile.TemporaryDirectory() as profile:
        browser = subprocess.Popen([chromium, "--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0",
                                    "--no-first-run", f"--user-data-dir={profile}", "--window-size=1100,800", "about:blank"],
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            active = Path(profile) / "DevToolsActivePort"
            for _ in range(200):
                if active.exists() and active.read_text().count("\n"):
                    break
                time.sleep(0.1)
            page = Page(active.read_text().splitlines()[0])
            use(page, url + "/", folder)
            look(page, url)
        finally:
            browser.terminate()
            browser.wait()
            server.terminate()
            server.wait()
    print(f"{len(failures)} failed" if failures else "all passed")
    sys.exit(bool(failures))


main()
