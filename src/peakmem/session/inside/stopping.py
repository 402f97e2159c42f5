"""End the script in an orderly way once enough was seen: `finally` blocks and exit handlers run, nothing is printed."""

import _io
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
    leaves = _stopped and getattr(sys, "last_value", None) is None  # an error has an exit code of its own
    if leaves or "torch" in sys.modules:
        _write_out()
    if leaves:
        ctypes.CDLL(None).fflush(None)
        os._exit(0)
    if "torch" in sys.modules:  # other programs that the script starts end as ever
        gc.freeze()  # where it must be taken down, most of that time goes into looking for circles of references


def _write_out():
    """Have all files that are open written: those that nobody has closed Python writes when it is taken down."""
    kinds = {}
    streams = [sys.stdout, sys.stderr]
    for thing in gc.get_objects():
        kind = type(thing)
        if kind not in kinds:
            kinds[kind] = issubclass(kind, _io._IOBase)
        if kinds[kind]:
            streams.append(thing)
    # What a text gives to its buffer comes before what the buffer gives to the file.
    for stream in sorted(streams, key=lambda found: not issubclass(type(found), _io._TextIOBase)):
        try:
            stream.flush()
        except Exception:  # closed, or put in its place by the script
            continue


def stop():
    """Raise `EnoughSeen`; should the process still be there after a grace period, it is ended the hard way."""
    global _stopped
    _stopped = True
    watchdog = threading.Timer(GRACE_SECONDS, os._exit, args=(0,))
    watchdog.daemon = True
    watchdog.start()
    raise EnoughSeen
