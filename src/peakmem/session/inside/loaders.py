"""Watches the DataLoaders of the script: their workers, what those get with a fork, how large a batch is."""

import functools
import multiprocessing
import sys
import weakref

from . import importing
from .objects import weigh

BATCHES_LOOKED_AT = 8
_DEPTH = 6


class Loaders:
    """A row for each DataLoader that was iterated over."""

    def __init__(self):
        self._rows = {}  # by the loader's number
        self._loaders = {}  # weak references: nothing lives longer than it would
        self._gone = []

    def install(self):
        """Begin as soon as the module of DataLoader is there."""
        importing.when_imported("torch.utils.data.dataloader", self._watch)

    def rows(self):
        """What is known of each, in the order of first use."""
        return [*self._gone, *self._rows.values()]

    def _watch(self, module):
        base = module._BaseDataLoaderIter
        several = module._MultiProcessingDataLoaderIter
        started, advance = several.__init__, base.__next__
        loaders = self

        @functools.wraps(started)
        def __init__(self, loader):
            row = loaders._row(loader)
            started(self, loader)
            self._peakmem_row = row  # the loader may be gone by the first batch
            loaders._started(self, row)

        @functools.wraps(advance)
        def __next__(self):
            batch = advance(self)
            loaders._batch(self, batch)
            return batch

        several.__init__ = __init__
        base.__next__ = __next__

    def _row(self, loader):
        number = id(loader)
        row = self._rows.get(number)
        if row is not None and self._loaders[number]() is not loader:  # the number was given to a new one
            self._gone.append(row)
            row = None
        if row is None:
            self._loaders[number] = weakref.ref(loader)
            row = self._rows[number] = {
                "dataset": type(loader.dataset).__name__,
                "workers": loader.num_workers,
                "prefetch": loader.prefetch_factor or 0,
                "pin_memory": bool(loader.pin_memory),
                "persistent": bool(loader.persistent_workers),
                "batch_size": loader.batch_size if isinstance(loader.batch_size, int) else None,
                "start": _start_method(loader),
                "batch": 0,
                "batches": 0,
                "pids": [],
                "weight": None,
            }
            try:
                row["weight"] = weigh(loader.dataset, loader.collate_fn).row()
            except Exception:  # a class of the script's may do anything when it is looked at
                row["weight"] = None
        return row

    def _started(self, iterator, row):
        pids = [worker.pid for worker in getattr(iterator, "_workers", ()) if worker.pid]
        row["pids"] = row["pids"] + pids if len(row["pids"]) < 1000 else row["pids"]

    def _batch(self, iterator, batch):
        looked_at = getattr(iterator, "_peakmem_batches", 0)
        if looked_at >= BATCHES_LOOKED_AT:
            return
        try:
            iterator._peakmem_batches = looked_at + 1
            row = getattr(iterator, "_peakmem_row", None)
            if row is not None:
                row["batch"] = max(row["batch"], _bytes(batch))
                row["batches"] += 1
        except Exception:
            return


def _start_method(loader):
    context = loader.multiprocessing_context
    if context is None:
        return multiprocessing.get_start_method()
    return context if isinstance(context, str) else context.get_start_method()


def _bytes(value, depth=0):
    """Bytes of the tensors on the host in a batch."""
    torch = sys.modules["torch"]
    if isinstance(value, torch.Tensor):
        return value.numel() * value.element_size() if value.device.type == "cpu" else 0
    if depth >= _DEPTH:
        return 0
    if isinstance(value, dict) or (hasattr(value, "keys") and hasattr(value, "values")):
        return sum(_bytes(item, depth + 1) for item in value.values())
    if isinstance(value, (list, tuple)):
        return sum(_bytes(item, depth + 1) for item in value)
    if hasattr(value, "__dict__") and not isinstance(value, type):
        return sum(_bytes(item, depth + 1) for item in vars(value).values())
    return 0
