"""Runs one command for the agent, and ends its whole process tree with the command or with the agent.

    python3 supervise.py FD COMMAND

FD is the read end of a pipe that only the agent holds open. The pipe also closes if the agent is killed, which no signal handler in
the agent could see (X-03). This is a program of its own because it has to outlive the agent.
"""
import ctypes
import os
import select
import signal
import sys
import threading
import time

SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER of Linux: orphans of the tree become our children, also if they left its group.
PROC = os.path.isdir("/proc/self")
GRACE = 0.5  # seconds between SIGTERM and SIGKILL


def descendants():
    """Pids of the living processes below this one; without /proc (macOS) an empty list, and the group has to do."""
    children = {}
    for name in os.listdir("/proc") if PROC else []:
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat") as stat:
                    state, parent = stat.read().rsplit(")", 1)[1].split()[:2]
            except OSError:
                continue  # ended while the list was read
            if state != "Z":
                children.setdefault(int(parent), []).append(int(name))
    found, todo = [], [os.getpid()]
    while todo:
        below = children.get(todo.pop(), [])
        found += below
        todo += below
    return found


def send(kill, pid, number):
    try:
        kill(pid, number)
        return True
    except OSError:
        return False  # ended in the meantime


def end_tree(group):
    started = time.monotonic()
    while True:
        number = signal.SIGTERM if time.monotonic() - started < GRACE else signal.SIGKILL
        tree = descendants()
        alive = [send(os.kill, pid, number) for pid in tree]
        if not send(os.killpg, group, number) and not alive or PROC and not tree:
            return
        time.sleep(0.05)


def end_with_agent(fd, group):
    os.read(fd, 1)  # the agent writes nothing: this returns when the pipe closes
    end_tree(group)


def main():
    fd, command = int(sys.argv[1]), sys.argv[2]
    try:
        ctypes.CDLL(None).prctl(SUBREAPER, 1, 0, 0, 0)
    except (OSError, AttributeError):
        pass  # not Linux
    if select.select([fd], [], [], 0)[0]:
        return 1  # the agent has ended before the command could start
    pid = os.fork()
    if pid == 0:
        os.setsid()
        os.close(fd)
        os.execv("/bin/sh", ["sh", "-c", command])
    threading.Thread(target=end_with_agent, args=(fd, pid), daemon=True).start()
    status = os.waitpid(pid, 0)[1]
    end_tree(pid)  # what the command left behind
    return os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)


if __name__ == "__main__":
    sys.exit(main())
