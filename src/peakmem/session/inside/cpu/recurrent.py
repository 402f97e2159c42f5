"""oneDNN's recurrent layers, whose workspace is written in part only.

The workspace (the fourth result of `mkldnn_rnn_layer`) has room for what none of PyTorch's calls writes: of 128 MB for
an LSTM of 64 steps, 32 sequences and 1,024 units 46 MB are ever resident (PyTorch 2.13.0). How much is written grows by
the same amount with each step of the sequence, so the layer is computed for two short sequences, whose pages are looked
at.
"""

import functools

from torch.utils._python_dispatch import TorchDispatchMode

_SHORT, _LONGER = 2, 6
_seen: dict = {}
_counts = {"layers": 0}


class _LayerMode(TorchDispatchMode):
    """Says of each layer's workspace how much of it is written."""

    def __init__(self, native):
        super().__init__()
        self._native = native

    @classmethod
    def _should_skip_dynamo(cls):
        """Without this PyTorch wraps `__torch_dispatch__`, and imports its compiler for it."""
        return False

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func._opname != "mkldnn_rnn_layer":
            return func(*args, **kwargs)
        written = _written(self._native, func, args, kwargs)
        _counts["layers"] += 1
        if written is not None:
            self._native.partly(*written, 1)
        try:
            return func(*args, **kwargs)
        finally:
            self._native.partly(0, 0, 0)


def install(torch, native):
    """Take the place of what `nn.LSTM` calls; oneDNN has no layers of other kinds in PyTorch (2.14.1, RNN.cpp)."""
    lstm = torch._VF.lstm

    @functools.wraps(lstm)
    def watched(*args, **kwargs):
        with _LayerMode(native):
            return lstm(*args, **kwargs)

    torch._VF.lstm = watched


def rows():
    """What was taken for granted."""
    if not _counts["layers"] or not _seen:
        return []
    return [
        {
            "what": "workspace of oneDNN's recurrent layers",
            "count": _counts["layers"],
            "assumed": "what is written of it grows evenly with the length of the sequence",
            "where": None,
        }
    ]


def _written(native, func, args, kwargs):
    """(bytes of the workspace, bytes of it that are written) for a call, or None if that can't be found out."""
    x = args[0]
    steps = x.shape[0]
    key = (tuple(x.shape), x.dtype, tuple(a.shape if hasattr(a, "shape") else str(a) for a in args[1:]))
    if key in _seen:
        return _seen[key]
    result = None
    if steps > 2 * _LONGER:
        try:
            sizes = [_computed(native, func, (x[:n].contiguous(), *args[1:]), kwargs) for n in (_SHORT, _LONGER)]
            (size_a, written_a), (size_b, written_b) = sizes
            grown = (steps - _SHORT) / (_LONGER - _SHORT)
            size = round(size_a + (size_b - size_a) * grown)
            result = _Sizes(size, round(written_a + (written_b - written_a) * grown))
        except Exception:
            result = None
    _seen[key] = result
    return result


class _Sizes(tuple):
    def __new__(cls, size, written):
        return super().__new__(cls, (size, written))


def _computed(native, func, args, kwargs):
    with native.computing():
        out = func(*args, **kwargs)
    workspace = out[3]
    storage = workspace.untyped_storage()
    return storage.nbytes(), native.resident_of(storage.data_ptr(), storage.nbytes())
