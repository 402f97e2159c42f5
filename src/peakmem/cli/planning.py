"""From the options of `peakmem run` to the run that is made and the card that it is made for."""

from __future__ import annotations

import os
from dataclasses import dataclass

from peakmem.errors import PeakmemError
from peakmem.forecast.card import Card
from peakmem.session.command import interpreter, resolve
from peakmem.session.framework import facts_for
from peakmem.session.launching import Run, check_assumptions
from peakmem.session.running import Question
from peakmem.session.spared import known_late_sizes
from peakmem.units import format_size, parse_size
from peakmem.vgpu.catalogue import Device, custom_device, find_device
from peakmem.vgpu.context import estimate_context
from peakmem.vgpu.probe import TorchFacts

DEFAULT_GPU = "a100-80"


@dataclass(frozen=True, kw_only=True, slots=True)
class RunOptions:
    """The options of `peakmem run`, as they were typed."""

    command: tuple[str, ...]
    device: str = "gpu"
    gpu: str | None = None
    memory: str | None = None
    steps: str = "auto"
    alloc_conf: str | None = None
    context: str | None = None
    cudnn: str = "likely"
    no_range: bool = False
    explain: bool = False
    assume: str = ""
    changes: tuple[str, ...] = ()
    build_on_device: bool = False
    late_libraries: bool = False
    no_initial_values: bool = False
    no_weights: bool = False
    output: str = "hide"
    measure: bool = False
    against: str | None = None
    ranks_per_node: int | None = None
    scheduler: str | None = None
    margin: str | None = None
    json_target: str | None = None
    save_target: str | None = None
    force: bool = False
    timeout: float | None = None
    module: bool = False


def plan_run(options: RunOptions) -> tuple[Run, Card]:
    """The run, and the card with its context.

    Raises:
        PeakmemError: the command, the card or an option can't be.
    """
    command = resolve(options.command, module=options.module)
    check_assumptions(options.assume)
    if options.timeout is not None and not options.timeout > 0:
        raise PeakmemError(f"--timeout {options.timeout:g} is no time", hint="--timeout 600: seconds, more than 0")
    device = find_device(options.gpu or DEFAULT_GPU)
    if options.memory is not None:
        device = custom_device(
            memory=parse_size(options.memory), like=find_device(options.gpu) if options.gpu else None
        )
    facts = facts_for(command, interpreter(command))
    context, error = estimate(options, device, facts, ("cublas",))
    if context >= device.total_memory:
        raise PeakmemError(
            f"a card of {format_size(device.total_memory)} has no room beside the CUDA context ({context:,} bytes)",
            hint="give more --memory, or a smaller --context",
        )
    question = Question(
        steps=checked_steps(options.steps),
        assume=options.assume,
        changes=_checked_changes(options.changes),
        build_on_device=options.build_on_device,
        late_libraries=options.late_libraries,
        late_sizes=known_late_sizes() if options.late_libraries else None,
        no_initial_values=options.no_initial_values,
        no_weights=options.no_weights,
    )
    plan = Run(
        command=command,
        facts=facts,
        device=device,
        context=context,
        alloc_conf=options.alloc_conf,
        cudnn=options.cudnn,
        question=question,
        timeout=options.timeout,
        ranks_per_node=options.ranks_per_node,
    )
    card = Card.of(device, context=context, context_error=error)
    return plan, card


def estimate(options: RunOptions, device: Device, facts: TorchFacts, libraries: tuple[str, ...]) -> tuple[int, int]:
    """What the context takes and how far that may be off, bytes."""
    if options.context is not None:
        return parse_size(options.context), 0
    lazy = os.environ.get("CUDA_MODULE_LOADING", "LAZY") != "EAGER"
    estimate = estimate_context(device, facts.cuda, lazy_loading=lazy, libraries_used=libraries)
    return estimate.size, estimate.error


def _checked_changes(changes: tuple[str, ...]) -> tuple[str, ...]:
    from peakmem.session.inside.change_names import parse_change

    for text in changes:
        try:
            parse_change(text)
        except ValueError as error:
            raise PeakmemError(f"--set {text}: {error}", hint="--set amp=bf16 --set zero_grad=end") from error
    return changes


def checked_steps(text: str) -> str:
    """The text of `--steps`, if it is one; else a PeakmemError."""
    if text in ("auto", "all") or (text.isdecimal() and int(text) > 0):
        return text
    raise PeakmemError(
        f"--steps {text} is neither a number of steps nor auto nor all", hint="--steps 5, or --steps all"
    )
