"""The host's side of a process that trains with TensorFlow: resident memory, what it pins, what is peakmem's own."""

from .host_memory import HostMemory


class TensorflowHost(HostMemory):
    """Notes what the other side can't see from outside; written with the recording."""

    def __init__(self, native, settings):
        super().__init__(None, native, settings)
        self._logs = 0

    def close(self):
        """The script has ended, and what comes is ours."""
        if self._closed is None:
            self._logs = self._native.own_bytes()
        super().close()

    def describe(self):
        """All that is known, as plain values; sizes in bytes."""
        return {**super().describe(), "own_highest": self._logs}

    def _spared(self):
        return {}

    def _look_at_tensors(self, *, graphs):
        """Autograd graphs and tensors of PyTorch: there are none."""
