"""Who holds the memory: looks at parameters, gradients, optimizer states, inputs and saved tensors when they are there.

All looks are by storage: the address of a tensor's memory at a moment. Nothing is kept alive, and nothing is allocated
on the GPU, so the run takes the same memory to the byte.
"""

import functools
import weakref

from . import importing, keras
from .modules import owns_tensors, path_in
from .notes import ACTIVATION, BUFFER, GRADIENT, INPUT, LOADED, OPTIMIZER_STATE, OUTPUT, PARAMETER, Notes
from .saved import Hooked, SavedTensors


def _harmless(look):
    """A look that fails ends all looking, and says why in the recording: the script must not suffer from it."""

    @functools.wraps(look)
    def looked(self, *args):
        try:
            return look(self, *args)
        except Exception as error:
            self.notes.open = False
            self.failure = self.failure or f"{look.__name__}: {type(error).__name__}: {error}"
            return None

    return looked


class Owners:
    """Looks at the right moments and notes what it sees."""

    def __init__(self, torch, modules, optimizers, event_count):
        """
        Args:
            torch: the framework.
            modules: the `ModuleTracker`.
            optimizers: a weak set of all optimizers.
            event_count: gives the number of allocator events so far.
        """
        self.notes = Notes(torch, event_count)
        self.autocast = []
        self.failure = ""
        self.keras_optimizers = None
        self._torch = torch
        self._modules = modules
        self._optimizers = optimizers
        self._event_count = event_count
        self._hooked = Hooked(torch, self.notes)
        self._saved = SavedTensors(torch, self.notes, self._hooked)
        self._leaves: weakref.WeakValueDictionary = weakref.WeakValueDictionary()
        self._parameters_seen = False
        self._inputs = []
        self._counted: weakref.WeakSet = weakref.WeakSet()

    def install(self):
        """Take the place of a few functions of torch, to see what passes."""
        self._hooked.install()
        self._modules.on_root = self._root_called
        self._modules.on_root_done = self._root_done
        self._watch_autocast()
        self._watch_loading()
        importing.when_imported("torch.utils.checkpoint", self._watch_checkpoints)

    # -------------------------------------------------------------- moments

    @_harmless
    def before_backward(self, tensors):
        """A backward pass is about to begin from some tensors."""
        if self.notes.open:
            self._modules.layers_open = False
            self._note_parameters()
            for tensor in tensors:
                if tensor.is_cuda:
                    self.notes.note(tensor, OUTPUT, "loss")

    @_harmless
    def node(self, node, name):
        """A node of the graph that the backward pass will evaluate."""
        if not self.notes.open:
            return
        if name.endswith("AccumulateGrad"):
            leaf = node.variable
            if leaf.is_cuda:
                self._leaves[id(leaf)] = leaf
        else:
            self._saved.of_node(node, name)

    @_harmless
    def gradients(self):
        """Note the gradients that parameters have now: after a backward pass, and before an optimizer uses them."""
        if not self.notes.open:
            return
        seen = set()
        for parameter, name, owner in self._named_parameters():
            seen.add(id(parameter))
            self._gradient(parameter, name, owner)
        for leaf in list(self._leaves.values()):
            if id(leaf) not in seen:
                self._gradient(leaf, "", "")

    @_harmless
    def optimizer_stepped(self, optimizer):
        """Note the states of an optimizer that has just stepped."""
        if not self.notes.open:
            return
        notes, kind = self.notes, type(optimizer).__name__
        if not hasattr(optimizer, "param_groups"):
            for path, of, tensor in keras.states_of(optimizer):
                notes.note(tensor, OPTIMIZER_STATE, f"{path} of {of}" if of else path, kind)
            return
        names = {id(parameter): name for parameter, name, _ in self._named_parameters()}
        for parameter, state in list(optimizer.state.items()):
            of = names.get(id(parameter), "")
            for path, tensor in notes.tensors_in(state):
                if tensor is not parameter:
                    notes.note(tensor, OPTIMIZER_STATE, f"{path} of {of}" if of else path, kind)

    def step_done(self):
        """A training step is over: what is known of its graph is not asked for again."""
        self._hooked.forget()

    @_harmless
    def finish(self):
        """The last look."""
        if not self.notes.open:
            return
        self._note_parameters()
        self.gradients()
        for optimizer in [*self._optimizers, *(self.keras_optimizers.stepped if self.keras_optimizers else ())]:
            self.optimizer_stepped(optimizer)

    @_harmless
    def model(self):
        """How large the models are, and what their layers gave in the first forward pass, as plain values."""
        sizes = {}
        for parameter, _, _ in self._named_parameters():
            sizes[id(parameter)] = (parameter.numel(), parameter.numel() * parameter.element_size())
        return {
            "parameters": sum(elements for elements, _ in sizes.values()),
            "parameter_bytes": sum(size for _, size in sizes.values()),
            "inputs": self._inputs,
            "layers": self._modules.layers,
        }

    # ---------------------------------------------------------- parameters

    def _note_parameters(self):
        notes, named = self.notes, set()
        for parameter, name, owner in self._named_parameters():
            named.add(id(parameter))
            notes.note(parameter, PARAMETER, name, owner)
        roots = self._outermost_roots()
        for root in roots:
            owner = type(root).__name__
            for path, buffer in [*root.named_buffers(), *keras.state_of(root)]:
                named.add(id(buffer))
                notes.note(buffer, BUFFER, path_in(owner, path, len(roots) > 1), owner)
        for leaf in list(self._leaves.values()):
            if id(leaf) not in named:
                notes.note(leaf, PARAMETER, "")

    def _named_parameters(self):
        """(parameter, name, owner) of all models and optimizers; tied ones once, with all their names."""
        found: dict = {}
        roots = self._outermost_roots()
        for root in roots:
            owner = type(root).__name__
            state = {id(tensor) for _, tensor in keras.state_of(root)}
            for path, parameter in root.named_parameters(remove_duplicate=False):
                if id(parameter) in state:
                    continue
                name = path_in(owner, keras.variable_name(path), len(roots) > 1)
                known = found.get(id(parameter))
                if known is None:
                    found[id(parameter)] = (parameter, name, owner)
                elif known[2] == owner and name not in known[1].split(" = "):
                    found[id(parameter)] = (parameter, f"{known[1]} = {name}", owner)
        for optimizer in list(self._optimizers):
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    if id(parameter) not in found:
                        found[id(parameter)] = (parameter, "", type(optimizer).__name__)
        return found.values()

    def _outermost_roots(self):
        """The modules that were called from outside of all modules and own tensors, less the parts of other ones."""
        roots = [root for root in list(self._modules.roots) if owns_tensors(root)]
        if len(roots) < 2:
            return roots
        inside = {id(child) for root in roots for child in root.modules() if child is not root}
        return [root for root in roots if id(root) not in inside]

    def _gradient(self, parameter, name, owner):
        gradient = parameter.grad
        if gradient is not None:
            self.notes.note(gradient, GRADIENT, name, owner)

    # ------------------------------------------------------ inputs, outputs

    @_harmless
    def _root_called(self, root, args, kwargs):
        notes, owner = self.notes, type(root).__name__
        if root in self._counted:  # layers are counted in one forward pass
            self._modules.layers_open = False
        self._counted.add(root)
        for path, tensor in notes.tensors_in((args, kwargs)):
            # What has a gradient function is the result of something, not an input.
            if tensor.is_cuda and tensor.grad_fn is None:
                name = path.partition(".")[2]
                notes.note(tensor, INPUT, f"argument {name}" if name[:1].isdigit() else name, owner)
                if self._modules.layers_open and not self._modules.layers:
                    self._inputs.append((name, tuple(tensor.shape), tensor.element_size(), tensor.is_floating_point()))

    @_harmless
    def _root_done(self, root, result):
        notes, owner = self.notes, type(root).__name__
        for path, tensor in notes.tensors_in(result):
            if tensor.is_cuda:
                notes.note(tensor, OUTPUT, path, owner)
        if not self._parameters_seen and self._torch.cuda.is_initialized():
            self._parameters_seen = True
            self._note_parameters()

    # ------------------------------------------------------ functions of torch

    def _watch_autocast(self):
        # The copies of weights that autocast keeps go all at once: what is given back meanwhile was one of them.
        original = self._torch.clear_autocast_cache

        @functools.wraps(original)
        def clear_autocast_cache():
            first = self._event_count()
            original()
            end = self._event_count()
            if end > first:
                self.autocast.append((first, end))

        self._torch.clear_autocast_cache = clear_autocast_cache

    def _watch_loading(self):
        module_class = self._torch.nn.Module
        original = module_class.load_state_dict
        notes = self.notes

        @functools.wraps(original)
        def load_state_dict(self, state_dict, *args, **kwargs):
            for path, tensor in notes.tensors_in(state_dict, depth=1):
                if tensor.is_cuda:
                    notes.note(tensor, LOADED, path, type(self).__name__)
            return original(self, state_dict, *args, **kwargs)

        module_class.load_state_dict = load_state_dict

    def _watch_checkpoints(self, module):
        original = getattr(module, "_checkpoint_without_reentrant_generator", None)
        if original is None:
            return
        notes, torch = self.notes, self._torch

        @functools.wraps(original)
        def checkpoint(function, *args, **kwargs):
            if torch.is_grad_enabled():
                for _, tensor in notes.tensors_in((args, kwargs)):
                    if tensor.is_cuda:
                        notes.note(tensor, ACTIVATION, "input of a checkpointed segment")
            return original(function, *args, **kwargs)

        module._checkpoint_without_reentrant_generator = checkpoint
