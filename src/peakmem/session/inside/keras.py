"""Keras 3 on its torch backend: optimizers that are none of `torch.optim`, and layers that keep their variables apart.

A Keras layer is an `nn.Module` whose parameters lie in a `ParameterDict` under the name `_torch_params`, with the paths
of its variables as keys; a model lists those of all its layers again, and names no layer (Keras 3.15,
keras/src/backend/torch/layer.py). What other frameworks register as buffers are variables that are not trained.
"""

import functools
import re
import weakref

_HOLDER = "_torch_params"


def is_layer(module):
    """Whether a module is a layer or a model of Keras."""
    return hasattr(type(module), "torch_params")


def layer_name(module):
    """The path of a layer as its variables have it, `resnet/conv1` say; None for other modules."""
    if not is_layer(module):
        return None
    return getattr(module, "path", None) or getattr(module, "name", None)


def variable_name(path):
    """The name of a parameter in the words of Keras: what stands behind the dictionary that holds it."""
    before, found, name = path.rpartition(f"{_HOLDER}.")
    return name if found and (not before or before.endswith(".")) else path


def parts_of(module):
    """The modules right below one, without the dictionary of a layer's own variables."""
    return [child for name, child in module.named_children() if name != _HOLDER]


def state_of(model):
    """(name, tensor) of what a model keeps without training it: moving averages, seeds, metrics."""
    if not is_layer(model):
        return []
    layers = model._flatten_layers() if hasattr(model, "_flatten_layers") else [model]
    variables = list(getattr(model, "metrics_variables", None) or ())
    for layer in layers:
        # A layer that is not trained lists its weights among `non_trainable_variables` as well; these two do not.
        variables += getattr(layer, "_non_trainable_variables", ())
        variables += [generator.state for generator in getattr(layer, "_seed_generators", ())]
    return [(variable.path, tensor) for variable, tensor in map(_with_tensor, variables) if tensor is not None]


def path_of(variable):
    """The path of a variable of Keras, or the name of one of TensorFlow."""
    return getattr(variable, "path", None) or str(variable.name)


def states_of(optimizer):
    """(what, name of the parameter or an empty text, tensor) of what an optimizer of Keras keeps."""
    inner = getattr(optimizer, "inner_optimizer", None) or optimizer
    trained = [path_of(variable) for variable in getattr(inner, "_trainable_variables", ())]
    # Keras names a state after its parameter: `adam/sequential_dense_kernel_momentum`.
    beginnings = sorted(
        ((re.sub("[/:]", "_", path) + "_", path.partition(":")[0]) for path in trained), key=lambda row: -len(row[0])
    )
    for variable, tensor in map(_with_tensor, optimizer.variables):
        if tensor is None:
            continue
        name = variable.name
        what, of = next(
            ((name[len(start) :], path) for start, path in beginnings if name.startswith(start)), (name, "")
        )
        yield what, of, tensor


def _with_tensor(variable):
    return variable, getattr(variable, "_value", None)


class Optimizers:
    """Tells a watch of the steps of Keras' optimizers.

    Attributes:
        stepped: the optimizers that have stepped.
    """

    def __init__(self, watch):
        self.stepped: weakref.WeakSet = weakref.WeakSet()
        self._watch = watch
        self._depth = 0

    def install(self, keras):
        """Take the place of `apply` in Keras' optimizers, the one that scales the loss included.

        Args:
            keras: the module, imported whole.
        """
        classes = {}
        for name in ("Optimizer", "LossScaleOptimizer"):
            for kind in getattr(getattr(keras.optimizers, name, None), "__mro__", ()):
                if "apply" in vars(kind):
                    classes[kind] = vars(kind)["apply"]
        for kind, original in classes.items():
            kind.apply = self._around(original)

    def _around(self, original):
        around = self

        @functools.wraps(original)
        def apply(self, *args, **kwargs):
            if around._depth:  # of the optimizer inside one that scales the loss
                return original(self, *args, **kwargs)
            around._depth += 1
            around._watch.optimizer_begins(type(self).__name__)
            try:
                return original(self, *args, **kwargs)
            finally:
                around._depth -= 1
                around.stepped.add(self)
                around._watch.optimizer_ends(self)

        return apply
