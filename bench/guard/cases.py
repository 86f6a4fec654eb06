"""The cases of every client, and what is right in each."""
import os

import compare
import trial

PRICE = "in=3,out=15"
# Seconds. Some clients need a long time for their first call on a loaded machine.
TIMEOUT = 90


def untouched(lab, client, folder, endstop):
    scenario = {"end": client.more.get("end")}
    direct = trial.run(lab, client, folder, scenario)
    guarded = trial.run(lab, client, folder, scenario, [endstop])
    faults = compare.differences(direct, guarded)
    if not client.more.get("tools", True):
        return guarded, faults
    # mini-SWE-agent ends its work with a command.
    if guarded.ending not in ("stop", "submitted"):
        faults.append(f"ending {guarded.ending}")
    return guarded, faults


def ended(result, ending, calls=None):
    """The faults of a run that Endstop should have ended."""
    faults = []
    if result.hung:
        faults.append("hung")
    if result.ending != ending:
        faults.append(f"ending {result.ending}, expected {ending}")
    if result.outcome and result.status != STATUS.get(ending):
        faults.append(f"exit {result.status}, expected {STATUS.get(ending)}")
    made = sum(request["kind"] == "main" for request in result.requests)
    if calls is not None and made != calls:
        faults.append(f"{made} main calls reached the provider, expected {calls}")
    return faults


# The documented exit status of each ending.
STATUS = {"error_max_turns": 20, "error_max_budget_usd": 20, "error_timeout": 20, "error_no_progress": 20, "cancelled": 130}


def turns(lab, client, folder, endstop):
    if not client.more.get("tools", True):
        # It offers no tools, so its calls are no turns.
        return None, []
    result = trial.run(lab, client, folder, {"turns": 60}, [endstop, "--max-turns", "2"])
    return result, ended(result, "error_max_turns", 2)


def dollars(lab, client, folder, endstop):
    options = [endstop, "--max-budget-usd", "0.07", "--price", PRICE]
    result = trial.run(lab, client, folder, {"turns": 60, "input": 10000}, options)
    if not client.more.get("tools", True):
        return result, []
    faults = ended(result, "error_max_budget_usd")
    if not 1 <= sum(request["kind"] == "main" for request in result.requests) <= 3:
        faults.append("calls after the money was spent")
    return result, faults


def timeout(lab, client, folder, endstop):
    tools = client.more.get("tools", True)
    result = trial.run(lab, client, folder, {"turns": 60, "hang": int(tools), "tools": tools}, [endstop, "--timeout", f"{TIMEOUT}s"])
    result.seconds = result.wall - TIMEOUT
    # A client that starts slowly has not begun a stream, so nothing was shown.
    early = [] if any(request["format"] for request in result.requests) else ["the time was over before the first call"]
    return result, ended(result, "error_timeout") + early


def loop(lab, client, folder, endstop):
    if not client.more.get("tools", True):
        return None, []
    options = [endstop, "--watch", "stop:stuck", "--max-turns", "50"]
    result = trial.run(lab, client, folder, {"turns": 100, "command": "echo the same"}, options)
    return result, ended(result, "error_no_progress")


def interrupted(lab, client, folder, endstop):
    tools = client.more.get("tools", True)
    scenario = {"turns": 60, "command": "touch started; sleep 400"} if tools else {"hang": 0, "tools": False}

    def ready(provider, work):
        return os.path.exists(os.path.join(work, "started")) if tools else provider.calls()

    result = trial.run(lab, client, folder, scenario, [endstop], when=ready)
    return result, ended(result, "cancelled")


CASES = {"untouched": untouched, "turns": turns, "dollars": dollars, "timeout": timeout, "loop": loop, "Ctrl-C": interrupted}
