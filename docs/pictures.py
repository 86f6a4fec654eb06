#!/usr/bin/env python3
"""Writes the pictures of the book: a card, the page of `explain`, the live page of `serve`, the report of a backtest.

    python3 docs/pictures.py --endstop target/debug/endstop --runs FOLDER

They show what the given command prints and draws, and go to docs/src/pictures. The report is of the recorded runs in a
folder, without it of those of the tests. It needs chromium, chromedriver, tmux and aha (Debian: `apt-get install chromium
chromium-driver tmux aha`). With `--out FOLDER --wide --dark --narrow` it also draws the pages at 1400 and 390 pixels and
dark, to be looked at.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "bench" / "serve"))

from page import Browser, Server, wait_for  # noqa: E402

RUNS = ROOT / "crates/endstop-trajectory/fixtures"


def at_terminal(command, folder):
    """Returns the screen of a terminal of 110 columns after a command, with its colours."""
    env = {"PATH": os.environ["PATH"], "HOME": str(folder), "TERM": "xterm-256color", "LANG": "C.UTF-8"}
    tmux = ["tmux", "-u", "-L", f"pictures-{os.getpid()}", "-f", "/dev/null"]
    shown = f"{command}; tmux -L pictures-{os.getpid()} wait-for -S done; exec sleep 60"
    run = dict(cwd=folder, env=env, check=True)
    subprocess.run([*tmux, "new-session", "-d", "-x", "110", "-y", "30", shown], **run)
    try:
        subprocess.run([*tmux, "wait-for", "done"], timeout=60, **run)
        return subprocess.run([*tmux, "capture-pane", "-e", "-p"], stdout=subprocess.PIPE, **run).stdout.strip()
    finally:
        subprocess.run([*tmux, "kill-server"], **run)


def terminal_page(printed, folder):
    """Returns the address of a page that shows what was printed."""
    text = subprocess.run(["aha", "--black", "--no-header"], input=printed, stdout=subprocess.PIPE, check=True).stdout.decode()
    file = folder / "terminal.html"
    style = "margin:0;padding:18px;background:#16181d;color:#e6e6e6;font:14px/1.45 'DejaVu Sans Mono',monospace;white-space:pre-wrap"
    file.write_text(f'<!doctype html><meta charset="utf-8"><body style="{style}"><div>{text.strip()}</div>')
    return f"file://{file}"


def shoot(browser, url, path, width, height=None):
    """Draws a page; without a height, as high as it is."""
    browser.size(width, height or 900)
    browser.open(url)
    if height is None:
        # What the window adds to its page, and no more than two screens.
        page, extra = browser.script(
            "return [Math.min(document.documentElement.scrollHeight, 1500), window.outerHeight - window.innerHeight]"
        )
        browser.size(width, page + extra)
    browser.shot(path)
    print(path)


def pages(endstop, runs, folder):
    """Returns the pages by name, except the live one."""
    card = terminal_page(at_terminal(f"{endstop} demo loop", folder), folder)
    env = {"PATH": os.environ["PATH"], "HOME": str(folder)}
    explain, backtest = folder / "explain.html", folder / "backtest.html"
    run = dict(cwd=folder, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    subprocess.run([endstop, "explain", "last", "--html", explain], check=True, **run)
    # Its status says whether a candidate is recommended.
    subprocess.run([endstop, "backtest", runs, "--sweep", "--report", backtest], **run)
    return {"card": card, "explain": f"file://{explain}", "backtest": f"file://{backtest}"}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--endstop", default="target/debug/endstop")
    parser.add_argument("--runs", type=Path, default=RUNS)
    parser.add_argument("--out", type=Path, default=ROOT / "docs/src/pictures")
    parser.add_argument("--wide", action="store_true", help="also at 1400 pixels")
    parser.add_argument("--narrow", action="store_true", help="also at 390 pixels")
    parser.add_argument("--dark", action="store_true", help="also dark")
    given = parser.parse_args()
    needed = ["chromedriver", "chromium", "tmux", "aha"]
    if missing := [name for name in needed if shutil.which(name) is None]:
        print(f"skipped: {', '.join(missing)} not installed (Debian: apt-get install chromium chromium-driver tmux aha)")
        return
    given.out.mkdir(parents=True, exist_ok=True)
    endstop = str(Path(given.endstop).resolve())
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        found = pages(endstop, given.runs.resolve(), folder)
        server = Server(endstop, folder)
        try:
            run = server.start("loop")
            server.ended(run)
            found["live"] = f"{server.url}/#run={run}"
            sizes = [("", 1000, False), ("-1400", 1400, False), ("-390", 390, False), ("-dark", 1000, True)]
            wanted = [True, given.wide, given.narrow, given.dark]
            for (suffix, width, dark), is_wanted in zip(sizes, wanted, strict=True):
                if not is_wanted:
                    continue
                browser = Browser("chromedriver", dark=dark)
                try:
                    for page, url in found.items():
                        shoot(browser, url, given.out / f"{page}{suffix}.png", width, 900 if page == "live" else None)
                        if page == "live":
                            wait_for("the ending", lambda: browser.text("#ending-rows"))
                            browser.shot(given.out / f"{page}{suffix}.png")
                finally:
                    browser.close()
        finally:
            server.stop()


if __name__ == "__main__":
    sys.exit(main())
