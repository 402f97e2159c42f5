"""Where one training step ends and the next begins, and when enough of them have been seen.

Several optimizers stepped in one iteration (GANs, a model and its embeddings) are one step: a new step begins when an
optimizer steps that has already stepped in this one.
"""

import weakref
from dataclasses import dataclass


def watch_new_optimizers(optimizer_class, clock, optimizers, made=lambda: None):
    """Tell a `StepClock` of each optimizer of torch that is made, and of its end.

    Args:
        optimizer_class: `torch.optim.Optimizer`.
        clock: the clock.
        optimizers: a weak set that gets them.
        made: called after each.
    """
    original = optimizer_class.__init__

    def __init__(self, *args, **kwargs):
        original(self, *args, **kwargs)
        optimizers.add(self)
        clock.optimizer_made(id(self))
        weakref.finalize(self, clock.optimizer_gone, id(self)).atexit = False
        made()

    optimizer_class.__init__ = __init__


@dataclass
class Step:
    """One training step.

    Attributes:
        end: number of the allocator event at which the step ended.
        allocated, reserved: the step's peaks, bytes.
        optimizers: how many optimizers stepped in it.
        backwards: how many backward passes it had (more than the optimizers need: gradients are accumulated).
    """

    end: int
    allocated: int
    reserved: int
    optimizers: int = 1
    backwards: int = 0


class StepClock:
    """Groups the steps of optimizers into training steps and says when the peak is steady."""

    def __init__(self, wanted, most):
        """
        Args:
            wanted: "auto", "all" or a number of steps as text.
            most: with "auto", the step after which enough has been seen in any case.
        """
        self.steps = []
        self._stepped = set()
        self._known = set()
        self._counts = {}
        self._backwards = 0
        self._wanted = None if wanted in ("auto", "all") else int(wanted)
        self._auto = wanted == "auto"
        self._most = most

    def optimizer_made(self, optimizer):
        """An optimizer (by its identity) exists that is expected to step."""
        self._known.add(optimizer)

    def optimizer_gone(self, optimizer):
        """An optimizer does not exist any more."""
        self._known.discard(optimizer)

    def backward_done(self):
        """A backward pass of the main program ended."""
        self._backwards += 1

    def optimizer_stepped(self, optimizer, event, allocated, reserved):
        """An optimizer ended its step at allocator event `event`; the peaks are those since the previous such call."""
        self._known.add(optimizer)
        self._counts[optimizer] = self._counts.get(optimizer, 0) + 1
        if optimizer in self._stepped or not self.steps:
            self._stepped = {optimizer}
            self.steps.append(Step(event, allocated, reserved, 1, self._backwards))
        else:
            self._stepped.add(optimizer)
            step = self.steps[-1]
            step.end = event
            step.allocated = max(step.allocated, allocated)
            step.reserved = max(step.reserved, reserved)
            step.optimizers += 1
            step.backwards += self._backwards
        self._backwards = 0

    def enough(self):
        """Whether the script may be ended after the optimizer step that was just told."""
        complete = self._known <= self._stepped
        if self._wanted is not None:
            done = len(self.steps) >= self._wanted
            return done and (complete or len(self.steps) > self._wanted)
        if not self._auto:
            return False
        if len(self.steps) >= self._most:
            return complete or len(self.steps) > self._most
        return complete and self._steady()

    def _steady(self):
        # The first step never counts: optimizer states are made at its end, so it lacks them.
        if len(self.steps) < 3 or any(self._counts.get(optimizer, 0) < 2 for optimizer in self._known):
            return False
        return is_steady([(step.allocated, step.reserved) for step in self.steps])


def is_steady(peaks):
    """Whether the last peaks, a list of (allocated, reserved), show that nothing grows any more.

    That is so when the last two steps are alike, or, since some programs alternate between two peaks, when the last
    four brought no new highest value.
    """
    if len(peaks) < 2:
        return False
    if peaks[-1] == peaks[-2]:
        return True
    before, last = peaks[1:-4], peaks[-4:]
    return bool(before) and all(max(p[i] for p in last) <= max(p[i] for p in before) for i in (0, 1))


def has_settled(peaks):
    """Whether the last four steps, by their peaks, brought no new highest.

    Where threads take and give back in another order in each step, an unlucky order may open a region that is then
    kept: in a real training of EfficientNetB0 with TensorFlow that came in the fifth step, after three alike.
    """
    before, last = peaks[1:-4], peaks[-4:]
    return bool(before) and max(last) <= max(before)
