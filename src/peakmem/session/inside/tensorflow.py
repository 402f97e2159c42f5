"""Watches one process that uses TensorFlow on the virtual GPU: its training steps, its allocator, its end.

TensorFlow keeps the books itself: `tf.config.experimental.get_memory_info` gives what its allocator has handed out, and
the virtual GPU what it took from the driver. A step is an outermost call of a `tf.function` that applies an optimizer
(which is what `model.fit` calls for one batch or some), or an optimizer that is applied outside of all of them.
"""

import importlib
import json
import os
import re
import sys

from . import stopping
from .contexts import Contexts
from .ending import Ending
from .native import Native
from .steps import StepClock, is_steady
from .tensorflow_host import TensorflowHost
from .tensorflow_phases import Phases
from .tensorflow_steps import Steps
from .tensorflow_variables import Variables
from .writing import Writer, plain

FORMAT = "peakmem/recording/1"
_SHAPE = re.compile(r"shape\[([\d,]*)\] and type (\w+)")
_TRYING = re.compile(r"(?:trying to allocate|allocate|allocating) ([\d.]+) ?(KiB|MiB|GiB|B|bytes)\b")
_UNITS = {"B": 1, "bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_SIZES = {"bool": 1, "int8": 1, "uint8": 1, "half": 2, "bfloat16": 2, "int16": 2, "float": 4, "int32": 4, "double": 8,
          "int64": 8, "complex64": 8, "complex128": 16}  # fmt: skip


def install(tensorflow, settings):
    """Watch this process from now on, if the virtual GPU is in it and serves TensorFlow; gives the watch, or None."""
    if os.environ.get("PEAKMEM_VGPU_DRIVER") != "1":
        return None
    try:
        native = Native()
    except OSError:
        return None
    watch = TensorflowWatch(tensorflow, settings, native, Writer(settings.folder))
    watch.install()
    return watch


class TensorflowWatch(Ending):
    """All that is known of one process; written to the session's folder at its end."""

    def __init__(self, tensorflow, settings, native, writer):
        super().__init__(writer)
        self._tf = tensorflow
        self._native = native
        self._settings = settings
        self._clock = StepClock(settings.steps, settings.most_steps)
        self._contexts = Contexts(native, lambda: 0)
        self._variables = Variables(tensorflow, native)
        self._phases = Phases(tensorflow, self._contexts, self._variables.gradients)
        self._host = TensorflowHost(native, settings)
        self._peak = 0
        self._stepping = Steps(
            tensorflow,
            self._stepped,
            applying=lambda: self._phases.phase("optimizer"),
            traced=self._traced,
            returned=native.forget_last_operator,
        )

    # ------------------------------------------------------------------ set-up

    def install(self):
        """Hook into TensorFlow."""
        self.writer.progress("tensorflow", tensorflow=self._tf.__version__)
        self._stepping.install()
        self._phases.install()
        self._host.publish()
        self.watch_the_end()
        os.register_at_fork(after_in_child=self._forked)

    def _forked(self):
        self._finished = True

    def keras_imported(self, keras):
        """Keras has been imported: its optimizers make steps, and its models own variables."""
        if self._stepping.keras_imported(keras):
            self._phases.watch_layers()

    # ------------------------------------------------------------------- hooks

    def _traced(self):
        if self._settings.record and not self._clock.steps and not self._finished:
            with self._tf.init_scope():  # what the first step replaces has never been seen else
                self._variables.look(1, self._stepping.optimizers)

    def _stepped(self, identity):
        if self._finished or not self._uses_gpu():
            return
        allocated = self._allocated_peak()
        self._clock.optimizer_stepped(identity, self._native.event_count(), allocated, self._reserved())
        step = self._clock.steps[-1]
        self.writer.progress("step", step=len(self._clock.steps), allocated=step.allocated, reserved=step.reserved)
        if self._settings.record:
            self._variables.look(len(self._clock.steps), self._stepping.optimizers)
        self._host.step_done()
        if self._clock.enough():
            self.finish("enough")
            stopping.stop()

    def _uses_gpu(self):
        context = importlib.import_module("tensorflow.python.eager.context").context_safe()
        if context is None or getattr(context, "_context_handle", None) is None:
            return False
        return bool(self._tf.config.list_logical_devices("GPU"))

    def _allocated_peak(self):
        """The peak since the last look, bytes; the peak of the whole run is kept.

        The virtual GPU counts each chunk; where TensorFlow uses another allocator, its own peak since the start counts.
        """
        peak = self._native.peaks(0)[0]
        if peak:
            self._native.reset_peaks(0)
        else:
            peak = self._tf.config.experimental.get_memory_info("GPU:0")["peak"]
        self._peak = max(self._peak, peak)
        return peak

    def _reserved(self):
        device = json.loads(self._native.report())["devices"][0]
        return device["peak"] - _context()

    # --------------------------------------------------------------------- end

    def _described(self, kind, error, trace):
        described = super()._described(kind, error, trace)
        message = described["message"]
        # What TensorFlow says where a copy to the device finds no room: "Dst tensor is not initialized."
        refused = "out of memory" in message.lower() or "Dst tensor is not initialized" in message
        return {**described, "memory": kind.__name__ == "ResourceExhaustedError" or refused}

    def _write(self, reason):
        self._host.close()
        if not self._uses_gpu():
            if self._error:
                self.writer.progress("error", **self._error)
            return
        self.writer.progress("writing")
        self.writer.recording(self._recording(reason))

    def _recording(self, reason):
        tf = self._tf
        self._allocated_peak()
        self._variables.look(0, self._stepping.optimizers)
        chunks, chunk_names = self._native.chunks() if self._settings.record else (b"", [])
        library = json.loads(self._native.report())
        device = library["devices"][0]
        details = tf.config.experimental.get_device_details(tf.config.list_physical_devices("GPU")[0])
        requested = self._native.requested_peak(0) or self._peak
        peak = {"allocated": self._peak, "active": self._peak, "reserved": self._reserved()}
        oom = self._oom(device)
        return {
            "format": FORMAT,
            "pid": self._pid,
            "command": plain(sys.orig_argv),
            "framework": f"TensorFlow {tf.__version__}",
            "torch": "",
            "cuda": str(tf.sysconfig.get_build_info().get("cuda_version", "")),
            "architectures": [],
            "cudnn": None,
            "python": sys.version.split()[0],
            "reason": reason,
            "error": plain(self._error),
            "oom": oom,
            "devices": [
                {
                    "name": str(details.get("device_name", "")),
                    "total": 0,
                    "compute_capability": list(details.get("compute_capability", (0, 0))),
                    "peak": {"requested": requested, **peak},
                    "segments": device["allocations"] - device["frees"],
                    "num_alloc_retries": 0,
                    "num_ooms": int(oom is not None),
                    "num_device_alloc": device["allocations"],
                    "num_device_free": device["frees"],
                }
            ],
            "steps": [vars(step) for step in self._clock.steps],
            "steady": is_steady([(step.allocated, step.reserved) for step in self._clock.steps]),
            "marks": [],
            "contexts": plain(self._contexts.table),
            "events": self._native.events() if self._settings.record else b"",
            "snapshot": None,
            "model": {},
            "owners": {},
            "owners_failure": "",
            "autocast": [],
            "changes": [],
            "uses": self._native.uses() if self._settings.record else b"",
            "operators": b"",
            "operator_names": [],
            "reads_told": 0,
            "assumptions": [],
            "library": library,
            "host": plain(self._host.describe()),
            "tensorflow": {
                "growth": self._growth(),
                "failure": plain(self._variables.failure),
                "chunks": chunks,
                "chunk_names": chunk_names,
                "regions": self._native.regions() if self._settings.record else b"",
                "notes": plain(self._variables.table()),
                "roles": plain(self._variables.sums()),
                "layers": plain(self._phases.layers),
                "phases": {name: sorted(names) for name, names in self._phases.names.items()},
            },
        }

    def _growth(self):
        """Whether memory is taken as it is needed."""
        forced = os.environ.get("TF_FORCE_GPU_ALLOW_GROWTH", "").lower()
        if forced in ("true", "1"):
            return True
        if forced in ("false", "0"):
            return False
        try:
            gpus = self._tf.config.list_physical_devices("GPU")
            return bool(gpus and self._tf.config.experimental.get_memory_growth(gpus[0]))
        except (ValueError, RuntimeError):
            return False

    def _oom(self, device):
        error = self._error
        if error is None or not error["memory"]:
            return None
        requested = _requested(error["message"]) or self._native.refused()
        capacity = int(os.environ.get("PEAKMEM_VGPU_CAPACITY", "0"))
        return {
            "event": self._native.event_count(),
            "device": 0,
            "requested": requested,
            "total": capacity,
            "free": max(capacity - device["used"], 0),
            "context": 0,
            "operators": [],
            "step": len(self._clock.steps),
            "stack": error["frames"],
        }


def _context():
    return int(os.environ.get("PEAKMEM_VGPU_CONTEXT", "0"))


def _requested(message):
    """Bytes that were asked for in vain, as well as the message tells; 0 where it does not."""
    shape = _SHAPE.search(message)
    if shape:
        elements = 1
        for size in filter(None, shape[1].split(",")):
            elements *= int(size)
        return elements * _SIZES.get(shape[2], 4)
    trying = _TRYING.search(message)
    return int(float(trying[1]) * _UNITS[trying[2]]) if trying else 0
