"""What `peakmem advise` does."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from peakmem.advise.advising import Advising
from peakmem.advise.knobs import LORA_RANK, Knob
from peakmem.advise.trials import Trial, Trials
from peakmem.cli.plain import text_console
from peakmem.cli.solving import asked, planned, showing
from peakmem.cli.subject import ModelSubject, Prepared, ScriptSubject, Subject
from peakmem.errors import ExitCode, PeakmemError
from peakmem.files import check_writable, write_json
from peakmem.forecast.model import Gpu
from peakmem.report.advising import print_advised
from peakmem.session.launching import alloc_conf_in_force
from peakmem.workload.optimizers import DEFAULT_OPTIMIZER
from peakmem.workload.resolving import draws_for_nothing
from peakmem.workload.training import installed

if TYPE_CHECKING:
    from peakmem.cli.predict_options import PredictOptions

SCHEMA = "peakmem/advise/1"
_BATCH = re.compile(r"(env:)?([A-Za-z_][A-Za-z0-9_-]*)=(\d+)")
_FUSED = ("adam", "adamw", "sgd", "adagrad")
_NOT_LISTWISE = ("lbfgs", "sparseadam", "muon")
_NOT_FOR_SCRIPTS = {"8-bit": "the optimizer", "lora": "the model"}
_IN_8_BITS = {"adam": "adam8bit", "adamw": "adamw8bit", "sgd": "sgd8bit", "rmsprop": "rmsprop8bit"}


def advise(options: dict[str, Any]) -> int:
    """Search, print, and give the exit code.

    Raises:
        PeakmemError: bad input, or the script fails by itself.
    """
    if options["json_target"] is not None:
        check_writable(options["json_target"], force=options["force"])
    with asked(options) as subject:
        knobs = _knobs_of(subject, options["batch_is"])
        first = knobs.trial(())
        assert isinstance(first, Trial)
        plan, context_of = planned(
            options,
            Prepared(
                command=first.command,
                variables=first.variables,
                no_initial_values=isinstance(subject, ModelSubject) and draws_for_nothing(subject.options.what),
            ),
        )
        device = plan.device
        gpu = Gpu(name=device.name, total=device.total_memory, compute_capability=device.capability, usable=0)
        with showing("looking for what helps") as say:
            with Trials(plan, context_of) as trials:
                advising = Advising(subject.title, gpu, knobs.trial, trials, say, alloc_conf=alloc_conf_in_force(plan))
                advising.batch_of = knobs.batch_text
                interrupted = False
                try:
                    advising.run(even_if_it_fits=options["everything"])
                except KeyboardInterrupt:
                    interrupted = True
            advised = advising.result()
    if advised is None:
        return ExitCode.INTERRUPTED
    if options["json_target"] is not None:
        write_json({"schema": SCHEMA, "results": [advised]}, options["json_target"], force=options["force"])
    print_advised(advised, text_console(to_stderr=options["json_target"] == "-"))
    if interrupted:
        return ExitCode.INTERRUPTED
    return ExitCode.FITS if advised.fits_already or advised.plan is not None else ExitCode.DOES_NOT_FIT


class _Script:
    """The changes of a command line: made in the running process, but for its batch."""

    def __init__(self, subject: ScriptSubject, batch_is: str | None) -> None:
        self._subject = subject
        self._name, self._batch, self._in_environment = "", 0, False
        if batch_is is not None:
            match = _BATCH.fullmatch(batch_is)
            if match is None:
                raise PeakmemError(f"--batch-is {batch_is} can't be read", hint="--batch-is batch=64")
            self._in_environment, self._name, self._batch = match[1] is not None, match[2], int(match[3])
            subject.check(self._name, in_environment=self._in_environment)

    def batch_text(self, divisor: int) -> str:
        """The batch of one pass, in words."""
        return str(self._batch // divisor) if self._name else f"1/{divisor} of the size"

    def trial(self, knobs: Sequence[Knob]) -> Trial | str:
        """The run with these changes, or why there is none."""
        divisor = 1
        for knob in knobs:
            divisor *= knob.divisor
            if knob.key in _NOT_FOR_SCRIPTS:
                return f"not tried for scripts: {_NOT_FOR_SCRIPTS[knob.key]} has to be replaced in the script"
        if divisor > 1 and not self._name:
            return "not tried: --batch-is batch=N and {batch} in the command say what the batch is"
        if divisor > 1 and self._batch % divisor:
            return f"a batch of {self._batch} can't be divided by {divisor}"
        values, variables = {}, {}
        if self._name and self._in_environment:
            variables = {self._name: str(self._batch // divisor)}
        elif self._name:
            values = {self._name: self._batch // divisor}
        prepared = self._subject.at(values, variables=variables)
        return Trial(
            command=prepared.command,
            variables=prepared.variables,
            changes=tuple(change for knob in knobs for change in knob.changes),
        )


class _Model:
    """The changes of a model's training: settings of `peakmem predict`."""

    def __init__(self, subject: ModelSubject) -> None:
        self._subject = subject
        self._batch = subject.options.batch

    def batch_text(self, divisor: int) -> str:
        """The batch of one pass, in words."""
        return str(self._batch // divisor) if self._batch else f"1/{divisor} of the size"

    def trial(self, knobs: Sequence[Knob]) -> Trial | str:
        """The run with these changes, or why there is none."""
        options = self._subject.options
        for knob in knobs:
            made = self._changed(options, knob)
            if isinstance(made, str):
                return made
            options = made
        label = "-".join(knob.key.replace("/", "-of-") for knob in knobs)
        prepared = self._subject.written(options, label)
        return Trial(command=prepared.command, variables=prepared.variables)

    def _changed(self, options: PredictOptions, knob: Knob) -> PredictOptions | str:
        name, _, rest = (options.optimizer or DEFAULT_OPTIMIZER).partition(":")
        name = name.lower()
        if knob.divisor > 1:
            if not options.batch:
                return "not tried: --batch says what the batch is"
            if options.batch % knob.divisor:
                return f"a batch of {options.batch} can't be divided by {knob.divisor}"
            times = options.accumulate * (knob.divisor if knob.family == "accumulate" else 1)
            return replace(options, batch=options.batch // knob.divisor, accumulate=times)
        if knob.key == "zero_grad=none":
            return replace(options, keep_gradients=False) if options.keep_gradients else "gradients are dropped already"
        if knob.key == "zero_grad=end":
            same = options.zero_grad == "end" or options.optimizer_in_backward
            return "gradients are dropped after the step already" if same else replace(options, zero_grad="end")
        if knob.key == "checkpoint":
            already = options.checkpointing or options.selective_checkpointing
            return "it does so already" if already else replace(options, checkpointing=True)
        if knob.key == "amp":
            low = options.amp is not None or options.precision == "bf16"
            return "the precision is low already" if low else replace(options, amp="bf16")
        if knob.key == "bucket_view":
            return "for scripts with DistributedDataParallel"
        if knob.key == "lora":
            if options.lora is not None:
                return "it has adapters already"
            if not installed("peft"):
                return "not tried: the package peft is not installed"
            return replace(options, lora=LORA_RANK)
        if knob.key == "8-bit":
            if name not in _IN_8_BITS:
                return f"{name} has no form with 8-bit states"
            if not installed("bitsandbytes"):
                return "not tried: the package bitsandbytes is not installed"
            return replace(options, optimizer=_IN_8_BITS[name])
        if knob.key.startswith("optimizer."):
            word = "fused" if knob.key == "optimizer.fused" else "loop"
            if (word == "fused" and name not in _FUSED) or name in _NOT_LISTWISE or "8bit" in name or "paged" in name:
                return f"{name} has no such form"
            kept = [part for part in rest.split(",") if part and part not in ("fused", "foreach", "loop")]
            if word in rest.split(","):
                return "it does so already"
            return replace(options, optimizer=f"{name}:{','.join([word, *kept])}")
        return options


def _knobs_of(subject: Subject, batch_is: str | None) -> _Script | _Model:
    if isinstance(subject, ScriptSubject):
        return _Script(subject, batch_is)
    if batch_is is not None:
        raise PeakmemError("--batch-is is for commands", hint="a model's batch is said by --batch")
    return _Model(subject)
