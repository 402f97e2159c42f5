"""`%peakmem predict NAME`: a model that the notebook has already built."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from peakmem.api import train_workload
from peakmem.errors import PeakmemError
from peakmem.forecast.cpu import CpuForecast
from peakmem.forecast.model import Forecast
from peakmem.workload.shipping import shipped_workload


def predict_live(name: str, model: Any, arguments: list[str]) -> Forecast | CpuForecast:
    """What training a model of the notebook takes.

    Args:
        name: its name in the notebook.
        model: a `torch.nn.Module`, or a function that gives one.
        arguments: options of `peakmem predict`.

    Raises:
        PeakmemError: an option can't be used, or the model can't be trained so.
    """
    import click

    from peakmem.cli.predict import command
    from peakmem.cli.predict_options import PredictOptions

    try:
        context = command.make_context("%peakmem predict", [name, *arguments])
    except click.ClickException as error:
        raise PeakmemError(error.format_message(), hint="%peakmem predict --help lists the options") from None
    options = PredictOptions(**context.params)
    with tempfile.TemporaryDirectory(prefix="peakmem-predict-") as folder:
        workload = shipped_workload(Path(folder), model, options.request(), None, None, None)
        return train_workload(workload, options.training(), options.run(), name)
