"""What the blocks that were live at the peak are: by their addresses, which parameters and others are known to have."""

import itertools

from ..keras import states_of


class Roles:
    """Joins the addresses of parameters, gradients and optimizer states to the blocks that were live at the peak."""

    def __init__(self, torch):
        self._torch = torch
        self._known = {}  # address of a storage -> (role, bytes)
        self._blocks = None
        self.found: dict = {}  # role -> [bytes, blocks]
        self.by_hand = 0  # bytes of parameters, gradients and states of the step that has most of them

    def gradients(self, optimizer):
        """Right before an optimizer steps: parameters and gradients are where they are."""
        self._forget_gradients()
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                self._note(parameter, "parameter")
                if parameter.grad is not None:
                    self._note(parameter.grad, "gradient")

    def states(self, optimizer):
        """After it: so are its states."""
        for value in itertools.chain.from_iterable(state.values() for state in optimizer.state.values()):
            if isinstance(value, self._torch.Tensor):
                self._note(value, "optimizer state")
        self._count()

    def keras(self, optimizer):
        """After an optimizer of Keras has stepped: its variables, with the gradients that are still there."""
        self._forget_gradients()
        inner = getattr(optimizer, "inner_optimizer", None) or optimizer
        for variable in getattr(inner, "_trainable_variables", ()):
            self._note(variable.value, "parameter")
            if getattr(variable.value, "grad", None) is not None:
                self._note(variable.value.grad, "gradient")
        for _, _, tensor in states_of(optimizer):
            self._note(tensor, "optimizer state")
        self._count()

    def at_peak(self, native):
        """The highest peak so far may lie in the step that has just ended: say what was live then."""
        blocks = native.peak_blocks()
        if blocks == self._blocks:
            return
        self._blocks = blocks
        found: dict = {}
        for address, size in blocks:
            role = self._known.get(address, ("", 0))[0]
            row = found.setdefault(role or "activation or temporary", [0, 0])
            row[0] += size
            row[1] += 1
        self.found = found

    def _count(self):
        self.by_hand = max(self.by_hand, sum(size for _, size in self._known.values()))

    def _forget_gradients(self):
        for address in [a for a, (role, _) in self._known.items() if role == "gradient"]:
            del self._known[address]  # of the step before: others may lie there now

    def _note(self, tensor, role):
        try:
            storage = tensor.untyped_storage()
            self._known[storage.data_ptr()] = (role, storage.nbytes())
        except Exception:  # layouts without a storage
            return
