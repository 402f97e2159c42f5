"""Trials: the same workload run again and again on a virtual GPU, each time with something changed, two at a time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from types import TracebackType

from peakmem.errors import ExitCode, PeakmemError
from peakmem.forecast.build import build_forecast, used_cudnn
from peakmem.forecast.card import Card
from peakmem.forecast.model import Forecast
from peakmem.session.failing import nothing_seen
from peakmem.session.launching import Run, alloc_conf_in_force, launch
from peakmem.trace.recorded import Recorded
from peakmem.trace.recording import read_recording
from peakmem.vgpu.catalogue import Device

AT_A_TIME = 2
"""Importing torch keeps one core busy for seconds; more at once would only wait for each other on small machines."""

ContextOf = Callable[[Device, tuple[str, ...]], tuple[int, int]]
"""What the context of a card takes with these libraries loaded, and how far that may be off, bytes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Trial:
    """One run to make.

    Attributes:
        command: the program and its arguments.
        variables: environment variables beside the inherited ones.
        limited: whether the card's memory is a limit.
        device: the card; None: that of the plan.
        alloc_conf: allocator settings; None: those of the plan.
        changes: what is changed in the watched process, as `session/inside/changes.py` reads it.
        steps: the steps to watch; None: as the plan says.
        on_line: takes each line that the command prints.
    """

    command: tuple[str, ...]
    variables: Mapping[str, str] = field(default_factory=dict)
    limited: bool = True
    device: Device | None = None
    alloc_conf: str | None = None
    changes: tuple[str, ...] = ()
    steps: str | None = None
    on_line: Callable[[str], None] = lambda line: None


class Trials:
    """Makes trials; a context manager that ends what still runs.

    Args:
        plan: the run of which each trial is a variant.
        context_of: see `ContextOf`.
    """

    def __init__(self, plan: Run, context_of: ContextOf) -> None:
        self._plan = plan
        self._context_of = context_of
        self._libraries: tuple[str, ...] = ("cublas",)
        self._stop = threading.Event()
        self._pool = ThreadPoolExecutor(AT_A_TIME)
        self.count = 0
        self.architectures: tuple[str, ...] = ()
        """What the PyTorch at hand is built for, once a run has told."""

    def __enter__(self) -> Trials:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def usable(self, device: Device | None = None) -> int:
        """What the allocator may reserve on a card, bytes, as far as the libraries in use are known by now."""
        device = device or self._plan.device
        return max(device.total_memory - self._context_of(device, self._libraries)[0], 0)

    def forecasts(self, trials: Sequence[Trial]) -> list[Forecast | PeakmemError]:
        """Make trials, two at a time; an error stands in the place of its trial."""

        def one(trial: Trial) -> Forecast | PeakmemError:
            try:
                return self.forecast(trial)
            except PeakmemError as error:
                return error

        return list(self._pool.map(one, trials))

    def forecast(self, trial: Trial) -> Forecast:
        """Make one trial.

        Raises:
            PeakmemError: nothing was seen that could be reported on.
        """
        started = time.monotonic()
        libraries = self._libraries
        device = trial.device or self._plan.device
        run, card = self._variant(trial, device, libraries)
        self.count += 1
        ended = launch(run, limited=trial.limited, on_line=trial.on_line, stop=self._stop)
        if ended.interrupted:
            raise PeakmemError("interrupted", exit_code=ExitCode.SCRIPT_FAILED)
        recording = ended.outcome.main()
        if recording is None:
            raise nothing_seen(ended, run)
        if ended.timed_out:
            raise PeakmemError(f"stopped after {run.timeout:g} s", hint="give a longer --timeout")
        self.architectures = tuple(recording.get("architectures", ()))
        if used_cudnn(recording) and "cudnn" not in libraries:
            self._libraries = ("cublas", "cudnn")
            run, card = self._variant(trial, device, self._libraries)
            reserved = int(recording["devices"][0]["peak"]["reserved"])
            if trial.limited and (recording["oom"] is not None or reserved > card.usable):
                return self.forecast(trial)
        alloc_conf = alloc_conf_in_force(run)
        return build_forecast(
            Recorded(recording),
            card=card,
            command=run.command,
            alloc_conf=alloc_conf,
            seconds=time.monotonic() - started,
            exit_code=ended.exit_code,
            trace=read_recording(recording, capacity=card.total, context=card.context, alloc_conf=alloc_conf),
        )

    def _variant(self, trial: Trial, device: Device, libraries: tuple[str, ...]) -> tuple[Run, Card]:
        context, error = self._context_of(device, libraries)
        if context >= device.total_memory:
            raise PeakmemError(f"{device.name} has no room beside the CUDA context ({context:,} bytes)")
        question = replace(
            self._plan.question,
            stacks=False,
            late_libraries=True,
            late_sizes=None,
            changes=(*self._plan.question.changes, *trial.changes),
        )
        if trial.steps is not None:
            question = replace(question, steps=trial.steps)
        run = replace(
            self._plan,
            command=trial.command,
            variables={**self._plan.variables, **trial.variables},
            device=device,
            context=context,
            alloc_conf=self._plan.alloc_conf if trial.alloc_conf is None else trial.alloc_conf,
            question=question,
        )
        card = Card.of(device, context=context, context_error=error)
        return run, card
