"""The command line of the agent, and the values that it accepts."""
import argparse
import json

from tools import problem

DEFAULT_TURNS = 50


def read_schema(path):
    with open(path, encoding="utf-8") as file:
        try:
            schema = json.load(file)
            problem({}, schema)
            return schema
        except (ValueError, TypeError, KeyError, AttributeError):
            raise ValueError(f"invalid schema {path}: expected a JSON Schema object") from None


def positive(kind):
    def read(text):
        value = kind(text)
        if not 0 < value <= 10 ** 6:
            raise ValueError
        return value
    read.__name__ = f"positive {kind.__name__} up to a million"  # argparse names it in its message
    return read


def prices(text):
    values = [float(each) for each in text.split(",")]
    if len(values) != 4 or not all(0 <= value < float("inf") for value in values):
        raise argparse.ArgumentTypeError(f"invalid price `{text}`: expected IN,OUT,CACHE_READ,CACHE_WRITE, for example 3,15,0.3,3.75")
    return values


def parse(arguments=None, for_task=True):
    """Reads the command line; a server of a protocol gets its tasks by the protocol."""
    parser = argparse.ArgumentParser(description="A small agent that ends well.")
    parser.add_argument("--max-turns", type=positive(int), help=f"responses of the model, with those of sub-agents [{DEFAULT_TURNS}]")
    parser.add_argument("--budget", type=positive(float), metavar="USD", help="ends the run with the call that reaches it")
    parser.add_argument("--price", type=prices, metavar="IN,OUT,CACHE_READ,CACHE_WRITE", help="USD per million tokens")
    parser.add_argument("--max-time", type=positive(float), metavar="S", help="seconds, also while a tool runs")
    parser.add_argument("--silence", type=positive(float), default=120, metavar="S",
                        help="seconds without content before a response is given up; a whole response may last five times that [120]")
    parser.add_argument("--tool-time", type=positive(float), default=120, metavar="S", help="seconds of a command [120]")
    parser.add_argument("--wrap-up", action="store_true", help="use the last allowed turn for a summary")
    parser.add_argument("--stop-hook", metavar="CMD", help="gets the answer as its input; exit status 2 vetoes it")
    parser.add_argument("--schema", metavar="FILE", help="JSON Schema of the answer")
    parser.set_defaults(resume=None)
    if for_task:
        parser.add_argument("--resume", metavar="FILE", help="keep the history in this file, and continue it if there is one")
        parser.add_argument("--json", action="store_true", help="write the final record to standard output")
        parser.add_argument("task", nargs="?", metavar="TASK")
    else:
        parser.add_argument("--port", type=int, default=0, help="port of a server of HTTP [a free one]")
    options = parser.parse_args(arguments)
    if for_task and not options.task and not options.resume:
        parser.error("missing TASK")
    return parser, options
