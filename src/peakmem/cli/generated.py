"""The training script that `peakmem predict` writes: its text, and its file for as long as its run takes."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec

from peakmem.workload.keras.naming import is_keras
from peakmem.workload.model import Workload
from peakmem.workload.resolving import workload_of
from peakmem.workload.script import write_script
from peakmem.workload.training import Training

if TYPE_CHECKING:
    from peakmem.cli.predict_options import PredictOptions
    from peakmem.workload.keras.training import Compiled

NAME = "predict.py"
MOST_STEPS = 20

F = TypeVar("F")


@dataclass(frozen=True, kw_only=True, slots=True)
class Written:
    """A training script.

    Attributes:
        what: what it was asked for by.
        script: its text.
        workload: what is told of the model.
        training: how it is trained.
    """

    what: str
    script: str
    workload: Workload
    training: Training | Compiled


def write_training(options: PredictOptions) -> Written:
    """The script of a model.

    Raises:
        PeakmemError: there is no such model, or the settings don't go together.
    """
    request, steps = options.request(), steps_to_run(options.steps)
    if is_keras(options.what):
        from peakmem.cli.predicting_keras import compiled_of
        from peakmem.workload.keras.script import keras_workload, write_keras_script

        compiled = compiled_of(options)
        script = write_keras_script(request, compiled, steps=steps)
        return Written(what=options.what, script=script, workload=keras_workload(request), training=compiled)
    training = options.training()
    workload = workload_of(request)
    script = write_script(workload, training, steps=steps)
    return Written(what=options.what, script=script, workload=workload, training=training)


def steps_to_run(text: str) -> int:
    """How many steps the script runs for a value of `--steps`."""
    return int(text) if text.isdigit() and int(text) > 0 else MOST_STEPS


@dataclass(frozen=True, kw_only=True, slots=True)
class OnDisk:
    """A script that was written to disk.

    Attributes:
        path: its file.
        folder: the temporary folder that holds it; None where the script is kept.
    """

    path: Path
    folder: Path | None

    @property
    def command(self) -> tuple[str, ...]:
        """How it is run: by the Python that peakmem runs with, which has found the model."""
        return sys.executable, str(self.path)

    def named(self, forecast: F) -> F:
        """The forecast with places in the script named as `predict.py:12`, without the temporary folder."""
        if self.folder is None:
            return forecast
        text = msgspec.json.encode(forecast).replace(f"{self.folder}/".encode(), b"")
        return msgspec.json.decode(text, type=type(forecast))


@contextmanager
def on_disk(script: str, *, keep: str | None) -> Iterator[OnDisk]:
    """Write a script to disk.

    Args:
        script: its text.
        keep: the file that it is to be kept in; None: it goes with the run.
    """
    if keep:
        path = Path(keep)
        path.write_text(script, encoding="utf-8")
        yield OnDisk(path=path, folder=None)
        return
    with tempfile.TemporaryDirectory(prefix="peakmem-predict-") as folder:
        path = Path(folder, NAME)
        path.write_text(script, encoding="utf-8")
        yield OnDisk(path=path, folder=Path(folder))
