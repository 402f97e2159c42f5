"""A run of a command on a given card: the library is built, the environment made, the session run, the books read."""

from __future__ import annotations

import importlib.util
import os
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from peakmem.errors import PeakmemError
from peakmem.session.running import Ended, Question, run_session
from peakmem.vgpu.build import ensure_library
from peakmem.vgpu.catalogue import Device
from peakmem.vgpu.launch import NO_LIMIT, Options, environment
from peakmem.vgpu.probe import TorchFacts

ALLOC_CONF = "PYTORCH_CUDA_ALLOC_CONF"
OTHER_NAMES = ("PYTORCH_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF")


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """A command on a card.

    Attributes:
        command: the program and its arguments.
        facts: the PyTorch that it will use.
        device: the card.
        context: bytes that the context takes of the card's memory.
        alloc_conf: value of PYTORCH_CUDA_ALLOC_CONF; None: as it is in the present environment.
        cudnn: which convolution plans are taken: "likely", "own" or "least".
        question: what the watched processes are asked.
        timeout: seconds after which the run is stopped.
        variables: environment variables of the command beside those that it inherits.
        ranks_per_node: processes that will train on one node; None: as many as the command starts.
    """

    command: tuple[str, ...]
    facts: TorchFacts
    device: Device
    context: int
    alloc_conf: str | None = None
    cudnn: str = "likely"
    question: Question = field(default_factory=Question)
    timeout: float | None = None
    variables: Mapping[str, str] = field(default_factory=dict)
    ranks_per_node: int | None = None


def launch(
    run: Run,
    *,
    limited: bool,
    on_progress: Callable[[dict[str, Any]], None] = lambda line: None,
    on_line: Callable[[str], None] = lambda line: None,
    on_build: Callable[[str], None] = lambda text: None,
    stop: threading.Event | None = None,
) -> Ended:
    """Run a command on its card.

    Args:
        run: the command and the card.
        limited: whether the card's memory is a limit; without, only what the program is told of it.
        on_progress, on_line, stop: as in `session.running.run_session`.
        on_build: called with a line of text while the virtual GPU is being built.

    Raises:
        PeakmemError: the virtual GPU can't be built, or the command can't be started.
    """
    options = Options(
        capacity=run.device.total_memory if limited else NO_LIMIT,
        context=run.context,
        cudnn=run.cudnn,
    )
    library = ensure_library(run.facts, progress=on_build)
    base = {**os.environ, **run.variables}
    variables = environment(library=library, device=run.device, facts=run.facts, options=options, base=base)
    if run.alloc_conf is not None:
        variables[ALLOC_CONF] = run.alloc_conf
        for name in OTHER_NAMES:
            variables.pop(name, None)
    return run_session(
        run.command,
        question=run.question,
        environment=variables,
        on_progress=on_progress,
        on_line=on_line,
        timeout=run.timeout,
        stop=stop,
    )


def check_assumptions(text: str) -> None:
    """Raise a PeakmemError unless the watched process will understand these assumptions about values.

    The reading is `inside/values/config.py`'s own, loaded by its path since its package imports torch.
    """
    path = Path(__file__).parent / "inside" / "values" / "config.py"
    spec = importlib.util.spec_from_file_location("peakmem_assume", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    try:
        module.Assume.parse(text)
    except ValueError as error:
        raise PeakmemError(f"--assume {text}: {error}", hint="--assume bool=false,nonzero=0.25") from error


def alloc_conf_in_force(run: Run) -> str:
    """The allocator settings that the command starts with."""
    if run.alloc_conf is not None:
        return run.alloc_conf
    variables = {**os.environ, **run.variables}
    return next((variables[name] for name in (ALLOC_CONF, *OTHER_NAMES) if name in variables), "")
