"""Which operators of TensorFlow belong to the backward pass, to the optimizer, and to which layer of Keras.

While a `tf.function` is traced, operators are made under names; what is made within `GradientTape.gradient` is the
backward pass, what is made while an optimizer is applied is the optimizer's. Outside of functions operators run as they
are called, and the context that the virtual GPU notes for each event tells the same.
"""

import functools
import importlib

MOST_NAMES = 500_000


class Phases:
    """Follows the tracing of functions and eager calls.

    Attributes:
        names: for "backward" and "optimizer" the names of the operators that were made then.
        layers: for scopes of names, in which operators are made, the path of the layer that opened it. TensorFlow
            numbers a scope that is opened again, so that `dense_1` can be the second one of a layer `dense`.
    """

    def __init__(self, tensorflow, contexts, on_gradients):
        """
        Args:
            tensorflow: the module.
            contexts: the contexts of events.
            on_gradients: called with what gradients were taken of, and the gradients, outside of functions.
        """
        self._on_gradients = on_gradients
        self.names: dict = {"backward": set(), "optimizer": set()}
        self.layers: dict = {}
        self._tf = tensorflow
        self._contexts = contexts
        self._graph = importlib.import_module("tensorflow.python.framework.ops").get_default_graph

    def install(self):
        """Watch gradient tapes."""
        tape = self._tf.GradientTape
        tape.gradient = self._around(tape.gradient)

    def watch_layers(self):
        """Watch the scopes that layers of Keras 3 open for the names of their operators."""
        try:
            scopes = importlib.import_module("keras.src.backend.tensorflow.core").name_scope
            enter = scopes.__enter__
        except (ImportError, AttributeError):  # another Keras
            return
        current = importlib.import_module("tensorflow.python.framework.ops").get_name_scope
        phases = self

        @functools.wraps(enter)
        def __enter__(self):
            entered = enter(self)
            caller = getattr(self, "caller", None)
            path = getattr(caller, "path", None) or getattr(caller, "name", None)
            if path and len(phases.layers) < MOST_NAMES and not phases._tf.executing_eagerly():
                phases.layers[current()] = str(path)
            return entered

        scopes.__enter__ = __enter__

    def _around(self, original):
        phases = self

        @functools.wraps(original)
        def gradient(self, target, sources, *args, **kwargs):
            with phases.phase("backward"):
                found = original(self, target, sources, *args, **kwargs)
            if phases._tf.executing_eagerly():
                phases._on_gradients(sources, found)
            return found

        return gradient

    def phase(self, name):
        """A context manager: what is made or run meanwhile belongs to this phase."""
        return _Phase(self, name)


class _Phase:
    def __init__(self, phases, name):
        self._phases = phases
        self._name = name

    def __enter__(self):
        phases = self._phases
        self._before = self._graph = None
        if phases._tf.executing_eagerly():
            self._before = phases._contexts.enter("phase", self._name)
        else:
            self._graph = phases._graph()
            self._first = len(self._graph.get_operations())

    def __exit__(self, *error):
        phases = self._phases
        if self._before is not None:
            phases._contexts.leave(self._before)
        if self._graph is None:
            return False
        names = phases.names[self._name]
        # What an inner phase has told stays so: some optimizers take the gradients themselves.
        others = [told for name, told in phases.names.items() if name != self._name]
        for operator in self._graph.get_operations()[self._first :]:
            if len(names) < MOST_NAMES and not any(operator.name in told for told in others):
                names.add(operator.name)
        return False
