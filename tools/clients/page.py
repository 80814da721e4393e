"""Tests the page at / in a headless Chromium, over the DevTools protocol.

    venv/bin/pip install websocket-client
    venv/bin/python tools/clients/page.py target/release/millrace /usr/bin/chromium pictures/

The script serves the demo on the CPU and the virtual NPU, and a random vision model. It types a message, waits for the streamed
answer, asks again, changes the device, reads its timeline, sends an image, stops an answer, and starts a new chat. It looks for errors,
and for requests to other servers. Pictures of the page, light, dark and narrow, go to the folder.
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
    done = "[...document.querySelectorAll('article:last-of-type footer')].map((note) => note.textContent).join(' | ')"
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
    devices(page)
    seeing(page, folder)
    page.js("document.querySelector('#clear').click()")
    check("a new conversation is empty", page.js("document.querySelectorAll('article').length") == 0)
    page.js("document.querySelector('#temperature').value = 3")
    page.js("document.querySelector('#max_tokens').value = 900")
    page.write("Go on.")
    page.press("Enter", 13)
    page.press("Escape", 27)
    stopped = page.until(done) or ""
    check("Escape stops it", "stopped" in stopped or "written" in stopped, stopped)


def choose(page, select, value):
    page.js(f"(() => {{ const select = document.querySelector('#{select}'); select.value = '{value}';"
            "select.dispatchEvent(new Event('change')); })()")


def ask(page, text):
    """Sends a message. Returns the notes of its answer once it is complete."""
    n = page.js("document.querySelectorAll('article.assistant').length")
    page.js("document.querySelector('#message').focus()")
    page.write(text)
    page.press("Enter", 13)
    page.until(f"document.querySelectorAll('article.assistant').length > {n} && !document.querySelector('#send').disabled", 120)
    return page.js("[...document.querySelectorAll('article:last-of-type footer')].map((note) => note.textContent).join(' | ')")


def devices(page):
    found = page.until("document.querySelector('#device').options.length == 2 && "
                       "[...document.querySelector('#device').options].map((option) => option.text).join(' | ')") or ""
    check("the devices of a model are shown", "cpu" in found and "npu2" in found.lower(), found)
    choose(page, "device", "demo@xdna2")
    note = ask(page, "What is 7 plus 5?")
    check("an answer of the NPU says so", "ms on the device, modelled" in note, note)
    label = page.js("document.querySelector('article:last-of-type svg')?.getAttribute('aria-label')") or ""
    check("its timeline is told in words", label.startswith("Timeline: prompt ") and "modelled" in label, label)
    bars = page.js("[...document.querySelectorAll('article:last-of-type rect')].map((bar) => bar.getAttribute('class'))") or []
    check("and drawn: the prompt, then a bar a token", bars[:2] == ["reads", "writes"] and len(bars) > 8, bars)
    choose(page, "device", "demo")


def seeing(page, folder):
    choose(page, "model", "seeing")
    page.until("document.querySelector('#device').value == 'seeing'")
    page.js("document.querySelector('#max_tokens').value = 12")
    pictures = Path(__file__).resolve().parents[2] / "testdata/vision/images"
    root = page.call("DOM.getDocument")["root"]["nodeId"]
    node = page.call("DOM.querySelector", nodeId=root, selector="#images")["nodeId"]
    page.call("DOM.setFileInputFiles", nodeId=node, files=[str(pictures / "wide.png"), str(pictures / "tall.png")])
    check("images wait to be sent", page.until("document.querySelectorAll('#shown button').length == 2"))
    page.js("document.querySelectorAll('#shown button')[1].click()")
    note = ask(page, "What is this?")
    check("an image is read", "12 written" in note, note)
    check("and shown with its message", page.js("document.querySelectorAll('article.user img').length") == 1)
    page.picture(folder / "images.png")
    choose(page, "model", "demo")
    page.until("document.querySelector('#device').value == 'demo'")
    note = ask(page, "And now?")
    check("a model without vision says so", "no vision encoder" in note, note)
    check("and the message is given back", page.js("document.querySelector('#message').value") == "And now?")
    page.js("document.querySelector('#message').value = ''")
    page.js("document.querySelector('#max_tokens').value = ''")


def look(page, url):
    entries = [event for event in page.events if event["method"] in ("Runtime.exceptionThrown", "Log.entryAdded")]
    errors = [event for event in entries if event["params"].get("entry", {}).get("level") != "verbose"]
    # The image that was sent to a model without vision.
    refused = [event for event in errors if "status of 400" in event["params"].get("entry", {}).get("text", "")]
    check("no errors in the console but the one refusal", len(errors) == len(refused) == 1, errors[:2])
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
    seen = folder / "seeing"
    if not seen.exists():
        subprocess.run([binary, "synth", "gemma-tiny", str(seen), "--type", "F32", "--vision"], check=True)
    command = [binary, "serve", "demo", f"seeing={seen}", "--also-on", "xdna2", "--port", "0", "--quiet", "--ctx", "1024"]
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
