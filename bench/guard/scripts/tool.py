"""The tool of the Python scripts: a shell command."""
import subprocess

SCHEMA = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}


def run(command):
    return subprocess.run(command, shell=True, capture_output=True, text=True).stdout
