"""Watches one process that trains on the CPU: its optimizer steps, its resident memory, its end."""

import contextlib
import importlib
import os
import threading
import time
import weakref

from .. import garbage, late, stopping
from ..ending import Ending
from ..keras import Optimizers
from ..recording import FORMAT
from ..resident import resident_bytes
from ..steps import StepClock, watch_new_optimizers
from ..writing import plain
from . import checkpoints, hollow, operators, recurrent
from .counted import Counted
from .roles import Roles

_STEADY_UNIT = 16 << 20
"""Resident memory is compared between steps in units of so many bytes: malloc's heap never settles to the byte."""


class _Engine:
    """Stands in for autograd's engine, so that a backward pass is known as such."""

    def __init__(self, engine, watch):
        self._engine = engine
        self._watch = watch

    def run_backward(self, *args, **kwargs):
        watch = self._watch
        outer = watch.phase != "backward"
        if outer:
            watch.enter("backward")
        try:
            return self._engine.run_backward(*args, **kwargs)
        finally:
            if outer:
                watch.backward_done()

    def __getattr__(self, name):
        return getattr(self._engine, name)


class CpuWatch(Ending):
    """All that is known of one watched process; written to the session's folder at its end."""

    def __init__(self, torch, settings, native, writer):
        super().__init__(writer)
        self.torch = torch
        self.settings = settings
        self.native = native
        self.clock = StepClock(settings.steps, settings.most_steps)
        self.phase = "other"
        self._started = time.monotonic()
        self._phases = {}  # of this step: phase -> (highest resident, live then)
        self._steps = []
        self._marks = []
        self._highest: dict = {"resident": 0}
        self._roles = Roles(torch)
        self._counted = Counted(torch) if settings.count_layers else None
        self._optimizers: weakref.WeakSet = weakref.WeakSet()
        self._base = 0
        self._own = 0
        self._at_fork = 0
        self._late = {"with": "", "size": 0}
        self._hollow = {"resident": 0, "touched": 0}

    def install(self):
        """Hook into torch; from here on large kernels are skipped."""
        torch = self.torch
        self._base = resident_bytes()
        stands_for = self.settings.hollow
        if stands_for and hollow.stand_in(stands_for["libraries"]):
            self._hollow = {"resident": stands_for["resident"], "touched": stands_for["touched"]}
        self._threads = torch.get_num_threads()
        self.native.look()
        if self._threads == 1:
            self.native.redirect_onednn()
        operators.skip(torch, self.native)
        recurrent.install(torch, self.native)
        checkpoints.install(torch)
        optimizer = importlib.import_module("torch.optim.optimizer")
        optimizer.register_optimizer_step_pre_hook(self._before_optimizer)
        optimizer.register_optimizer_step_post_hook(self._after_optimizer)
        watch_new_optimizers(torch.optim.Optimizer, self.clock, self._optimizers, self._optimizer_made)
        variable = torch.autograd.Variable
        variable._execution_engine = _Engine(variable._execution_engine, self)
        if self._counted is not None:
            self._counted.install()
        self.watch_the_end()
        os.register_at_fork(before=self._before_fork, after_in_child=self._forked)
        # What peakmem itself takes of the process; `torch.optim` is imported by `import torch` in any case.
        self._own = max(0, resident_bytes() - self._base)
        self.writer.progress("torch", torch=torch.__version__)

    def _before_fork(self):
        if not self._finished:
            state = self.native.read()
            self._at_fork = max(self._at_fork, state.mapped + state.heap)

    def _forked(self):
        # Workers really compute: what they load and transform is what the script reads.
        self.native.skip_operators(False)
        self._finished = bool(self._steps) or bool(self._optimizers)
        self._pid = os.getpid()
        self._lock = threading.RLock()

    # ------------------------------------------------------------------- hooks

    def enter(self, phase):
        """A phase of the training begins: the one before it is over, and its peak is noted."""
        garbage.look_as_ever()
        with self.native.looking_on():
            self._enter(phase)

    def _enter(self, phase):
        if phase == "backward" and self._counted is not None:
            self._counted.close()
        state = self.native.read()
        before = self._phases.get(self.phase, (0, 0))
        if state.peak > before[0]:
            self._phases[self.phase] = (state.peak, state.peak_live)
        if state.peak > self._highest["resident"]:
            self._highest = {
                "resident": state.peak,
                "live": state.peak_live,
                "outside": state.peak_outside,
                "step": len(self.clock.steps),
                "phase": self.phase,
            }
        self.native.reset_peak()
        self.phase = phase
        self._marks.append((state.events, phase, len(self.clock.steps)))

    def _optimizer_made(self):
        if not self._late["with"]:
            self._leave_libraries_out()
        self.enter("forward")

    def _leave_libraries_out(self):
        """The script would have loaded the compiler by its first optimizer; if nobody knows what it takes, it is."""
        known = self.settings.late_sizes
        left_out = late.left_out(self.torch, known)
        if left_out is not None:
            key, size = left_out
            self._late = {"with": key, "size": size}
            self.native.look()

    def backward_done(self):
        """A backward pass of the main program ended."""
        self.clock.backward_done()
        self.enter("forward")

    def keras_imported(self, keras):
        """Keras has been imported: where torch is its backend, its optimizers make steps as well."""
        with contextlib.suppress(Exception):  # a Keras that is not as we know it
            if keras.config.backend() == "torch":
                Optimizers(self).install(keras)

    def optimizer_begins(self, name):
        """An optimizer of Keras begins a step."""
        if not self._finished:
            self.enter("optimizer")

    def optimizer_ends(self, optimizer):
        """An optimizer of Keras has stepped."""
        if self._finished:
            return
        self.native.look()
        self.enter("forward")
        self._roles.keras(optimizer)
        self._stepped(optimizer)

    def _before_optimizer(self, optimizer, args, kwargs):
        if self._finished:
            return
        self.enter("optimizer")
        with self.native.looking_on():
            self._roles.gradients(optimizer)

    def _after_optimizer(self, optimizer, args, kwargs):
        if self._finished:
            return
        self.native.look()
        self.enter("forward")
        with self.native.looking_on():
            self._roles.states(optimizer)
        self._stepped(optimizer)

    def _stepped(self, optimizer):
        with self.native.looking_on():
            self._count_step(optimizer)
        if self.clock.enough():
            self.finish("enough")
            stopping.stop()

    def _count_step(self, optimizer):
        peaks = list(self._phases.values())
        live = max(live for _, live in peaks)
        rss = max(resident for resident, _ in peaks)
        state = self.native.read()
        steps_before = len(self.clock.steps)
        self.clock.optimizer_stepped(id(optimizer), state.events, live, -(-rss // _STEADY_UNIT) * _STEADY_UNIT)
        if len(self.clock.steps) > steps_before:
            self._steps.append({"phases": {}, "end": 0})
        step = self._steps[-1]
        for phase, (resident, _) in self._phases.items():
            step["phases"][phase] = max(step["phases"].get(phase, 0), resident)
        step["end"] = state.resident
        self._phases = {}
        self._roles.at_peak(self.native)
        self.writer.progress("step", step=len(self.clock.steps), allocated=state.live, reserved=rss)

    # --------------------------------------------------------------------- end

    def _write(self, reason):
        self.native.look()
        self.enter("other")
        self._roles.at_peak(self.native)
        key = late.key_of(self.torch) + (", hollow" if self._hollow["resident"] else "")
        touched = (self.settings.exit_sizes or {}).get(key)
        self.writer.recording(plain({**self._describe(reason), "exit_with": key, "exit_touched": touched}))
        if touched is not None and self._most_at_exit(touched) < self._highest["resident"]:
            stopping.leave_early()
        self.native.tell_at_end(self.writer.at_end(), leave=touched is not None)

    def _most_at_exit(self, touched):
        """What the process can take at its very end, with nothing freed before: if it is no peak, nobody asks."""
        return self.native.read().resident + touched + self._hollow["touched"]

    def _describe(self, reason):
        torch = self.torch
        state = self.native.read()
        return {
            "format": FORMAT,
            "device": "cpu",
            "devices": [],
            "pid": os.getpid(),
            "torch": torch.__version__,
            "reason": reason,
            "error": self._error,
            "oom": None,
            "seconds": time.monotonic() - self._started,
            "threads": self._threads,
            "skipped": self.native.skipped(),
            "steady": reason == "enough" and self.settings.steps == "auto" and self.clock._steady(),
            "base": self._base,
            "own": self._own,
            "outside": state.outside,
            "late": {**self._late, "left_out": late.not_loaded()},
            "hollow": self._hollow,
            "end": _resident_and_highest(),
            "highest": self._highest,
            "steps": self._steps,
            "backwards": [step.backwards for step in self.clock.steps],
            "optimizers": [step.optimizers for step in self.clock.steps],
            "marks": self._marks,
            "course": self.native.course(),
            "roles": self._roles.found,
            "by_hand": self._roles.by_hand,
            "model": self._counted.model() if self._counted is not None else None,
            "at_fork": self._at_fork,
            "assumed": recurrent.rows(),
        }


def _resident_and_highest():
    """Resident memory now and its highest so far, as they really are, bytes."""
    found = {}
    with open("/proc/self/status", "rb") as file:
        for line in file:
            if line.startswith((b"VmHWM:", b"VmRSS:")):
                found[line[:5].decode()] = int(line.split()[1]) * 1024
    return {"resident": found.get("VmRSS", 0), "highest": found.get("VmHWM", 0)}
