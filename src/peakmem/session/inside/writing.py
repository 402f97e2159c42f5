"""Files of the session's folder that this process writes: progress lines, and what it saw."""

import contextlib
import json
import os
import pickle


class Writer:
    """Writes `progress.jsonl` (shared by all processes) and `process-PID.pickle`."""

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
        except OSError as error:
            with contextlib.suppress(OSError):
                os.unlink(path + ".part")
            self.progress("unwritten", reason=str(error))
            raise
