"""Changes of training settings that are made in the watched process, for `peakmem run --set` and `peakmem advise`.

Only changes whose effect is the same as that of the line in the script are made here. Each tells how often it took
effect, or why it did not.
"""

import functools
import importlib
import inspect
import types
from collections import Counter

from . import importing
from .change_names import parse_change


def install(watch, texts):
    """Make these changes in this process; called once torch is imported."""
    changes = [_KINDS[name](watch, text, value) for text in texts for name, value in [parse_change(text)]]
    if changes:
        _chain_roots(watch, [change for change in changes if hasattr(change, "root")])
    return changes


def _chain_roots(watch, changes):
    before = watch.modules.on_root

    def on_root(module, args, kwargs):
        for change in changes:
            change.root(module)
        if before is not None:
            before(module, args, kwargs)

    watch.modules.on_root = on_root


class Change:
    """One change.

    Attributes:
        text: as it was asked for.
        count: how often it took effect.
        why_not: why it did not; empty if it did or had no occasion.
    """

    nothing = "the script gave no occasion for it"

    def __init__(self, watch, text, value):
        self.watch = watch
        self.torch = watch.torch
        self.text = text
        self.value = value
        self.count = 0
        self.why_not = ""
        self.install()

    def install(self):
        """Hook into torch."""

    def before_backward(self):
        """A backward pass begins."""

    def row(self):
        """What became of it, for the recording."""
        why_not = "" if self.count else self.why_not or self.nothing
        return {"change": self.text, "count": self.count, "why_not": why_not}


class _Autocast(Change):
    """`with torch.autocast(...)` around the forward pass and the loss, up to the backward pass."""

    nothing = "no model was called"

    def install(self):
        self._open = None

    def root(self, module):
        torch = self.torch
        if self._open is None:
            if self.count == 0 and _autocast_is_on(torch):
                self.why_not = "the script uses autocast itself"
            if self.why_not:
                return
            self._open = torch.autocast("cuda", dtype=torch.bfloat16)
            self._open.__enter__()
            self.count += 1
            if not torch.is_grad_enabled():  # an evaluation has no backward pass that would end it
                self.before_backward()
                self.count -= 1

    def before_backward(self):
        if self._open is not None:
            self._open.__exit__(None, None, None)
            self._open = None


def _autocast_is_on(torch):
    try:
        return torch.is_autocast_enabled("cuda")
    except TypeError:  # before PyTorch 2.4
        return torch.is_autocast_enabled()


class _OptimizerArgument(Change):
    """A keyword argument of every optimizer of torch.optim that takes it."""

    nothing = "the script made no optimizer of torch.optim that takes it"

    def install(self):
        self._name = self.text.partition("=")[0].rpartition(".")[2]
        base = self.torch.optim.Optimizer
        for kind in list(vars(self.torch.optim).values()):
            if not (inspect.isclass(kind) and issubclass(kind, base)) or kind is base:
                continue
            if self._name in inspect.signature(kind.__init__).parameters:
                self._wrap(kind)

    def _wrap(self, kind):
        original, name, wanted, change = kind.__init__, self._name, self.value == "true", self
        mark = f"_peakmem_{name}"

        @functools.wraps(original)
        def __init__(self, *args, **kwargs):
            if not getattr(self, mark, False):  # else a subclass of torch.optim's own that passes it on
                setattr(self, mark, True)
                if kwargs.get(name) is wanted:
                    change.why_not = "the script does so already"
                else:
                    kwargs[name] = wanted
                    other = "foreach" if name == "fused" else "fused"
                    if other in kwargs:
                        kwargs[other] = None if wanted else kwargs[other]
                    change.count += 1
            original(self, *args, **kwargs)

        kind.__init__ = __init__


class _ZeroGrad(Change):
    """`optimizer.zero_grad()` right after `optimizer.step()`, or `set_to_none=True` wherever gradients are zeroed."""

    nothing = "the script zeroes no gradients in place"

    def install(self):
        torch, change = self.torch, self
        if self.value == "end":
            self.nothing = "no optimizer made a step"

            def after_step(optimizer, args, kwargs):
                optimizer.zero_grad(set_to_none=True)
                change.count += 1

            optimizers = importlib.import_module("torch.optim.optimizer")
            optimizers.register_optimizer_step_post_hook(after_step)
            return
        for kind in (torch.optim.Optimizer, torch.nn.Module):
            self._wrap(kind)

    def _wrap(self, kind):
        original, change = kind.zero_grad, self

        @functools.wraps(original)
        def zero_grad(self, set_to_none=True):
            change.count += 0 if set_to_none else 1
            return original(self, set_to_none=True)

        kind.zero_grad = zero_grad


class _Checkpoint(Change):
    """Activation checkpointing of each block: the outermost modules with children whose class occurs more than once."""

    nothing = "the model has no blocks that occur more than once"

    def install(self):
        self._done = set()

    def root(self, module):
        if id(module) in self._done:
            return
        self._done.add(id(module))
        from torch.utils.checkpoint import checkpoint

        for block in blocks_of(self.torch.nn, module):
            block.forward = _checkpointed(checkpoint, block.forward, self.torch)
            self.count += 1


def _checkpointed(checkpoint, forward, torch):
    @functools.wraps(forward)
    def run(*args, **kwargs):
        if not torch.is_grad_enabled():
            return forward(*args, **kwargs)
        return checkpoint(forward, *args, use_reentrant=False, **kwargs)

    return run


def blocks_of(nn, model):
    """The outermost modules with children, no plain containers, whose class occurs more than once."""
    containers = (nn.Sequential, nn.ModuleList, nn.ModuleDict)
    parents = [m for m in model.modules() if next(m.children(), None) is not None and not isinstance(m, containers)]
    counts = Counter(type(module) for module in parents)
    blocks, inner = [], set()
    for module in parents:
        if counts[type(module)] > 1 and module not in inner:
            blocks.append(module)
            inner.update(module.modules())
    return blocks


class _BucketView(Change):
    """`gradient_as_bucket_view=True` of every `DistributedDataParallel`: gradients lie in its buckets."""

    nothing = "the script makes no DistributedDataParallel"

    def install(self):
        importing.when_imported("torch.nn.parallel.distributed", self._wrap)

    def _wrap(self, module):
        kind, change = module.DistributedDataParallel, self
        original = kind.__init__

        @functools.wraps(original)
        def __init__(self, *args, **kwargs):
            if kwargs.get("gradient_as_bucket_view"):
                change.why_not = "the script does so already"
            else:
                kwargs["gradient_as_bucket_view"] = True
                change.count += 1
            original(self, *args, **kwargs)

        kind.__init__ = __init__


class _Accumulate(Change):
    """Of N calls of `optimizer.step()` the last alone takes effect, and so does its `zero_grad()`."""

    nothing = "no optimizer made a step"

    def install(self):
        torch, change, every = self.torch, self, int(self.value)
        original = torch.optim.Optimizer.__init__

        @functools.wraps(original)
        def __init__(self, *args, **kwargs):
            original(self, *args, **kwargs)
            step, zero_grad = self.step, self.zero_grad
            calls, waiting = 0, False
            change.why_not = f"the script's loop was over before {every} passes were made"

            def counted_step(self, *args, **kwargs):
                nonlocal calls, waiting
                calls += 1
                waiting = calls % every != 0
                if waiting:
                    return None
                change.count += 1
                return step(*args, **kwargs)

            def guarded_zero_grad(self, *args, **kwargs):
                if not waiting:
                    zero_grad(*args, **kwargs)

            self.step = types.MethodType(counted_step, self)
            self.zero_grad = types.MethodType(guarded_zero_grad, self)

        torch.optim.Optimizer.__init__ = __init__


class _Benchmark(Change):
    """`torch.backends.cudnn.benchmark`, whatever the script says."""

    def install(self):
        wanted = self.value == "true"
        set_it = self.torch._C._set_cudnn_benchmark
        self.count = 1
        set_it(wanted)
        self.torch._C._set_cudnn_benchmark = lambda value: set_it(wanted)


_KINDS = {
    "amp": _Autocast,
    "optimizer.fused": _OptimizerArgument,
    "optimizer.foreach": _OptimizerArgument,
    "zero_grad": _ZeroGrad,
    "checkpoint": _Checkpoint,
    "ddp.gradient_as_bucket_view": _BucketView,
    "accumulate": _Accumulate,
    "cudnn.benchmark": _Benchmark,
}
