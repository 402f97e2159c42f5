"""Watches one process that uses torch: its optimizer steps, its allocator, its end."""

import importlib
import os
import threading
import traceback
import weakref

from . import distributed, stopping
from .contexts import Contexts
from .ending import Ending, describe_error
from .graph import look_at_nodes, mark_nodes
from .host_memory import HostMemory
from .keras import Optimizers
from .modules import ModuleTracker
from .native import Native
from .owners import Owners
from .steps import StepClock, watch_new_optimizers
from .writing import Writer

PEAKS = ("requested", "allocated", "active", "reserved")


def install(torch, settings):
    """Watch this process from now on, if the virtual GPU is in it; gives the `Watch`, or None."""
    try:
        native = Native()
    except OSError:
        return None
    writer = Writer(settings.folder)
    if not torch.version.cuda:
        writer.progress("no_cuda", torch=torch.__version__)
        return None
    watch = Watch(torch, settings, native, writer)
    watch.install()
    return watch


class _Engine:
    """Stands in for autograd's engine, so that a backward pass is known as such."""

    def __init__(self, engine, watch):
        self._engine = engine
        self._watch = watch

    def run_backward(self, tensors, *args, **kwargs):
        retained = args[1] if len(args) > 1 else kwargs.get("keep_graph", False)
        with self._watch.backward(tensors, retained=bool(retained)):
            return self._engine.run_backward(tensors, *args, **kwargs)

    def __getattr__(self, name):
        return getattr(self._engine, name)


class _Backward:
    """The time of one backward pass; nested ones (checkpointing) belong to the outer one."""

    def __init__(self, watch, tensors, retained):
        self._watch = watch
        self._tensors = tensors
        self._retained = retained

    def __enter__(self):
        watch = self._watch
        if watch.backward_depth == 0:
            for change in watch.changes:
                change.before_backward()
            watch.mark("backward", retained=self._retained)
            watch.owners.before_backward(self._tensors)
            # Without a recording the hooks of checkpointing are not known: to look at what they keep would run them.
            see = watch.owners.node if watch.settings.record else None
            mark_nodes(self._tensors, watch.contexts, watch.native, see)
        elif watch.settings.record:  # of a segment that was computed again, in a thread of the engine
            look_at_nodes(self._tensors, watch.owners.node)
        self._tensors = None
        watch.backward_depth += 1
        self._before = watch.contexts.enter("phase", "backward")

    def __exit__(self, *error):
        watch = self._watch
        watch.contexts.leave(self._before)
        watch.backward_depth -= 1
        if watch.backward_depth == 0:
            watch.clock.backward_done()
            watch.mark("backward_end")
            watch.owners.gradients()
        return False


class Watch(Ending):
    """All that is known of one watched process; written to the session's folder at its end."""

    def __init__(self, torch, settings, native, writer):
        super().__init__(writer)
        self.torch = torch
        self.settings = settings
        self.native = native
        self.clock = StepClock(settings.steps, settings.most_steps)
        self.contexts = Contexts(native, torch._C._autograd._get_sequence_nr)
        self.modules = ModuleTracker(torch, self.contexts)
        self.marks = []
        self.changes = []
        self.backward_depth = 0
        self._values = None
        self.ledger = None
        self._started = False
        self._recording = False
        self._peaks = {}
        self._oom = None
        self._optimizers: weakref.WeakSet = weakref.WeakSet()
        self._optimizer_before = None
        self.owners = Owners(torch, self.modules, self._optimizers, native.event_count)
        self.host = HostMemory(torch, native, settings)

    # ------------------------------------------------------------------ set-up

    def install(self):
        """Hook into torch; the allocator's history starts with the first use of CUDA."""
        torch = self.torch
        torch.cuda._lazy_call(self._cuda_started)
        from . import values
        from .values import ledger

        self._values = values.install(self.settings.assume)
        self.host.leave_out(self._values.memory)
        self.ledger = ledger.Ledger()
        distributed.install(self.ledger.note)
        optimizer = importlib.import_module("torch.optim.optimizer")
        optimizer.register_optimizer_step_pre_hook(self._before_optimizer)
        optimizer.register_optimizer_step_post_hook(self._after_optimizer)
        watch_new_optimizers(torch.optim.Optimizer, self.clock, self._optimizers)
        self._watch_resets()
        variable = torch.autograd.Variable
        variable._execution_engine = _Engine(variable._execution_engine, self)
        self.modules.install()
        if self.settings.record:
            self.owners.install()
        else:
            self.owners.notes.open = False
        if self.settings.build_on_device:
            from . import building

            building.install(torch)
        if self.settings.no_initial_values:
            from . import initial

            initial.install(torch)
        if self.settings.changes:
            from . import changes

            self.changes = changes.install(self, self.settings.changes)
        self.host.install()
        self.watch_the_end()
        self._watch_threads()
        os.register_at_fork(after_in_child=self._forked)
        self.writer.progress("torch", torch=torch.__version__)

    def _cuda_started(self):
        if self._started or os.getpid() != self._pid:
            return
        torch = self.torch
        self._started = True
        self.host.cuda_started()
        if self.settings.record:
            context = "alloc" if self.settings.stacks else None
            torch.cuda.memory._record_memory_history("all", context=context, stacks="python")
            self._recording = True
            self.native.watch_operators()
        torch._C._cuda_attach_out_of_memory_observer(self._out_of_memory)
        self.writer.progress("cuda")

    def _watch_resets(self):
        # The script may start PyTorch's peaks anew; the peaks of the whole run are kept here.
        original = self.torch._C._cuda_resetPeakMemoryStats

        def reset_peak_memory_stats(device):
            self._collect_peaks()
            return original(device)

        self.torch._C._cuda_resetPeakMemoryStats = reset_peak_memory_stats

    def _watch_threads(self):
        original = threading.excepthook

        def excepthook(args):
            # Other errors of a thread are no end of the script, which goes on; memory that was missing is told.
            if self._oom is not None and self._error is None and args.exc_value is not None:
                error = describe_error(args.exc_type, args.exc_value, args.exc_traceback)
                if "out of memory" in error["message"].lower():
                    self._error = error
            original(args)

        threading.excepthook = excepthook

    def _forked(self):
        if self._started:
            # A worker of a DataLoader, say: it shares the hooks, and must neither count nor write.
            self._finished = True
        else:  # nothing was counted yet: the child may be the one that trains
            self._pid = os.getpid()
            self._lock = threading.RLock()
            self.host.publish()

    # ------------------------------------------------------------------- hooks

    def mark(self, kind, **fields):
        """Note that something happened between two allocator events."""
        if self.contexts.open:
            self.marks.append((self.native.event_count(), kind, fields))

    def backward(self, tensors, *, retained):
        """A context manager for the time of one backward pass from some tensors, which may retain its graph."""
        return _Backward(self, tensors, retained)

    def keras_imported(self, keras):
        """Keras has been imported: where torch is its backend, its optimizers make steps as well."""
        try:
            if keras.config.backend() == "torch":
                self.owners.keras_optimizers = keras_optimizers = Optimizers(self)
                keras_optimizers.install(keras)
        except Exception as error:  # a Keras that is not as we know it
            self.owners.failure = self.owners.failure or f"keras: {type(error).__name__}: {error}"

    def _before_optimizer(self, optimizer, args, kwargs):
        self.optimizer_begins(type(optimizer).__name__)

    def _after_optimizer(self, optimizer, args, kwargs):
        self.optimizer_ends(optimizer)

    def optimizer_begins(self, name):
        """An optimizer begins a step."""
        if self._finished:
            return
        self.owners.gradients()
        self.mark("optimizer", optimizer=name)
        self._optimizer_before = self.contexts.enter("phase", "optimizer")

    def optimizer_ends(self, optimizer):
        """An optimizer has made a step."""
        if self._finished:
            return
        if self._optimizer_before is not None:
            self.contexts.leave(self._optimizer_before)
            self._optimizer_before = None
        self.mark("optimizer_end")
        self.owners.optimizer_stepped(optimizer)
        allocated, reserved = self._step_peaks()
        self.clock.optimizer_stepped(id(optimizer), self.native.event_count(), allocated, reserved)
        step = self.clock.steps[-1]
        self.writer.progress("step", step=len(self.clock.steps), allocated=step.allocated, reserved=step.reserved)
        self.contexts.forget_old_nodes()
        self.owners.step_done()
        self.host.step_done()
        if self.clock.enough():
            self.finish("enough")
            stopping.stop()

    def _step_peaks(self):
        allocated = reserved = 0
        for device in range(self.torch.cuda.device_count() if self._started else 0):
            peaks = self.native.peaks(device)
            self.native.reset_peaks(device)
            allocated, reserved = max(allocated, peaks[0]), max(reserved, peaks[1])
        return allocated, reserved

    def _out_of_memory(self, device, requested, total, free):
        self._oom = {
            "event": self.native.event_count(),
            "device": device,
            "requested": requested,
            "total": total,
            "free": free,
            "context": self.native.context(),
            "operators": self.native.running(),
            "step": len(self.clock.steps),
            "stack": [(f.filename, f.lineno, f.name) for f in traceback.extract_stack()[:-1]],
        }

    # --------------------------------------------------------------------- end

    def _collect_peaks(self):
        if not self._started:
            return
        for device in range(self.torch.cuda.device_count()):
            stats = self.torch._C._cuda_memoryStats(device)
            kept = self._peaks.setdefault(device, dict.fromkeys(PEAKS, 0))
            for name in PEAKS:
                peak = stats[f"{name}_bytes"]["all"]["peak"]
                kept[name] = max(kept[name], peak)

    def _write(self, reason):
        self.host.close()
        if not self._started:  # the process never used CUDA
            if self._error:
                self.writer.progress("error", **self._error)
            return
        from .recording import describe

        self._collect_peaks()
        self.owners.finish()
        self.writer.progress("writing")
        self.writer.recording(describe(self, reason))
