#!/usr/bin/env python3
"""Drives the live page of `endstop serve` in Chromium by WebDriver, with Python's standard library only.

    python3 bench/serve/page.py --endstop target/debug/endstop --shots target/page

A run is cancelled and another one approved by clicks and by keyboard, hostile text stays text, and a token is asked for.
Screenshots (wide, narrow, dark) go to the folder of --shots. Without chromium and chromedriver it prints a notice and succeeds.
"""

import argparse
import base64
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
DEADLINE = 120
HOSTILE = "<img src=x onerror=\"window.owned=1\"><script>window.owned=1</script><b>bold</b>"


def wait_for(what, condition):
    """Waits until a condition is true; the deadline is only there for a page that hangs."""
    end = time.monotonic() + DEADLINE
    while time.monotonic() < end:
        found = condition()
        if found:
            return found
        time.sleep(0.05)
    raise SystemExit(f"it never came: {what}")


class Server:
    """A running `endstop serve`."""

    def __init__(self, endstop, folder, token=None):
        env = {**os.environ, "XDG_STATE_HOME": str(folder), "XDG_CONFIG_HOME": str(folder)}
        env.pop("ENDSTOP_SERVE_TOKEN", None)
        if token:
            env["ENDSTOP_SERVE_TOKEN"] = token
        args = [endstop, "serve", "--listen", "127.0.0.1:0", "--journal", "journal.db", "--grace", "100ms", "--json"]
        self.process = subprocess.Popen(args, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.url = "http://" + json.loads(self.process.stdout.readline())["address"]
        self.token = token

    def ask(self, path, body=None):
        headers = {"content-type": "application/json"}
        if self.token:
            headers["authorization"] = f"Bearer {self.token}"
        data = json.dumps(body).encode() if body is not None else None
        with urllib.request.urlopen(urllib.request.Request(self.url + path, data, headers), timeout=DEADLINE) as answer:
            return json.load(answer)

    def start(self, task):
        return self.ask("/v1/runs", {"agent": "demo", "task": task})["run_id"]

    def ended(self, run):
        return wait_for(f"the end of {run}", lambda: (r := self.ask(f"/v1/runs/{run}"))["state"] == "ended" and r)

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.communicate(timeout=DEADLINE)


class Browser:
    """A WebDriver session."""

    def __init__(self, driver, dark=False):
        self.process = subprocess.Popen([driver, "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        port = None
        for line in self.process.stdout:
            if "started successfully on port" in line:
                port = line.split("port ")[1].strip().rstrip(".")
                break
        self.base = f"http://127.0.0.1:{port}"
        args = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        if dark:
            args.append("--blink-settings=preferredColorScheme=0")
        options = {"args": args}
        capabilities = {"browserName": "chrome", "goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
        session = self.call("POST", "/session", {"capabilities": {"alwaysMatch": capabilities}})
        self.session = f"/session/{session['sessionId']}"

    def call(self, method, path, body=None):
        data = json.dumps(body).encode() if body is not None else None
        request = urllib.request.Request(self.base + path, data, {"content-type": "application/json"}, method=method)
        with urllib.request.urlopen(request, timeout=DEADLINE) as answer:
            return json.load(answer)["value"]

    def open(self, url):
        self.call("POST", self.session + "/url", {"url": url})

    def script(self, code, *args):
        return self.call("POST", self.session + "/execute/sync", {"script": code, "args": list(args)})

    def find(self, css):
        """Returns the element once it can be clicked."""
        seen = "const e = document.querySelector(arguments[0]); return e && e.getClientRects().length > 0 && !e.disabled ? e : null"
        return wait_for(css, lambda: self.script(seen, css))[ELEMENT]

    def click(self, css):
        self.call("POST", f"{self.session}/element/{self.find(css)}/click", {})

    def type(self, css, text):
        self.call("POST", f"{self.session}/element/{self.find(css)}/value", {"text": text})

    def keys(self, *keys):
        actions = [{"type": step, "value": key} for key in keys for step in ("keyDown", "keyUp")]
        source = {"type": "key", "id": "keyboard", "actions": actions}
        self.call("POST", self.session + "/actions", {"actions": [source]})

    def text(self, css):
        return self.script("return document.querySelector(arguments[0])?.textContent || ''", css)

    def size(self, width, height):
        self.call("POST", self.session + "/window/rect", {"width": width, "height": height})

    def shot(self, path):
        path.write_bytes(base64.b64decode(self.call("GET", self.session + "/screenshot")))

    def log(self):
        return self.call("POST", self.session + "/se/log", {"type": "browser"})

    def close(self):
        try:
            self.call("DELETE", self.session)
        finally:
            self.process.terminate()
            self.process.wait()


def check(what, holds, found=""):
    print(("ok    " if holds else "FAILED ") + what + (f": {found}" if not holds else ""))
    if not holds:
        raise SystemExit(1)


def cancel_by_click(server, page, shots):
    run = server.start("cancel")
    page.open(f"{server.url}/#run={run}")
    wait_for("streamed text", lambda: "word after word" in page.text("#timeline"))
    page.shot(shots / "running.png")
    page.click("#cancel")
    page.shot(shots / "confirm.png")
    page.click("#confirm-no")
    check("a cancel that is not confirmed changes nothing", not server.ask(f"/v1/runs/{run}")["stopping"])
    page.click("#cancel")
    page.click("#confirm-yes")
    ended = server.ended(run)
    check("a click cancels the run", ended["termination"] == "cancelled", ended)
    wait_for("the ending on the page", lambda: "cancelled" in page.text("#ending-rows"))


def approve_by_click(server, page, shots):
    run = server.start("approve")
    page.open(f"{server.url}/#run={run}")
    page.find(".approval .allow")
    page.shot(shots / "approval.png")
    while server.ask(f"/v1/runs/{run}")["state"] != "ended":
        if not page.script("return document.querySelector('.approval .allow')"):
            time.sleep(0.05)
            continue
        page.click(".approval .allow")
        page.click("#confirm-yes")
    ended = server.ended(run)
    check("clicks approve the calls", ended["termination"] == "submitted", ended)
    wait_for("the answer on the page", lambda: "calc.sh subtracted" in page.text("#ending-rows"))
    page.shot(shots / "ended.png")


def terminate_by_keyboard(server, page):
    run = server.start("cancel")
    page.open(f"{server.url}/#run={run}")
    page.find("#terminate")
    page.script("document.querySelector('#terminate').focus()")
    page.keys("\ue007")  # Enter
    page.find("#confirm-yes")
    check("the harmless choice has the focus", page.script("return document.activeElement.id") == "confirm-no")
    # Shift+Tab to the other choice, and Enter.
    source = {"type": "key", "id": "keyboard", "actions": [
        {"type": "keyDown", "value": "\ue008"}, {"type": "keyDown", "value": "\ue004"},
        {"type": "keyUp", "value": "\ue004"}, {"type": "keyUp", "value": "\ue008"},
    ]}
    page.call("POST", page.session + "/actions", {"actions": [source]})
    check("Shift+Tab reaches it", page.script("return document.activeElement.id") == "confirm-yes")
    page.keys("\ue007")
    check("the keyboard terminates the run", server.ended(run)["termination"] == "terminated")
    page.keys("\ue00c")  # Escape
    wait_for("the list", lambda: page.script("return location.hash") == "")


def hostile_text(server, page):
    run = server.start(HOSTILE)
    server.ended(run)
    page.open(f"{server.url}/#run={run}")
    wait_for("the task", lambda: page.text("#detail-task") == HOSTILE)
    made = page.script("return document.querySelectorAll('main img, main script, main b').length")
    check("text of a run makes no element", made == 0, made)
    check("text of a run runs no code", page.script("return window.owned === undefined"))


def filters(server, page):
    page.open(server.url + "/")
    page.click("[data-filter='category=fatal']")
    wait_for("the filter", lambda: page.text("#runs") and "submitted" not in page.text("#runs"))
    check("a filter shows one category", "cancelled" in page.text("#runs"), page.text("#runs"))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--endstop", default="target/debug/endstop")
    parser.add_argument("--shots", default="target/page")
    given = parser.parse_args()
    driver = shutil.which("chromedriver")
    if not driver or not (shutil.which("chromium") or shutil.which("google-chrome")):
        print("skipped: chromium and chromedriver are not installed (Debian: apt-get install chromium chromium-driver)")
        return
    shots = Path(given.shots)
    shots.mkdir(parents=True, exist_ok=True)
    endstop = str(Path(given.endstop).resolve())
    with tempfile.TemporaryDirectory() as folder:
        server, page = Server(endstop, folder), Browser(driver)
        try:
            page.size(1280, 900)
            cancel_by_click(server, page, shots)
            approve_by_click(server, page, shots)
            terminate_by_keyboard(server, page)
            hostile_text(server, page)
            filters(server, page)
            page.click("[data-filter='']")
            page.shot(shots / "wide.png")
            page.size(420, 860)
            page.shot(shots / "narrow.png")
            page.keys("\ue004")
            fits = page.script("return document.documentElement.scrollWidth <= document.documentElement.clientWidth")
            check("the narrow page does not scroll sideways", fits)
            problems = [line for line in page.log() if "Content Security Policy" in line["message"] or line["source"] == "javascript"]
            check("the policy and the scripts report no problem", not problems, problems)
        finally:
            page.close()
        page = Browser(driver, dark=True)
        try:
            page.size(1280, 900)
            page.open(server.url + "/")
            page.find("#runs button")
            page.shot(shots / "dark.png")
            dark = page.script("return matchMedia('(prefers-color-scheme: dark)').matches")
            check("the dark page is dark", dark)
        finally:
            page.close()
            server.stop()
    with tempfile.TemporaryDirectory() as folder:
        token = "page-token-0123456789"
        server, page = Server(endstop, folder, token), Browser(driver)
        try:
            page.open(server.url + "/")
            page.type("#token", token)
            page.click("#use-token")
            page.find("#runs, #empty")
            stored = page.script("return JSON.stringify([{...localStorage}, {...sessionStorage}, document.cookie, location.href])")
            check("the token is not stored", token not in stored, stored)
        finally:
            page.close()
            server.stop()


if __name__ == "__main__":
    sys.exit(main())
