"""The workload of a live model: its structure goes to the process that trains, its weights stay."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from peakmem.errors import PeakmemError
from peakmem.workload.live import ship
from peakmem.workload.losses import CALLS
from peakmem.workload.model import Request, Workload
from peakmem.workload.sources.function import make_workload


def shipped_workload(
    folder: Path,
    model: Any,
    request: Request,
    inputs: Any,
    targets: Any,
    loss: str | Callable[..., Any] | None,
) -> Workload:
    """The workload of a live model, of which the structure is written to a file in `folder`.

    Raises:
        PeakmemError: it is no model, or can't be sent to another process.
    """
    _check_model(model)
    path = folder / "model.pickle"
    ship(path, model=model, inputs=inputs, loss=loss if callable(loss) else None, targets=targets)
    places = json.dumps([entry or os.getcwd() for entry in sys.path])  # noqa: PTH109 - what '' stands for in sys.path
    workload = make_workload(
        request,
        title=request.what,
        imports=("import sys",),
        made=f"sys.path[:] = {places}  # those of the process that asked\n"
        "from peakmem.workload.live import build, load  # noqa: E402\n\n"
        f"shipped = load({str(path)!r})\n"
        "model, inputs, own_loss = build(shipped)",
        name=request.what,
    )
    return workload if targets is None else _with_targets(workload, loss)


def _with_targets(workload: Workload, loss: str | Callable[..., Any] | None) -> Workload:
    if loss is None:
        raise PeakmemError("targets are given, but no loss", hint='loss="cross-entropy", or a function of both')
    if isinstance(loss, str) and loss not in CALLS:
        raise PeakmemError(f"the loss {loss!r} takes no targets", hint="one of " + ", ".join(CALLS))
    call = "measure(call(model, inputs), targets)"
    if not callable(loss):
        call = f"{CALLS[loss]}(first_tensor(call(model, inputs)), targets)"
    return replace(
        workload,
        batch=f'{workload.batch}\nhost_targets = shipped["targets"]',
        loss=f"loss = {call}",
        tensors=(*workload.tensors, "targets"),
        loss_text=workload.loss_text if isinstance(loss, str) else "what was given",
    )


def _check_model(model: Any) -> None:
    if not callable(model):
        raise PeakmemError(
            f"{type(model).__name__} is no model", hint="a torch.nn.Module, a function that returns one, or a text"
        )


def name_of(model: Any) -> str:
    """How a model is called in print: by its function or its class."""
    return getattr(model, "__qualname__", None) or type(model).__qualname__


def shape_of(inputs: Any) -> tuple[int, ...] | None:
    """The shape that a tuple of numbers is."""
    if isinstance(inputs, tuple | list) and inputs and all(type(size) is int for size in inputs):
        return tuple(inputs)
    return None
