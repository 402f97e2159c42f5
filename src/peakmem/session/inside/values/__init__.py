"""True values for what a script computes from its own data, on a device that computes nothing.

On the virtual GPU kernels do nothing and copies to the host give zeros.  `install()` follows tensors that derive from
host data alone (masks, lengths, labels, boxes) on the host, beside the virtual operation, so that what a script reads,
branches on or sizes by is true; what derives from weights is unknown and meets stated, counted assumptions.
Nothing here changes what the device allocates.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from .config import VARIABLE, Assume
from .mode import ValueMode
from .own import OwnMemory
from .stack import insert_below, present, remove

__all__ = ["VARIABLE", "Assume", "Values", "install"]


class _Thread(threading.local):
    pauses = 0
    was_on = False  # before the outermost pause


class Values:
    """Following of values: on in the thread that first uses CUDA, and elsewhere in `active`."""

    def __init__(self, assume: Assume) -> None:
        self._mode = ValueMode(assume)
        self._thread = _Thread()
        self._started = False
        self._pid = os.getpid()

    @property
    def memory(self) -> OwnMemory:
        """The memory that following takes."""
        return self._mode.known.memory

    def assumptions(self) -> list[dict[str, Any]]:
        """What was assumed: `what`, `count`, `assumed` and `where` (source line of the first), most frequent first."""
        return self._mode.ledger.rows()

    def reads_told(self) -> int:
        """How many copies that the library counts as unknown were answered here, or are among the assumptions."""
        return self._mode.told

    def pause(self) -> None:
        """Stop following in this thread, until `resume` was called as often."""
        thread = self._thread
        if not thread.pauses:
            thread.was_on = self._take_off()
        thread.pauses += 1

    def resume(self) -> None:
        """Undo one `pause`."""
        thread = self._thread
        thread.pauses = max(0, thread.pauses - 1)
        if not thread.pauses and thread.was_on:
            thread.was_on = False
            self._put_on()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Don't follow in this context."""
        self.pause()
        try:
            yield
        finally:
            self.resume()

    @contextmanager
    def active(self) -> Iterator[None]:
        """Follow in this context, also in a pause and in other threads."""
        if not self._started or present(self._mode):
            yield
            return
        thread = self._thread
        before, thread.pauses, thread.was_on = (thread.pauses, thread.was_on), 0, False
        self._put_on()
        try:
            yield
        finally:
            self._take_off()
            thread.pauses, thread.was_on = before

    def forget(self, tensors: Iterable[torch.Tensor]) -> None:
        """Never believe anything of these tensors (parameters that an optimizer is about to write)."""
        known = self._mode.known
        if known.entries:
            for tensor in tensors:
                if type(tensor) in (torch.Tensor, torch.nn.Parameter):
                    known.forget(tensor)

    def _start(self) -> None:
        if os.getpid() != self._pid:
            return
        # `torch.tensor(data, device="cuda")` then builds its tensor on the host and moves it by a visible operator.
        torch._C._set_only_lift_cpu_tensors(True)
        self._started = True
        if self._thread.pauses:
            self._thread.was_on = True
        else:
            self._put_on()

    def _in_child(self) -> None:
        if not self._started:  # the child may be the one that uses CUDA
            self._pid = os.getpid()
        self._started = False
        self.memory.forked()
        remove(self._mode)

    def _put_on(self) -> None:
        if self._started and not present(self._mode):
            insert_below(self._mode)

    def _take_off(self) -> bool:
        found = remove(self._mode)
        if found:
            self._mode.known.watch_all()
        return found


def install(assume: Assume | str | None = None) -> Values:
    """Get ready to follow values; it begins in this thread as soon as CUDA is used.

    Call it right after torch was imported, before other packages take functions out of it. The backward pass, optimizer
    steps and recomputed forward passes are looked after; `pause` and `resume` are for everything else.

    Args:
        assume: the assumptions, or their text; PEAKMEM_ASSUME by default.
    """
    if not isinstance(assume, Assume):
        assume = Assume.parse(assume or os.environ.get(VARIABLE, ""))
    values = Values(assume)
    if assume.off:
        return values
    from . import aside, guards

    guards.install(values)
    aside.install(values)
    os.register_at_fork(after_in_child=values._in_child)
    torch.cuda._lazy_call(values._start)
    return values
