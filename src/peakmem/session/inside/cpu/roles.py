"""What the blocks that were live at the peak are: by their addresses, which parameters and others are known to have."""

import itertools


class Roles:
    """Joins the addresses of parameters, gradients and optimizer states to the blocks that were live at the peak."""

    def __init__(self, torch):
        self._torch = torch
        self._known = {}  # address of a storage -> (role, bytes)
        self._blocks = None
        self.found: dict = {}  # role -> [bytes, blocks]

    def gradients(self, optimizer):
        """Right before an optimizer steps: parameters and gradients are where they are."""
        for address in [a for a, (role, _) in self._known.items() if role == "gradient"]:
            del self._known[address]  # of the step before: others may lie there now
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

    def _note(self, tensor, role):
        try:
            storage = tensor.untyped_storage()
            self._known[storage.data_ptr()] = (role, storage.nbytes())
        except Exception:  # layouts without a storage
            return
