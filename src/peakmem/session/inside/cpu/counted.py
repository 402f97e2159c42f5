"""Sizes for the calculation by hand: of parameters, of inputs, of what layers with weights give in a forward pass."""

import weakref

from ..modules import ModuleTracker
from ..notes import tensors_in


class _NoContexts:
    """Nobody asks here in which module an operator runs."""

    def enter(self, kind, name):
        return None

    def leave(self, before):
        return None


class Counted:
    """Counts in the first forward pass; `close` says that it is over."""

    def __init__(self, torch):
        self._inputs = []
        self._models: weakref.WeakSet = weakref.WeakSet()
        self._modules = ModuleTracker(torch, _NoContexts(), device="cpu")
        self._parameters = {}  # identity -> (elements, bytes)
        self._torch = torch

    def install(self):
        """Take the place of `nn.Module.__call__`."""
        self._modules.on_root = self._called
        self._modules.install()

    def close(self):
        """A backward pass begins, which may run layers again."""
        self._modules.layers_open = False

    def model(self):
        """Plain values, as `Owners.model` gives them of a model on the GPU."""
        return {
            "parameters": sum(elements for elements, _ in self._parameters.values()),
            "parameter_bytes": sum(size for _, size in self._parameters.values()),
            "inputs": self._inputs,
            "layers": self._modules.layers,
        }

    def _called(self, model, args, kwargs):
        if model in self._models:
            self.close()
        self._models.add(model)
        for parameter in model.parameters():
            elements = parameter.numel()
            self._parameters[id(parameter)] = (elements, elements * parameter.element_size())
        if self._modules.layers_open and not self._modules.layers:
            for path, tensor in tensors_in((args, kwargs), self._torch.Tensor):
                if tensor.grad_fn is None:  # else it is the result of something, not an input
                    name = path.partition(".")[2]
                    row = (name, tuple(tensor.shape), tensor.element_size(), tensor.is_floating_point())
                    self._inputs.append(row)
