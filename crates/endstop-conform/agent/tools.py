"""What the model can call: the schemas of the tools, commands that end, and a check of values against a schema."""
import os
import subprocess
import sys
import threading

SUPERVISE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "supervise.py")
OUTPUT = 20_000  # characters of a command's output that the model gets; the rest is read and dropped


def tool(name, description, required, **properties):
    return {"type": "function", "function": {"name": name, "description": description, "parameters": {
        "type": "object", "properties": properties, "required": required, "additionalProperties": False}}}


TEXT = {"type": "string"}
TOOLS = [
    tool("shell", "Runs a command with sh. Processes that it leaves behind are ended with it, unless `background` is true: then the"
         " command runs next to the conversation, and its output arrives later.", ["command"], command=TEXT,
         background={"type": "boolean"}),
    tool("task", "Gives a task to a sub-agent, and returns its answer.", ["prompt"], prompt=TEXT),
    tool("finish", "Ends the run with the answer.", ["answer"], answer=TEXT),
    tool("deploy", "Deploys to a target. Needs the permission of a person.", ["target"], target=TEXT),
]


class Command:
    """A shell command under a supervisor, which ends its process tree when `end` is called or this process is gone."""

    def __init__(self, text, stdin=subprocess.DEVNULL):
        self.text = text
        self._output, self._length = [], 0
        self._lock = threading.Lock()
        self.process = self._start(text, stdin)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _start(self, text, stdin):
        theirs, self._lifeline = os.pipe()
        # The key of the provider is not for commands that a model wrote.
        environment = {key: value for key, value in os.environ.items() if key != "OPENAI_API_KEY"}
        try:
            return subprocess.Popen([sys.executable, "-I", "-S", SUPERVISE, str(theirs), text], stdin=stdin, stdout=subprocess.PIPE,
                                    stderr=subprocess.STDOUT, pass_fds=(theirs,), start_new_session=True, env=environment)
        finally:
            os.close(theirs)

    def _read(self):
        for chunk in iter(lambda: self.process.stdout.read1(65536), b""):
            if self._length < OUTPUT:
                self._output.append(chunk[:OUTPUT - self._length])
            self._length += len(chunk)

    def end(self):
        with self._lock:
            lifeline, self._lifeline = self._lifeline, None
        if lifeline is not None:
            os.close(lifeline)

    def wait(self, seconds):
        """Returns whether the command has ended within this time."""
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        self._reader.join(1)
        self.end()
        return True

    def output(self):
        text = b"".join(self._output).decode("utf-8", "replace")
        return text + (f"\n[{self._length - OUTPUT} bytes more]" if self._length > OUTPUT else "")

    def result(self):
        status = self.process.returncode
        return self.output() + (f"\n[exit status {status}]" if status else "")


TYPES = {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None), "integer": int, "number": (int, float)}


def problem(value, schema, where="the value"):
    """Names the first difference between a value and the part of JSON Schema that this agent uses, or returns None."""
    kinds = schema.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    of_kind = [kind for kind in kinds if isinstance(value, TYPES[kind]) and (kind == "boolean" or not isinstance(value, bool))]
    if kinds and not of_kind:
        return f"{where} must be of type {' or '.join(kinds)}"
    if "enum" in schema and value not in schema["enum"]:
        return f"{where} must be one of {schema['enum']}"
    if isinstance(value, list):
        found = (problem(each, schema.get("items", {}), f"{where}[{index}]") for index, each in enumerate(value))
        return next(filter(None, found), None)
    if isinstance(value, dict):
        properties = schema.get("properties", {})
        for name in schema.get("required", []):
            if name not in value:
                return f"{where} must have the field `{name}`"
        for name, each in value.items():
            if name not in properties and schema.get("additionalProperties") is False:
                return f"{where} must not have the field `{name}`"
            found = problem(each, properties.get(name, {}), f"`{name}`")
            if found:
                return found
    return None
