"""What `peakmem predict` does: a training script is written, then run and reported on as `peakmem run` would."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from peakmem.cli.forecasting import Made, Progress, make_forecast
from peakmem.cli.generated import generated
from peakmem.cli.planning import RunOptions, estimate, plan_run
from peakmem.cli.requesting import check_scheduler, keeps_stdout, print_request
from peakmem.errors import ExitCode, PeakmemError
from peakmem.files import check_writable, write_json
from peakmem.forecast.unwatched import with_unwatched_peaks
from peakmem.session.unwatched import unwatched_peaks
from peakmem.workload.keras.naming import is_keras
from peakmem.workload.model import Request, Workload
from peakmem.workload.resolving import draws_for_nothing, is_checkpoint, workload_of
from peakmem.workload.script import write_script
from peakmem.workload.sources.function import parse_argument
from peakmem.workload.training import DEFAULT_OPTIMIZER, Optimizer, Training

if TYPE_CHECKING:
    from peakmem.forecast.model import Forecast
    from peakmem.workload.keras.training import Compiled

MOST_STEPS = 20
_SAID = ("parameters: ", "batch: ", "loss: ", "training: ")
_ABOUT_SCRIPTS = "the script was ended after"
"""How the note begins that tells of what a script may do later; one of ours does nothing later."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PredictOptions:
    """The options of `peakmem predict`, as they were typed."""

    what: str
    device: str = "gpu"
    batch: int | None
    shape: str | None
    tokens: int | None
    arguments: tuple[str, ...]
    optimizer: str | None
    amp: str | None
    precision: str
    loss: str | None
    activation: str
    task: str | None
    checkpointing: bool
    selective_checkpointing: bool
    accumulate: int
    zero_grad: str
    keep_gradients: bool
    clip: float | None
    ema: bool
    lora: int | None
    quantize: str | None
    freeze: tuple[str, ...]
    channels_last: bool
    optimizer_in_backward: bool
    offload_activations: bool
    cudnn_benchmark: bool
    deterministic: bool
    compile: bool
    cuda_graphs: bool
    print_script: bool
    save_script: str | None
    gpu: str | None
    memory: str | None
    steps: str
    alloc_conf: str | None
    context: str | None
    cudnn: str
    no_range: bool
    build_on_device: bool
    ranks_per_node: int | None
    scheduler: str | None
    margin: str | None
    json_target: str | None
    save_target: str | None
    force: bool
    timeout: float | None

    def request(self) -> Request:
        """What is said of the model and its data."""
        return Request(
            what=self.what,
            batch=self.batch,
            shape=parse_shape(self.shape),
            tokens=self.tokens,
            loss=self.loss,
            activation=self.activation,
            task=self.task,
            arguments=tuple(parse_argument(text) for text in self.arguments),
        )

    def training(self) -> Training:
        """How it is trained.

        Raises:
            PeakmemError: the settings don't go together.
        """
        if self.amp is not None and self.precision == "bf16":
            raise PeakmemError(
                "--amp is for parameters in fp32", hint="give --amp bf16 or --precision bf16, not both of them"
            )
        precision: Any = f"amp-{self.amp}" if self.amp else self.precision
        zero_grad: Any = self.zero_grad
        quantize: Any = self.quantize
        device: Any = self.device
        return Training(
            optimizer=Optimizer.parse(self.optimizer or DEFAULT_OPTIMIZER),
            precision=precision,
            checkpointing=self.checkpointing,
            selective_checkpointing=self.selective_checkpointing,
            accumulate=self.accumulate,
            zero_grad=zero_grad,
            keep_gradients=self.keep_gradients,
            clip=self.clip,
            ema=self.ema,
            lora=self.lora,
            quantize=quantize,
            freeze=self.freeze,
            channels_last=self.channels_last,
            optimizer_in_backward=self.optimizer_in_backward,
            offload_activations=self.offload_activations,
            cudnn_benchmark=self.cudnn_benchmark,
            deterministic=self.deterministic,
            compile=self.compile,
            cuda_graphs=self.cuda_graphs,
            device=device,
        )

    def run(self) -> RunOptions:
        """The options with which the script is run; its place is not known yet."""
        return RunOptions(
            device=self.device,
            gpu=self.gpu,
            memory=self.memory,
            steps=self.steps,
            alloc_conf=self.alloc_conf,
            context=self.context,
            cudnn=self.cudnn,
            no_range=self.no_range,
            assume="",
            build_on_device=self.build_on_device,
            late_compiler=not self.compile,
            no_initial_values=draws_for_nothing(self.what),
            no_weights=False,
            output="hide",
            json_target=self.json_target,
            save_target=self.save_target,
            force=self.force,
            timeout=self.timeout,
            ranks_per_node=self.ranks_per_node,
            module=False,
            command=(),
        )


def parse_shape(text: str | None) -> tuple[int, ...] | None:
    """The numbers of a shape such as 3x224x224.

    Raises:
        PeakmemError: it is none.
    """
    if text is None:
        return None
    words = text.lower().replace("×", "x").replace(",", "x").split("x")
    if not all(word.strip().isdigit() and int(word) > 0 for word in words):
        raise PeakmemError(
            f"--input {text} is no shape", hint="the sizes of one sample, without the batch: --input 3x224x224"
        )
    return tuple(int(word) for word in words)


def predict(options: PredictOptions) -> int:
    """Write the script, run it, report, and give the exit code.

    Raises:
        PeakmemError: bad input, or the model can't be trained so.
    """
    for target in (options.json_target, options.save_target, options.save_script):
        if target is not None:
            check_writable(target, force=options.force)
    check_scheduler(options.scheduler, options.margin, options.json_target)
    if options.device == "cpu":
        from peakmem.cli.predicting_cpu import predict_on_cpu

        return predict_on_cpu(options)
    if options.what.startswith("jax:"):
        from peakmem.cli.predicting_jax import predict_jax

        return predict_jax(options)
    if is_checkpoint(options.what):
        from peakmem.cli.predicting_checkpoints import predict_checkpoint

        code: int = predict_checkpoint(options, options.training())
        return code
    script, workload, training = written(options, steps=steps_to_run(options.steps))
    if options.print_script:
        click.echo(script, nl=False)
        return ExitCode.FITS
    from peakmem.cli.plain import text_console
    from peakmem.cli.progress import RunProgress
    from peakmem.cli.running import exit_code

    with RunProgress("hide", (options.what,)) as progress:
        made, forecast = forecast_script(
            script,
            workload,
            training,
            options.run(),
            progress,
            what=options.what,
            keep=options.save_script,
        )
    if options.save_target is not None and made.trace is not None:
        from peakmem.trace.file import write_trace

        write_trace(made.trace, options.save_target, force=options.force)
    if options.json_target is not None:
        write_json(forecast, options.json_target, force=options.force)
    from peakmem.report.terminal import print_forecast

    screen = text_console(to_stderr=keeps_stdout(options.scheduler, options.json_target))
    print_workload(forecast.workload, screen)
    print_forecast(forecast, screen)
    if options.scheduler is not None and forecast.error is None:
        print_request(forecast, options.scheduler, options.margin)
    return exit_code(forecast, made.ended)


def written(options: PredictOptions, *, steps: int) -> tuple[str, Workload, Training | Compiled]:
    """The script of a model, what is told of the model, and how it is trained.

    Raises:
        PeakmemError: there is no such model, or the settings don't go together.
    """
    if is_keras(options.what):
        from peakmem.cli.predicting_keras import compiled_of
        from peakmem.workload.keras.script import keras_workload, write_keras_script

        compiled, request = compiled_of(options), options.request()
        return write_keras_script(request, compiled, steps=steps), keras_workload(request), compiled
    training = options.training()
    workload = workload_of(options.request())
    return write_script(workload, training, steps=steps), workload, training


def forecast_script(
    script: str,
    workload: Workload,
    training: Training | Compiled,
    options: RunOptions,
    progress: Progress,
    *,
    what: str,
    keep: str | None = None,
) -> tuple[Made, Forecast]:
    """Run a script that `write_script` wrote, and make its forecast.

    Raises:
        PeakmemError: the model can't be trained so.
    """
    started = time.monotonic()
    collected = Collecting(progress)
    with generated(script, keep=keep) as file:
        options = replace(options, command=file.command)
        plan, card = plan_run(options)
        try:
            made = make_forecast(
                plan,
                card,
                context_with=partial(estimate, options, plan.device, plan.facts),
                with_range=not options.no_range,
                progress=collected,
                started=started,
            )
        except PeakmemError as error:
            raise plainer(error, workload) from error
        forecast = made.forecast
        if training.collects_garbage and not (made.ended.interrupted or forecast.error):
            progress.say("running again without a recording, since tensors wait for Python's garbage collector")
            forecast = with_unwatched_peaks(forecast, unwatched_peaks(plan, limited=forecast.oom is None))
    if forecast.error is not None and not forecast.steps:
        raise _not_trainable(forecast, made.ended.last_lines, workload, collected.said("batch"))
    forecast = replace(
        file.named(forecast),
        command=("peakmem", "predict", what),
        notes=tuple(note for note in forecast.notes if not note.startswith(_ABOUT_SCRIPTS)),
        workload=describe(workload, training, collected),
    )
    return made, forecast


def print_workload(described: dict[str, str], screen: Any) -> None:
    """Print what was trained."""
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    for name, text in described.items():
        table.add_row(Text(name), Text(text, style="dim" if name == "assumed" else ""))
    screen.print(Padding(table, (1, 0, 0, 1), expand=False))


class Collecting:
    """Keeps the lines in which the script says what it trains, and passes everything on."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._lines: list[str] = []
        self.say = progress.say
        self.line = progress.line

    def printed(self, line: str) -> None:
        """Take a line."""
        if line.startswith(_SAID) and line not in self._lines:
            self._lines.append(line)
        self._progress.printed(line)

    def said(self, what: str) -> list[str]:
        """What the script said of something."""
        return [_sizes(line.partition(": ")[2]) for line in self._lines if line.startswith(f"{what}: ")]


def _sizes(text: str) -> str:
    """`images 8 3 224 224 torch.float32` as `images 8 x 3 x 224 x 224 float32`."""
    return re.sub(r"(?<=\d) (?=\d)", " x ", text.replace("torch.", ""))


def describe(workload: Workload, training: Training | Compiled, collected: Collecting) -> dict[str, str]:
    """What was trained, in words: from the settings, and from what the script said."""
    described = {"model": workload.title}
    for text in collected.said("parameters"):
        every, _, trained = text.partition(", trained: ")
        described["parameters"] = every if every == trained else f"{every}, of which {trained} are trained"
    described["batch"] = "; ".join(collected.said("batch"))
    described["loss"] = next(iter(collected.said("loss")), workload.loss_text)
    described["training"] = next(iter(collected.said("training")), training.words())
    assumed = [*workload.assumed, *training.assumed()]
    if assumed:
        described["assumed"] = "; ".join(assumed)
    return described


def plainer(error: PeakmemError, workload: Workload) -> PeakmemError:
    """The same error in words that fit a model rather than a script."""
    if not isinstance(error, FailedEarly):
        return error
    return PeakmemError(
        f"{workload.title} could not be built: {error.told}",
        hint="\n".join(line for line in _foreign(error.hint.splitlines()) if not line.startswith("Traceback ")),
        exit_code=ExitCode.SCRIPT_FAILED,
    )


def _foreign(printed: Iterable[str]) -> tuple[str, ...]:
    """What Python printed of an error, without the frames of the generated script."""
    return without_frames(printed, lambda line: NAME in line)


def _not_trainable(forecast: Forecast, printed: tuple[str, ...], workload: Workload, batch: list[str]) -> PeakmemError:
    error = forecast.error
    assert error is not None
    if error.type == "exit" and printed:  # the script itself found that it can't be
        error = replace(error, message=printed[-1])
    fed = f" with {'; '.join(batch)}" if batch else ""
    kind = "" if error.type in ("SystemExit", "RuntimeError", "exit") else f"{error.type}: "
    where = f" ({error.line})" if error.line and "predict.py" not in error.line else ""
    return PeakmemError(
        f"{workload.title} can't be trained{fed}: {kind}{error.message.strip().splitlines()[0]}{where}",
        hint="--input or --tokens give other inputs, without the batch; --print-script shows what is run",
        exit_code=ExitCode.BAD_INPUT,
    )


def steps_to_run(text: str) -> int:
    """How many steps the script runs for a value of `--steps`."""
    return int(text) if text.isdigit() and int(text) > 0 else MOST_STEPS
