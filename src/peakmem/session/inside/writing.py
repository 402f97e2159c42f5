"""Files of the session's folder that this process writes: progress lines, and what it saw."""

import contextlib
import json
import os
import pickle


class Writer:
    """Writes `progress.jsonl` (shared by all processes) and `process-PID.pickle`; the CPU's library `end-PID.json`."""

    def __init__(self, folder):
        self._folder = folder

    def progress(self, event, **fields):
        """Add one line for the progress display; a failure to write it is of no consequence."""
        line = json.dumps({"pid": os.getpid(), "event": event, **fields}) + "\n"
        try:
            with open(os.path.join(self._folder, "progress.jsonl"), "a", encoding="utf-8") as file:
                file.write(line)
        except OSError:
            pass

    def at_end(self):
        """The file for what can be told only when Python is gone."""
        return os.path.join(self._folder, f"end-{os.getpid()}.json")

    def recording(self, recording):
        """Write what the process saw, whole or not at all.

        Raises:
            OSError: the folder can't be written to.
        """
        path = os.path.join(self._folder, f"process-{os.getpid()}.pickle")
        try:
            with open(path + ".part", "wb") as file:
                pickle.dump(recording, file, protocol=4)
            os.replace(path + ".part", path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(path + ".part")
            raise


def plain(value):
    """A value with nothing in it but exact dicts, lists, tuples, strings, bytes and numbers.

    Names and sizes come from the script and its packages, whose strings and integers may be of classes of their own:
    sizes are tensors while `torch.jit.trace` runs, and symbols while a graph is exported.
    """
    kind = type(value)
    if kind in _EXACT:
        return value
    if kind in (list, tuple):
        return kind(map(plain, value))
    if kind is dict:
        return {plain(key): plain(item) for key, item in value.items()}
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, (tuple, list)):
        return tuple(map(plain, value))
    try:
        return float(value) if isinstance(value, float) else int(value)
    except Exception:
        return str(kind)


_EXACT = frozenset((str, int, float, bool, bytes, type(None)))
