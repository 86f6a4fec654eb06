"""A conversation and what has started in it, written line by line so that a killed process loses nothing that matters."""
import json
import os

LOST = "This call had started when its run was interrupted, and its result is not known. It was not repeated."
NOT_RUN = "Not run: the run ended before this call."


class Session:
    """Messages of a run. With a path, each line is on the disk before what it announces happens."""

    def __init__(self, path=None):
        self.messages, self.started = [], set()
        self.limits, self.used = {}, {}
        if path and os.path.exists(path):
            self._read(path)
        self._file = open(path, "a", encoding="utf-8") if path else None
        self.unknown = self.recover()

    def _read(self, path):
        whole = 0
        with open(path, "rb") as lines:
            for number, line in enumerate(lines, 1):
                if not line.endswith(b"\n"):
                    break  # the process was killed while it wrote this line
                try:
                    record = json.loads(line)
                    if "message" in record:
                        self.messages.append(record["message"])
                    self.started |= {record["started"]} if "started" in record else set()
                    self.limits = record.get("limits", self.limits)
                    self.used = record.get("used", self.used)
                except (ValueError, TypeError, AttributeError):
                    raise ValueError(f"invalid session: {path}, line {number}: expected a line that --resume wrote") from None
                whole += len(line)
        os.truncate(path, whole)

    def write(self, **record):
        if self._file:
            self._file.write(json.dumps(record) + "\n")
            self._file.flush()
            os.fsync(self._file.fileno())

    def say(self, role, content, **fields):
        message = {"role": role, "content": content, **fields}
        self.messages.append(message)
        self.write(message=message)

    def start(self, call):
        """Records that a body starts, before it does (sentence 31)."""
        self.started.add(call)
        self.write(started=call)

    def open_calls(self):
        """Calls without a result, in their order."""
        answered = {message.get("tool_call_id") for message in self.messages}
        calls = [call["id"] for message in self.messages for call in message.get("tool_calls", [])]
        return [call for call in calls if call not in answered]

    def close_calls(self, started):
        """Gives each open call a result, so that a provider accepts the history after any ending (sentence 29)."""
        for call in self.open_calls():
            self.say("tool", started if call in self.started else NOT_RUN, tool_call_id=call)

    def recover(self):
        """Returns the calls whose bodies a killed process had started. They are not repeated (sentence 31)."""
        unknown = [call for call in self.open_calls() if call in self.started]
        self.close_calls(LOST)
        return unknown

    def ids(self):
        return {call["id"] for message in self.messages for call in message.get("tool_calls", [])}

    def for_provider(self):
        """The messages with neighbours of one role joined, since roles have to alternate."""
        joined = []
        for message in self.messages:
            last = joined[-1] if joined else {"role": None}
            if message["role"] == last["role"] != "tool" and "tool_calls" not in last:
                joined[-1] = {**message, "content": "\n\n".join(filter(None, [last["content"], message["content"]]))}
            else:
                joined.append(message)
        return joined
