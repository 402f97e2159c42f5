"""When a training step of TensorFlow ends.

That is an outermost call of a `tf.function` that applies an optimizer, or an optimizer that is applied outside of all
of them.
"""

import contextlib
import functools
import importlib
import threading


class Steps:
    """Tells of the steps of one process.

    Attributes:
        optimizers: those that were applied, or are applied in a function that was traced.
    """

    def __init__(
        self, tensorflow, stepped, *, applying=contextlib.nullcontext, traced=lambda: None, returned=lambda: None
    ):
        """
        Args:
            tensorflow: the module.
            stepped: called with the identity of what stepped, when the step has been computed.
            applying: gives the context in which an optimizer is applied.
            traced: called when an optimizer was applied in a function that is being traced.
            returned: called after each outermost call of a function, also if it failed.
        """
        self.optimizers: list = []
        self._tf = tensorflow
        self._stepped = stepped
        self._applying_in = applying
        self._traced = traced
        self._returned = returned
        self._threads = threading.local()

    def install(self):
        """Hook into TensorFlow."""
        module = importlib.import_module("tensorflow.python.eager.polymorphic_function.polymorphic_function")
        module.Function.__call__ = self._calling(module.Function.__call__)

    def keras_imported(self, keras):
        """Keras has been imported: its optimizers make steps, where TensorFlow is its backend; gives whether it is."""
        try:
            if keras.config.backend() != "tensorflow":
                return False
        except AttributeError:  # tf_keras, Keras 2
            pass
        for name in ("Optimizer", "LossScaleOptimizer"):
            for kind in getattr(getattr(getattr(keras, "optimizers", None), name, None), "__mro__", ()):
                for method in ("apply", "apply_gradients"):
                    original = vars(kind).get(method)
                    if original is not None and not hasattr(original, "_peakmem"):
                        setattr(kind, method, self._applying(original))
        return True

    def _calling(self, original):
        steps = self

        @functools.wraps(original)
        def __call__(self, *args, **kwargs):
            threads = steps._threads
            if getattr(threads, "function", None) is not None:
                return original(self, *args, **kwargs)
            threads.function = self
            try:
                result = original(self, *args, **kwargs)
            finally:
                threads.function = None
                steps._returned()
            if getattr(self, "_peakmem_trains", False):
                steps._stepped(id(self))
            return result

        return __call__

    def _applying(self, original):
        steps = self

        @functools.wraps(original)
        def applied(self, *args, **kwargs):
            if getattr(steps._threads, "applying", False):  # one inside another, or one method that calls the other
                return original(self, *args, **kwargs)
            steps._threads.applying = True
            try:
                with steps._applying_in():
                    result = original(self, *args, **kwargs)
            finally:
                steps._threads.applying = False
            steps._applied(self)
            return result

        vars(applied)["_peakmem"] = True
        return applied

    def _applied(self, optimizer):
        """An optimizer was applied: now, or in a function that is being traced and will apply it when it is called."""
        if not any(known is optimizer for known in self.optimizers):
            self.optimizers.append(optimizer)
        function = getattr(self._threads, "function", None)
        if function is not None:
            function._peakmem_trains = True
            self._traced()
        elif self._tf.executing_eagerly():
            self._stepped(id(optimizer))
