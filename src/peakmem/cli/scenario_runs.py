"""What `peakmem scenarios` does."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from peakmem.advise.lengths import read_lengths
from peakmem.advise.scenarios import MARK, Asked, Scenario, ScenarioScript, plain_script, scenario_scripts
from peakmem.advise.trials import AT_A_TIME, Trial, Trials
from peakmem.cli.plain import text_console
from peakmem.cli.solving import asked, planned, showing
from peakmem.cli.subject import ModelSubject, Prepared
from peakmem.errors import ExitCode, PeakmemError
from peakmem.files import check_writable, write_json
from peakmem.forecast.model import Forecast
from peakmem.report.scenarios import print_scenarios
from peakmem.units import format_size
from peakmem.vgpu.catalogue import Device
from peakmem.workload.model import Request
from peakmem.workload.resolving import draws_for_nothing, workload_of

SCHEMA = "peakmem/scenarios/1"
BATCHES_AS_THEY_COME = 12


def scenarios(options: dict[str, Any]) -> int:
    """Run all scenarios, print, and give the exit code.

    Raises:
        PeakmemError: bad input, or the model can't be trained.
    """
    if options["json_target"] is not None:
        check_writable(options["json_target"], force=options["force"])
    with asked(options) as subject:
        if not isinstance(subject, ModelSubject):
            raise PeakmemError(
                "scenarios are added to a training script that peakmem writes itself",
                hint="give a model, such as torchvision:resnet50 or nets.py:build; peakmem run takes scripts",
            )
        runs = _Runs(options, subject)
        interrupted = False
        try:
            runs.run()
        except KeyboardInterrupt:
            interrupted = True
    rows = runs.rows
    if options["json_target"] is not None:
        write_json({"schema": SCHEMA, "results": rows}, options["json_target"], force=options["force"])
    if rows:
        print_scenarios(subject.title, runs.device, rows, text_console(to_stderr=options["json_target"] == "-"))
    if interrupted:
        return ExitCode.INTERRUPTED
    return ExitCode.DOES_NOT_FIT if any(row.fits is False for row in rows) else ExitCode.FITS


class _Runs:
    def __init__(self, options: dict[str, Any], subject: ModelSubject) -> None:
        self._folder = subject.folder
        self._request = subject.options.request()
        self._training = subject.options.training()
        if self._training.cuda_graphs:
            raise PeakmemError("a captured graph has one shape and one scenario", hint="leave --cuda-graphs out")
        self._checkpoint = self._folder / "checkpoint.pt"
        self._asked = _asked(options, self._request)
        first = self._written("train", plain_script(self._request, self._training))
        self._plan, self._context_of = planned(
            {**options, "steps": "all"},
            Prepared(command=first, variables={}, no_initial_values=draws_for_nothing(self._request.what)),
        )
        self._first = first
        self.device = self._plan.device
        self.rows: list[Scenario] = []

    def _written(self, name: str, text: str) -> tuple[str, ...]:
        path = self._folder / f"{name}.py"
        path.write_text(text, encoding="utf-8")
        return (sys.executable, str(path))

    def run(self) -> None:
        """Run everything; `rows` grows meanwhile."""
        scripts = scenario_scripts(self._request, self._training, self._asked, self._checkpoint)
        with showing("training") as say, Trials(self._plan, self._context_of) as trials:
            trained = trials.forecast(Trial(command=self._first, limited=False))
            if trained.error is not None:
                raise PeakmemError(f"the model can't be trained: {trained.error.type}: {trained.error.message}")
            first = Trial(command=self._first, limited=False)
            training = [self._under_pressure(row, first, trials) for row in _training_rows(trained, self.device)]
            self.rows = list(training)
            reason = self._no_room_for(trained)
            order = [script for script in scripts if not script.needs_checkpoint]
            order += [script for script in scripts if script.needs_checkpoint]
            made: dict[str, Scenario] = {}
            while order:
                # What reads the checkpoint comes after what writes it.
                part = [s for s in order[:AT_A_TIME] if s.needs_checkpoint == order[0].needs_checkpoint]
                order = order[len(part) :]
                say(" and ".join(script.title for script in part))
                if reason and (part[0].needs_checkpoint or any(script.key == "saving" for script in part)):
                    skipped = [script for script in part if script.needs_checkpoint or script.key == "saving"]
                    made |= {s.key: Scenario(key=s.key, title=s.title, remark=reason) for s in skipped}
                    part = [script for script in part if script not in skipped]
                made |= self._made(part, trials)
                known = [made[script.key] for script in scripts if script.key in made]
                self.rows = [*training, *known]

    def _made(self, scripts: Sequence[ScenarioScript], trials: Trials) -> dict[str, Scenario]:
        printed: dict[str, list[str]] = {script.key: [] for script in scripts}
        runs = [
            Trial(command=self._written(script.key, script.text), limited=False, on_line=printed[script.key].append)
            for script in scripts
        ]
        rows = {}
        for script, run, forecast in zip(scripts, runs, trials.forecasts(runs), strict=True):
            row = _row(script, forecast, printed[script.key], self.device)
            rows[script.key] = self._under_pressure(row, run, trials)
        return rows

    def _under_pressure(self, row: Scenario, run: Trial, trials: Trials) -> Scenario:
        """The row, run again on the card itself where giving cached memory back may be enough."""
        if row.fits is not False or row.allocated is None or row.allocated > trials.usable():
            return row
        [made] = trials.forecasts([replace(run, limited=True)])
        fits = not isinstance(made, PeakmemError) and made.error is None and made.verdict != "does_not_fit"
        remark = "; ".join(part for part in ("fits if cached memory is given back", row.remark) if part)
        return replace(row, fits=True, remark=remark) if fits else row

    def _no_room_for(self, trained: Forecast) -> str:
        """Why no checkpoint can be written; empty if it can."""
        roles = trained.roles_at_peak
        size = sum(roles.get(role, 0) for role in ("parameter", "buffer", "optimizer_state"))
        free = shutil.disk_usage(self._folder).free
        if size * 1.2 <= free:
            return ""
        return f"not run: a checkpoint of {format_size(size)} has no room in {self._folder.parent} (TMPDIR)"


def _asked(options: dict[str, Any], request: Request) -> Asked:
    found = Asked(eval_batch=options["eval_batch"], last_batch=options["last_batch"])
    if options["lengths"] is None:
        return found
    lengths = read_lengths(options["lengths"])
    if workload_of(replace(request, tokens=7)).batch == workload_of(replace(request, tokens=8)).batch:
        raise PeakmemError(f"{request.what} takes no sequences of tokens", hint="leave --lengths out")
    batch = request.batch or 1
    return replace(found, longest=lengths.longest, mixed=lengths.batches(batch, BATCHES_AS_THEY_COME))


def _training_rows(forecast: Forecast, device: Device) -> list[Scenario]:
    rows = []
    for key, title, step in (("first_step", "first step", 0), ("steady_step", "steady step", -1)):
        if forecast.steps:
            peak = forecast.steps[step]
            rows.append(_scenario(key, title, peak.allocated, peak.reserved, forecast.peak.context, device))
    return rows


def _row(script: ScenarioScript, forecast: Forecast | PeakmemError, printed: Sequence[str], device: Device) -> Scenario:
    if isinstance(forecast, PeakmemError):
        return Scenario(key=script.key, title=script.title, remark=f"it fails: {forecast.message}")
    if forecast.error is not None:
        text = next(iter(forecast.error.message.strip().splitlines()), "")
        return Scenario(key=script.key, title=script.title, remark=f"it fails: {forecast.error.type}: {text}")
    allocated, reserved = forecast.peak.allocated, forecast.peak.reserved
    if not script.alone:
        line = next(line for line in reversed(printed) if line.startswith(MARK))
        allocated, reserved = (int(word) for word in line.removeprefix(MARK).split())
    row = _scenario(script.key, script.title, allocated, reserved, forecast.peak.context, device)
    return replace(row, remark=script.remark)


def _scenario(key: str, title: str, allocated: int, reserved: int, context: int, device: Device) -> Scenario:
    used = reserved + context
    return Scenario(
        key=key, title=title, allocated=allocated, reserved=reserved, used=used, fits=used <= device.total_memory
    )
