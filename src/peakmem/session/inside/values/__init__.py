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

__all__ = ["VARIABLE", "Assume", "Values", "install"]

_length = torch._C._len_torch_dispatch_stack
_pop = torch._C._pop_torch_dispatch_stack
_push = torch._C._push_on_torch_dispatch_stack


class _Thread(threading.local):
    on = False
    pauses: int = 0


class Values:
    """Following of values, on or off in each thread; on in the thread that installed it."""

    def __init__(self, assume: Assume) -> None:
        self._mode = ValueMode(assume)
        self._thread = _Thread()
        self._off = assume.off
        self._pid = os.getpid()

    def assumptions(self) -> list[dict[str, Any]]:
        """What was assumed: `what`, `count`, `assumed` and `where` (source line of the first), most frequent first."""
        return self._mode.ledger.rows()

    def pause(self) -> None:
        """Stop following in this thread, until `resume` was called as often."""
        self._thread.pauses += 1
        if self._thread.on:
            self._switch(on=False)
            self._mode.known.forget_unwatched()

    def resume(self) -> None:
        """Undo one `pause`."""
        self._thread.pauses = max(0, self._thread.pauses - 1)
        if not self._thread.pauses:
            self._switch(on=True)

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
        pauses, self._thread.pauses = self._thread.pauses, 0
        was_on = self._thread.on
        self._switch(on=True)
        try:
            yield
        finally:
            self._thread.pauses = pauses
            if not was_on:
                self._switch(on=False)
                self._mode.known.forget_unwatched()

    def forget(self, tensors: Iterable[torch.Tensor]) -> None:
        """Never believe anything of these tensors (parameters that an optimizer is about to write)."""
        known = self._mode.known
        if known.entries:
            for tensor in tensors:
                if type(tensor) in (torch.Tensor, torch.nn.Parameter):
                    known.forget(tensor)

    def _aside(self) -> None:
        """Take the mode off for a moment in which nothing known is written."""
        self._thread.on = False
        _remove(self._mode)

    def _back(self) -> None:
        if not self._thread.on:
            _insert_below(self._mode)
            self._thread.on = True

    def _switch(self, *, on: bool) -> None:
        if self._off or on == self._thread.on or os.getpid() != self._pid:
            return
        if on:
            _insert_below(self._mode)
        else:
            _remove(self._mode)
        self._thread.on = on


def _insert_below(mode: ValueMode) -> None:
    """Put `mode` below the modes of the script."""
    above = [_pop(None) for _ in range(_length())]
    _push(mode)
    for other in reversed(above):
        _push(other)


def _remove(mode: ValueMode) -> None:
    above = []
    while _length():
        top = _pop(None)
        if top is mode:
            break
        above.append(top)
    for other in reversed(above):
        _push(other)


def install(assume: Assume | None = None, *, guard: bool = True) -> Values:
    """Follow values in this thread from now on; `assume` is read from PEAKMEM_ASSUME by default.

    `guard`: pause in the backward pass and in optimizer steps by itself; otherwise the caller has to.
    """
    if assume is None:
        assume = Assume.parse(os.environ.get(VARIABLE, ""))
    values = Values(assume)
    if assume.off:
        return values
    if guard:
        from . import guards

        guards.install(values)
    from . import aside

    aside.install(values)
    # `torch.tensor(data, device="cuda")` then builds its tensor on the host and moves it in an operator that can be seen.
    torch._C._set_only_lift_cpu_tensors(True)
    values._switch(on=True)
    os.register_at_fork(after_in_child=lambda: _in_child(values))
    return values


def _in_child(values: Values) -> None:
    if values._thread.on:
        _remove(values._mode)
        values._thread.on = False
