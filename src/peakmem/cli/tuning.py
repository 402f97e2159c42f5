"""What `peakmem tune` does, step by step: a trace, the search, the verification, the report."""

from __future__ import annotations

import shlex
import shutil
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console

from peakmem.allocator.replay import Replayer
from peakmem.allocator.search import Found, Judgement, Outcome, judge, search
from peakmem.cli.plain import text_console
from peakmem.cli.planning import RunOptions, estimate, plan_run
from peakmem.cli.progress import RunProgress, Spinner
from peakmem.cli.room import Room, less_context, recorded_room, room_of
from peakmem.errors import ExitCode, PeakmemError
from peakmem.files import check_writable, write_json
from peakmem.forecast.build import used_cudnn
from peakmem.report.replays import name_of
from peakmem.report.tuning import Verified, print_tuning, tuning_as_json
from peakmem.session.failing import nothing_seen
from peakmem.session.launching import Run, alloc_conf_in_force, launch
from peakmem.session.printed import last_words
from peakmem.trace.load import load_torch_trace, other_allocator
from peakmem.trace.model import Trace
from peakmem.trace.recording import read_recording
from peakmem.trace.replay import Replay
from peakmem.vgpu.probe import TorchFacts, probe
from peakmem.vgpu.tensorflow import TensorflowFacts


@dataclass(frozen=True, kw_only=True, slots=True)
class TuneOptions:
    """The options of `peakmem tune`, as they were typed."""

    gpu: str | None
    memory: str | None
    alloc_conf: str | None
    budget_seconds: float
    steps: str
    no_verify: bool
    device: int | None
    python: str | None
    show_all: bool
    json_target: str | None
    force: bool
    module: bool
    words: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Subject:
    """What is tuned.

    Attributes:
        trace: the requests.
        facts: the PyTorch that replays.
        room: the card.
        run: the command, if one was given.
        steps: how many steps of it were seen.
    """

    trace: Trace
    facts: TorchFacts
    room: Room
    run: Run | None = None
    steps: int = 0


def tune(options: TuneOptions) -> int:
    """Search, verify, report; gives the exit code.

    Raises:
        PeakmemError: bad input, or nothing to tune.
    """
    try:
        return _tune(options)
    except KeyboardInterrupt:
        Console(stderr=True, highlight=False).print("peakmem: interrupted before anything was found")
        return ExitCode.INTERRUPTED


def _tune(options: TuneOptions) -> int:
    if options.json_target is not None:
        check_writable(options.json_target, force=options.force)
    subject = _subject(options)
    with Replayer(subject.trace, facts=subject.facts, card=subject.room.card, device=options.device) as replayer:
        room = subject.room
        with _Progress() as progress:
            found = search(
                replayer,
                capacity=room.capacity,
                total=room.card.total_memory,
                seconds=options.budget_seconds,
                alloc_conf=options.alloc_conf,
                on_progress=progress.tried,
            )
        version, notes = replayer.version, replayer.requests.notes
    judgement = judge(found)
    verified = None
    if subject.run is not None and judgement.best is not None and not (options.no_verify or found.stopped):
        verified = _verify(subject, subject.run, judgement)
    if options.json_target is not None:
        document = tuning_as_json(found, judgement, version=version, verified=verified)
        write_json(document, options.json_target, force=options.force)
    if options.json_target != "-":
        print_tuning(
            found, judgement, text_console(), version=version, why_room=room.why, notes=notes, verified=verified,
            show_all=options.show_all,
        )  # fmt: skip
    return _exit_code(found, judgement)


def _exit_code(found: Found, judgement: Judgement) -> int:
    if found.stopped:
        return ExitCode.INTERRUPTED
    return ExitCode.DOES_NOT_FIT if judgement.outcome is Outcome.TOO_LITTLE else ExitCode.FITS


def _subject(options: TuneOptions) -> _Subject:
    words = options.words
    if not words:
        raise PeakmemError(
            "there is nothing to tune", hint="peakmem tune snapshot.pickle, or peakmem tune -- python train.py"
        )
    path = Path(words[0])
    if options.module or path.suffix in (".py", ".ipynb") or shutil.which(words[0]) is not None:
        return _watched(options)
    if len(words) == 1 and (path.is_file() or path.suffix):
        return _recorded(options, path)
    if path.is_file():
        raise PeakmemError(
            f"what follows {path} is not read", hint=f"peakmem tune {shlex.join(words[1:])} {shlex.quote(words[0])}"
        )
    return _watched(options)


def _recorded(options: TuneOptions, path: Path) -> _Subject:
    trace = load_torch_trace(path, what="peakmem tune")
    facts = probe(options.python)
    room = room_of(options.gpu, options.memory, cuda=facts.cuda)
    if room.capacity is None:
        replay = Replay(trace, options.device)
        room = recorded_room(trace, replay.device, reserved=int(replay.timeline.reserved[-1])) or room
    return _Subject(trace=trace, facts=facts, room=room)


def _watched(options: TuneOptions) -> _Subject:
    """Run the command once, without a limit."""
    run_options = RunOptions(
        command=options.words,
        gpu=options.gpu,
        memory=options.memory,
        steps=options.steps,
        alloc_conf=options.alloc_conf,
        no_range=True,
        module=options.module,
    )
    run, card = plan_run(run_options)
    if isinstance(run.facts, TensorflowFacts):
        raise other_allocator("peakmem tune", "this script trains with TensorFlow")
    with RunProgress("hide", run.command) as progress:
        ended = launch(run, limited=False, on_progress=progress.line, on_build=progress.say)
        recording = ended.outcome.main()
        if recording is None:
            raise nothing_seen(ended, run)
        if recording["error"] is not None and not recording["steps"]:
            error = recording["error"]
            raise PeakmemError(
                f"the script failed: {error['type']}: {error['message']}",
                hint="\n".join(last_words(ended.last_lines)),
                exit_code=ExitCode.SCRIPT_FAILED,
            )
        context = card.context
        if used_cudnn(recording):
            context, _ = estimate(run_options, run.device, run.facts, ("cublas", "cudnn"))
        trace = read_recording(recording, alloc_conf=alloc_conf_in_force(run))
    if trace is None:
        raise PeakmemError("the run kept no history of its allocations", hint="tune a trace or a snapshot instead")
    named = options.gpu is not None or options.memory is not None
    room = Room(
        card=run.device,
        capacity=run.device.total_memory - context if named else None,
        why=less_context(run.device.total_memory, context) if named else "",
    )
    return _Subject(trace=trace, facts=run.facts, room=room, run=run, steps=len(recording["steps"]))


def _verify(subject: _Subject, run: Run, judgement: Judgement) -> Verified | None:
    """Run the command again under the best settings, with the memory that there is."""
    assert judgement.best is not None
    conf = judgement.best.candidate.alloc_conf
    limited = subject.room.capacity is not None and judgement.outcome is not Outcome.TOO_LITTLE
    steps = run.question.steps if run.question.steps == "all" or not subject.steps else str(subject.steps)
    again = replace(run, alloc_conf=conf, question=replace(run.question, record=False, steps=steps))
    with RunProgress("hide", run.command) as progress:
        progress.say(f"running {Path(run.command[-1]).name} again under {name_of(conf)}")
        ended = launch(again, limited=limited, on_progress=progress.line)
    recording = ended.outcome.main()
    if recording is None:
        return None
    return Verified(
        alloc_conf=conf,
        reserved=int(recording["devices"][0]["peak"]["reserved"]),
        retries=int(recording["devices"][0]["num_alloc_retries"]),
        fits=recording["oom"] is None,
        limited=limited,
        steps=len(recording["steps"]),
    )


class _Progress(Spinner):
    """A line with what is being tried."""

    def __init__(self) -> None:
        super().__init__("replaying the trace as it is (Ctrl-C ends the search and keeps the results)")

    def tried(self, alloc_conf: str, done: int, planned: int) -> None:
        """Show what was done."""
        self.say(f"{done} of {planned} settings tried: {name_of(alloc_conf)}")
