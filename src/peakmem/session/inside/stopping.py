"""End the script in an orderly way once enough was seen: `finally` blocks and exit handlers run, nothing is printed."""

import os
import threading

GRACE_SECONDS = 10


class EnoughSeen(SystemExit):
    """Raised in the training loop after the last step that peakmem needs.

    It is a `SystemExit`, which scripts and trainers let pass, with the exit code 0.
    """

    def __init__(self):
        super().__init__(0)


def stop():
    """Raise `EnoughSeen`; should the process still be there after a grace period, it is ended the hard way."""
    watchdog = threading.Timer(GRACE_SECONDS, os._exit, args=(0,))
    watchdog.daemon = True
    watchdog.start()
    raise EnoughSeen
