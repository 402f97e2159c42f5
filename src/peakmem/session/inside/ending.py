"""How the script ended: noticed whatever way it ends, and told to the other side in plain values."""

import atexit
import os
import sys
import threading
import traceback

from . import stopping


class Ending:
    """What is watched in a process until its end, and then written once.

    Attributes:
        writer: tells the other side.
    """

    def __init__(self, writer):
        self.writer = writer
        self._pid = os.getpid()
        self._finished = False
        self._error = None
        self._lock = threading.RLock()  # a signal handler may end the process while it is held

    def watch_the_end(self):
        """Finish when the script ends: by itself, by an error, or without exit handlers."""
        atexit.register(self.finish, "end")
        original = sys.excepthook

        def excepthook(kind, error, trace):
            if isinstance(error, stopping.EnoughSeen):
                return
            self._error = self._described(kind, error, trace)
            original(kind, error, trace)

        sys.excepthook = excepthook
        leave = os._exit

        def _exit(status):
            # Neither exit handlers nor `finally` blocks run: scripts end so, and so do forked processes.
            self.finish("end")
            leave(status)

        os._exit = _exit

    def finish(self, reason):
        """Write what was seen, once."""
        with self._lock:
            if self._finished or os.getpid() != self._pid:
                return
            self._finished = True
        last = getattr(sys, "last_value", None)  # uncaught, and told to a hook that took the place of ours
        if self._error is None and last is not None:
            self._error = self._described(type(last), last, last.__traceback__)
        try:
            self._write(reason)
        except OSError as error:
            self.writer.progress("unwritten", reason=str(error))
        except Exception as error:  # no fault of the script's: it ends as it would, and the other side tells
            self.writer.progress("broken", reason=f"{type(error).__name__}: {error}")

    def _described(self, kind, error, trace):
        return describe_error(kind, error, trace)

    def _write(self, reason):
        """Write what was seen; nothing but the error, if there was one, where nothing was seen."""
        raise NotImplementedError


def describe_error(kind, error, trace):
    """An uncaught error, as the recording has it."""
    frames = traceback.extract_tb(trace)
    try:
        message = str(error)
    except Exception:
        message = "(its message can't be told)"
    return {
        "type": f"{kind.__module__}.{kind.__qualname__}",
        "message": message[:8000],
        "frames": [(f.filename, f.lineno, f.name) for f in frames][-60:],
        "memory": any("OutOfMemoryError" in type(cause).__name__ for cause in chain(error)),
    }


def chain(error):
    """An error and those that it came from, innermost last."""
    for _ in range(50):
        if error is None:
            return
        yield error
        error = error.__cause__ or error.__context__
