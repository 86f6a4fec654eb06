"""The list of endings, the exception that carries one, and the stop that wakes whatever waits."""
import contextlib
import threading

# Sentence 34: the reason is one of this list. The status groups the reasons; only one reason is a success.
REASONS = {
    "answered": "success",
    "max_turns": "limit", "budget": "limit", "max_time": "limit",
    "interrupted": "stopped", "terminated": "stopped",
    "output_limit": "failed", "filtered": "failed", "refused": "failed", "unknown_finish": "failed", "paused": "failed",
    "cut": "failed", "connection_lost": "failed", "silent": "failed", "too_large": "failed", "unreadable": "failed",
    "blank": "failed", "missing_call": "failed", "call_in_text": "failed",
    "provider_error": "failed", "rate_limited": "failed", "rejected": "failed", "context_too_long": "failed",
    "loop": "failed", "invalid_calls": "failed", "invalid_answer": "failed", "stop_hook": "failed",
    "permission_declined": "failed", "unfinished_work": "failed", "internal_error": "failed",
}
EXIT_STATUS = {"answered": 0, "interrupted": 130, "terminated": 143}


class Ended(Exception):
    """Ends the run without success. `finish` is the provider's word, if it had a part in the ending."""

    def __init__(self, reason, detail="", finish=None):
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason, self.detail, self.finish = reason, detail, finish


class Stop:
    """A request to end the run. The first reason counts, because later ones are its consequences."""

    def __init__(self):
        self.reason = None
        self._requested = threading.Event()
        self._lock = threading.Lock()
        self._wakers = []

    def request(self, reason):
        with self._lock:
            self.reason = self.reason or reason
            wakers = list(self._wakers)
        self._requested.set()
        for wake in wakers:
            wake()

    def check(self):
        if self.reason:
            raise Ended(self.reason)

    def wait(self, seconds):
        self._requested.wait(seconds)
        self.check()

    @contextlib.contextmanager
    def waking(self, wake):
        """Calls `wake` if the stop is requested during the block, and raises `Ended` then, whatever the block returns."""
        with self._lock:
            self._wakers.append(wake)
        try:
            self.check()
            yield
            self.check()
        except Exception:
            self.check()
            raise
        finally:
            with self._lock:
                self._wakers.remove(wake)
