"""oneDNN's recurrent layers, whose workspace is written in part only.

The workspace (the fourth result of `mkldnn_rnn_layer`) has room for what none of PyTorch's calls writes: of 128 MB for
an LSTM of 64 steps, 32 sequences and 1,024 units 46 MB are ever resident (PyTorch 2.13.0). How much is written grows by
the same amount with each step of the sequence, so the layer is computed for two short sequences, whose pages are looked
at.
"""

import threading

_SHORT, _LONGER = 2, 6
_seen: dict = {}
_counts = {"layers": 0}
_local = threading.local()


def special(torch, native):
    """The handler for `SkipMode`."""

    def layer(skip, func, args, kwargs):
        written = _written(torch, native, func, args, kwargs)
        _counts["layers"] += 1
        if written is not None:
            native.partly(*written, 1)
        try:
            return skip(func, args, kwargs, settle=False)  # the workspace is no result
        finally:
            native.partly(0, 0, 0)

    return {"mkldnn_rnn_layer": layer}


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


def _written(torch, native, func, args, kwargs):
    """(bytes of the workspace, bytes of it that are written) for a call, or None if that can't be found out."""
    x = args[0]
    steps = x.shape[0]
    key = (tuple(x.shape), x.dtype, tuple(a.shape if hasattr(a, "shape") else str(a) for a in args[1:]))
    if key in _seen:
        return _seen[key]
    result = None
    if steps > 2 * _LONGER:
        try:
            sizes = [_computed(torch, native, func, (x[:n].contiguous(), *args[1:]), kwargs) for n in (_SHORT, _LONGER)]
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


def _computed(torch, native, func, args, kwargs):
    out = func(*args, **kwargs)
    workspace = out[3]
    storage = workspace.untyped_storage()
    return storage.nbytes(), native.resident_of(storage.data_ptr(), storage.nbytes())
