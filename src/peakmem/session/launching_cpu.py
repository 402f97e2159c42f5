"""A run of a command on the CPU with the computing left out: library built, environment made, books read."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from peakmem.host.hollow import ensure_hollow
from peakmem.host.library import CpuFacts, ensure_host_library, environment
from peakmem.host.tensorflow import TensorflowCpuFacts, ensure_tensorflow_library, environment_of_tensorflow
from peakmem.session.running import Ended, Question, run_session


@dataclass(frozen=True, kw_only=True, slots=True)
class CpuRun:
    """A command on the CPU.

    Attributes:
        command: the program and its arguments.
        facts: the PyTorch, or the TensorFlow, that it will use.
        question: what the watched processes are asked.
        timeout: seconds after which the run is stopped.
        variables: environment variables of the command beside those that it inherits.
    """

    command: tuple[str, ...]
    facts: CpuFacts
    question: Question = field(default_factory=Question)
    timeout: float | None = None
    variables: Mapping[str, str] = field(default_factory=dict)


def launch_on_cpu(
    run: CpuRun,
    *,
    on_progress: Callable[[dict[str, Any]], None] = lambda line: None,
    on_line: Callable[[str], None] = lambda line: None,
    on_build: Callable[[str], None] = lambda text: None,
) -> Ended:
    """Run a command; see `session.running.run_session`.

    Raises:
        PeakmemError: the library can't be built, or the command can't be started.
    """
    question = replace(run.question, device="cpu")
    base = {**os.environ, **run.variables}
    if isinstance(run.facts, TensorflowCpuFacts):
        variables = environment_of_tensorflow(ensure_tensorflow_library(on_build), base=base)
    else:
        library = ensure_host_library(on_build)
        variables = environment(library, base=base)
        question = replace(question, hollow=ensure_hollow(run.facts, library))
    return run_session(
        run.command,
        question=question,
        environment=variables,
        on_progress=on_progress,
        on_line=on_line,
        timeout=run.timeout,
    )
