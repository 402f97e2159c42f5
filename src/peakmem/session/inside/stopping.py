"""End the script in an orderly way once enough was seen: `finally` blocks and exit handlers run, nothing is printed."""

import atexit
import ctypes
import gc
import os
import sys
import threading

GRACE_SECONDS = 10
_stopped = False
_early = False


class EnoughSeen(SystemExit):
    """Raised in the training loop after the last step that peakmem needs.

    It is a `SystemExit`, which scripts and trainers let pass, with the exit code 0.
    """

    def __init__(self):
        super().__init__(0)


def install():
    """Be the first to ask for an exit handler, so that ours is the last to run."""
    atexit.register(_leave)


def leave_early():
    """Nobody asks what the process takes while Python and torch are taken down: let it end with its exit handlers."""
    global _early
    _early = True


def _leave():
    """Leave without taking torch down, which takes half as long as importing it, once all exit handlers have run."""
    if not _early:
        return
    gc.freeze()  # where it must be taken down, most of that time goes into looking for circles of references
    if not _stopped or getattr(sys, "last_value", None) is not None:  # they have exit codes of their own
        return
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:  # closed, or put in its place by the script
            continue
    ctypes.CDLL(None).fflush(None)
    os._exit(0)


def stop():
    """Raise `EnoughSeen`; should the process still be there after a grace period, it is ended the hard way."""
    global _stopped
    _stopped = True
    watchdog = threading.Timer(GRACE_SECONDS, os._exit, args=(0,))
    watchdog.daemon = True
    watchdog.start()
    raise EnoughSeen
