"""Scenarios: what the steady step does not show. Each is a training script with something added, and is run."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from textwrap import indent

from peakmem.workload.model import Request
from peakmem.workload.resolving import workload_of
from peakmem.workload.script import Pieces, pieces
from peakmem.workload.training import Training

STEPS = 3
MARK = "scenario: "
"""How the line begins in which a script tells the peaks of its scenario: allocated and reserved, bytes."""

_START = "torch.cuda.synchronize()\ntorch.cuda.reset_peak_memory_stats()"
_END = f'print("{MARK.strip()}", torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved())'


@dataclass(frozen=True, kw_only=True, slots=True)
class ScenarioScript:
    """A script that shows one scenario.

    Attributes:
        key: its name in JSON.
        title: its name in print.
        text: the script.
        remark: what is particular about it, in words.
        needs_checkpoint: whether it reads what the scenario `saving` wrote.
        alone: whether the peak of the whole run is the scenario's, since it prints none.
    """

    key: str
    title: str
    text: str
    remark: str = ""
    needs_checkpoint: bool = False
    alone: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Scenario:
    """What a scenario takes, in bytes.

    Attributes:
        key: its name.
        title: its name in print.
        allocated: peak of `torch.cuda.max_memory_allocated` within it.
        reserved: peak of what the allocator held within it, cache of earlier steps included.
        used: that and the context.
        fits: whether that is no more than the card has; None: it was not run.
        remark: what is particular about it, or why it was not run.
    """

    key: str
    title: str
    allocated: int | None = None
    reserved: int | None = None
    used: int | None = None
    fits: bool | None = None
    remark: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """Which scenarios are asked for, beside those that need nothing.

    Attributes:
        eval_batch: samples in one batch of the evaluation.
        last_batch: samples in the last batch of an epoch; None: all batches are full.
        longest: tokens of the longest sequence; None: all are alike.
        mixed: tokens of the longest sequence of some batches as they come.
    """

    eval_batch: int | None = None
    last_batch: int | None = None
    longest: int | None = None
    mixed: tuple[int, ...] = ()


def plain_script(request: Request, training: Training) -> str:
    """Training alone: the first step and the steady one."""
    made = pieces(workload_of(request), training)
    return _script(made.opening, made.model, made.batch, _loop(made))


def scenario_scripts(request: Request, training: Training, asked: Asked, checkpoint: Path) -> list[ScenarioScript]:
    """The scripts of all scenarios but training itself, in the order of print."""
    made = pieces(workload_of(request), training)
    head = (made.opening, made.model)
    trained = (*head, made.batch, _loop(made))
    return [
        _evaluation(request, training, asked, trained),
        ScenarioScript(
            key="saving",
            title="saving a checkpoint",
            text=_script(*trained, _START, f"torch.save({_states(made)}, {str(checkpoint)!r})", _END),
        ),
        *_resuming(made, head, checkpoint),
        *_partial(request, training, asked, trained),
        *_lengths(request, training, asked, head),
        ScenarioScript(
            key="kept_graph",
            title="backward with retain_graph=True",
            text=_script(*head, made.batch, _loop(made).replace(".backward()", ".backward(retain_graph=True)")),
            remark="the graph lives on until `loss` is made anew: two of them at the peak",
            alone=True,
        ),
        _benchmark(request, training),
    ]


def _script(*parts: str) -> str:
    return "\n\n".join(part for part in parts if part) + "\n"


def _loop(made: Pieces, steps: int = STEPS) -> str:
    return f"STEPS = {steps}\n{made.loop}"


def _states(made: Pieces) -> str:
    names = ("model", *made.optimizers)
    return "{" + ", ".join(f'"{name}": {name}.state_dict()' for name in names) + "}"


def _evaluation(request: Request, training: Training, asked: Asked, trained: tuple[str, ...]) -> ScenarioScript:
    batch = asked.eval_batch or request.batch
    made = pieces(workload_of(replace(request, batch=batch)), training)
    forward = indent("\n".join([*made.copies, *made.forward]), "    ")
    return ScenarioScript(
        key="evaluation",
        title="evaluation" if asked.eval_batch is None else f"evaluation, batch {batch}",
        text=_script(*trained, made.batch, "model.eval()", _START, f"with torch.no_grad():\n{forward}", _END),
        remark="after training steps, under no_grad",
    )


def _resuming(made: Pieces, head: tuple[str, ...], checkpoint: Path) -> list[ScenarioScript]:
    found = []
    for key, title, where, remark in (
        ("resume", "resuming from a checkpoint", "", "the loaded copy stays on the GPU as long as it has a name"),
        ("resume_cpu", 'the same, map_location="cpu"', ', map_location="cpu"', "the copy is in host memory instead"),
    ):
        load = [f"loaded = torch.load({str(checkpoint)!r}, weights_only=True{where})"]
        load += [f'{name}.load_state_dict(loaded["{name}"])' for name in ("model", *made.optimizers)]
        found.append(
            ScenarioScript(
                key=key,
                title=title,
                text=_script(*head, made.batch, "\n".join(load), _loop(made)),
                remark=remark,
                needs_checkpoint=True,
                alone=True,
            )
        )
    return found


def _partial(request: Request, training: Training, asked: Asked, trained: tuple[str, ...]) -> list[ScenarioScript]:
    if asked.last_batch is None:
        return []
    made = pieces(workload_of(replace(request, batch=asked.last_batch)), training)
    return [
        ScenarioScript(
            key="last_batch",
            title=f"last batch of an epoch, {asked.last_batch} samples",
            text=_script(*trained, _START, made.batch, _loop(made, 1), _END),
            remark="other sizes than the cached blocks have: it can add to what is reserved",
        )
    ]


def _lengths(request: Request, training: Training, asked: Asked, head: tuple[str, ...]) -> list[ScenarioScript]:
    if asked.longest is None:
        return []
    longest = pieces(workload_of(replace(request, tokens=asked.longest)), training)
    mixed = []
    for tokens in (*asked.mixed, asked.longest):
        made = pieces(workload_of(replace(request, tokens=tokens)), training)
        mixed += [made.batch, _loop(made, 1)]
    return [
        ScenarioScript(
            key="longest",
            title=f"longest batch, {asked.longest} tokens",
            text=_script(*head, longest.batch, _loop(longest)),
            alone=True,
        ),
        ScenarioScript(
            key="mixed_lengths",
            title=f"{len(asked.mixed)} batches as they come, then the longest",
            text=_script(*head, *mixed),
            remark=f"padded to {min(asked.mixed)} to {max(asked.mixed)} tokens",
            alone=True,
        ),
    ]


def _benchmark(request: Request, training: Training) -> ScenarioScript:
    on = not training.cudnn_benchmark
    return ScenarioScript(
        key="cudnn_benchmark_on" if on else "cudnn_benchmark_off",
        title=f"cuDNN benchmark {'on' if on else 'off'}",
        text=plain_script(request, replace(training, cudnn_benchmark=on)),
        alone=True,
    )
