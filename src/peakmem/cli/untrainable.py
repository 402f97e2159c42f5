"""Why a model that `peakmem predict` was asked about could not be trained, in words that fit no script."""

from __future__ import annotations

from typing import TYPE_CHECKING

from peakmem.cli.generated import NAME
from peakmem.errors import ExitCode, PeakmemError
from peakmem.session.failing import FailedEarlyError
from peakmem.session.printed import last_words, without_frames

if TYPE_CHECKING:
    from peakmem.cli.describing import Collecting
    from peakmem.forecast.model import ScriptError
    from peakmem.session.running import Ended
    from peakmem.workload.model import Workload

_PLAIN = ("SystemExit", "RuntimeError", "exit")
"""Kinds of errors that say nothing beside their message."""


def plainer(error: PeakmemError, workload: Workload) -> PeakmemError:
    """The same error in words that fit a model rather than a script."""
    return _not_built(workload, error.told, error.hint) if isinstance(error, FailedEarlyError) else error


def untrainable(error: ScriptError, ended: Ended, workload: Workload, collected: Collecting) -> PeakmemError:
    """The error that tells why no step was seen.

    Args:
        error: how the script failed.
        ended: how its run ended.
        workload: the model with what it is fed.
        collected: what the script said until then.
    """
    if not collected.said("parameters"):  # the script says so as soon as it has the model and its optimizer
        return _not_built(workload, f"{error.type}: {error.message}", "\n".join(last_words(ended.last_lines)))
    message = error.message
    if error.type == "exit" and ended.last_lines:  # the script itself found that it can't be
        message = ended.last_lines[-1]
    batch = collected.said("batch")
    fed = f" with {'; '.join(batch)}" if batch else ""
    kind = "" if error.type in _PLAIN else f"{error.type}: "
    where = f" ({error.line})" if error.line and NAME not in error.line else ""
    return PeakmemError(
        f"{workload.title} can't be trained{fed}: {kind}{message.strip().splitlines()[0]}{where}",
        hint="--input or --tokens give other inputs, without the batch; --print-script shows what is run",
        exit_code=ExitCode.BAD_INPUT,
    )


def _not_built(workload: Workload, told: str, printed: str) -> PeakmemError:
    """The error that shows where the model's own code failed, without the frames of the generated script."""
    foreign = without_frames(printed.splitlines(), lambda line: NAME in line)
    return PeakmemError(
        f"{workload.title} could not be built: {told}",
        hint="\n".join(line for line in foreign if not line.startswith("Traceback ")),
        exit_code=ExitCode.SCRIPT_FAILED,
    )
