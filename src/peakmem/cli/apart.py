"""A forecast of training on the CPU from within a large process: a small one of its own makes it.

What the kernel tells of a child's memory begins with that of the process that made it, and exec does not forget it
(Linux, fs/exec.c: exec_mmap). A notebook that holds models would measure itself.
"""

from __future__ import annotations

import pickle
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from peakmem.errors import PeakmemError

if TYPE_CHECKING:
    from peakmem.cli.generated import Written
    from peakmem.cli.planning import RunOptions
    from peakmem.forecast.cpu import CpuForecast

_START = "import sys; sys.path[0] = sys.argv.pop(1); from peakmem.cli.apart import main; main(*sys.argv[1:])"
_ENDING_SECONDS = 20
"""How long the small process may take to end what it has started."""


def forecast_on_cpu_apart(written: Written, options: RunOptions) -> CpuForecast:
    """Make the forecast of a training script on the CPU in a process of its own.

    Raises:
        PeakmemError: the model can't be trained so.
    """
    with tempfile.TemporaryDirectory(prefix="peakmem-predict-") as folder:
        asked, answered = Path(folder, "asked.pickle"), Path(folder, "answered.pickle")
        asked.write_bytes(pickle.dumps((written, options)))
        root = Path(__file__).parents[2]
        process = subprocess.Popen(
            [sys.executable, "-c", _START, root, asked, answered],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,  # an interrupt is passed on below, once
        )
        try:
            _, complaints = process.communicate()
        except KeyboardInterrupt:
            process.send_signal(signal.SIGINT)
            _, complaints = _ending(process)
        try:
            answer: CpuForecast | PeakmemError = pickle.loads(answered.read_bytes())  # our own process wrote it
        except (OSError, EOFError, pickle.UnpicklingError):
            raise PeakmemError(
                f"the process that makes the forecast ended with exit code {process.returncode}",
                hint=complaints[-2000:],
            ) from None
    if isinstance(answer, PeakmemError):
        raise answer
    return answer


def _ending(process: subprocess.Popen[str]) -> tuple[str, str]:
    """Wait for an interrupted process, which ends what it has started; not for ever, nor through a second interrupt."""
    try:
        return process.communicate(timeout=_ENDING_SECONDS)
    except (subprocess.TimeoutExpired, KeyboardInterrupt):
        process.kill()
        process.communicate()
        raise KeyboardInterrupt from None


def main(asked: str, answered: str) -> None:
    """Make the forecast, in the small process.

    Args:
        asked: the file with what is to be trained.
        answered: the file for the forecast, or the error that there is none.
    """
    from peakmem.cli.forecasting import Silent
    from peakmem.cli.predicting_cpu import forecast_script_on_cpu

    written, options = pickle.loads(Path(asked).read_bytes())
    answer: CpuForecast | PeakmemError
    try:
        answer, _ = forecast_script_on_cpu(written, options, Silent())
    except PeakmemError as error:
        answer = PeakmemError(error.message, hint=error.hint, exit_code=error.exit_code)
    Path(answered).write_bytes(pickle.dumps(answer))
