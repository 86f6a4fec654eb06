"""A full-screen agent, as far as its terminal is concerned. Keys: c calls the model, z suspends the program, q leaves it.

With the argument `lines` it is a program that reads lines instead, and that Ctrl-C only interrupts.
"""
import json, os, signal, sys, termios, tty, urllib.error, urllib.request

messages = []


def call():
    messages.append({"role": "user", "content": f"question {len(messages)}"})
    body = {"model": "gpt-4o", "messages": messages,
            "tools": [{"type": "function", "function": {"name": "work", "parameters": {}}}]}
    url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
    request = urllib.request.Request(url, json.dumps(body).encode(), {"content-type": "application/json"})
    try:
        answer = json.load(urllib.request.urlopen(request))
    except urllib.error.HTTPError as error:
        messages.pop()
        return "refused: " + json.load(error)["error"]["message"]
    text = answer["choices"][0]["message"]["content"]
    messages.append({"role": "assistant", "content": text})
    return "answer: " + text


def lines():
    while True:
        try:
            print("ask")
            if input() == "quit":
                return
            print(call(), flush=True)
        except KeyboardInterrupt:
            print("interrupted", flush=True)
        except EOFError:
            return


ON = "\x1b[?1049h\x1b[?1000h\x1b[?1002h\x1b[?1006h\x1b[?2004h\x1b[?1h\x1b=\x1b[?25l\x1b[>7u\x1b[2;5r"
OFF = "\x1b[r\x1b[<u\x1b[?25h\x1b>\x1b[?1l\x1b[?2004l\x1b[?1006l\x1b[?1002l\x1b[?1000l\x1b[?1049l"


def show(text):
    sys.stdout.write("\x1b[H\x1b[2J" + text + "\x1b[3;7H")
    sys.stdout.flush()


def draw(on):
    tty.setraw(0) if on else termios.tcsetattr(0, termios.TCSADRAIN, before)
    sys.stdout.write(ON if on else OFF)
    sys.stdout.flush()


if sys.argv[1:] == ["lines"]:
    lines()
    sys.exit()
# Like several real agents: a signal ends it, and nothing is restored.
signal.signal(signal.SIGINT, signal.SIG_DFL)
signal.signal(signal.SIGWINCH, lambda *_: show(f"rows {os.get_terminal_size().lines}"))
before = termios.tcgetattr(0)
draw(True)
show("ready")
while True:
    key = os.read(0, 1)
    if key == b"c":
        show(call())
    elif key == b"z":
        draw(False)
        os.kill(0 if "group" in sys.argv else os.getpid(), signal.SIGTSTP)
        draw(True)
        show("continued")
    elif key in (b"q", b""):
        draw(False)
        sys.exit()
