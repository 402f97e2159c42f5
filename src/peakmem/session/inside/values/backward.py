"""Sizes that the backward pass asks the device for.

The gradient of `x[mask]` counts the mask once more. The mode is off then, so the counts of the forward pass are kept,
by the number that autograd gives the node, and told to the device right before the node runs, in the thread that
runs it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from .reads import Reads

_MOST = 20_000


class BackwardReads(threading.local):
    """What nodes of the autograd graph will read from the device; nodes are numbered in each thread of their own."""

    def __init__(self, reads: Reads) -> None:
        self._reads = reads
        self._waiting: dict[int, list[int]] = {}

    def expect(self, tensors: Iterable[Any], values: Sequence[int]) -> None:
        """The node that was just made for an operator on `tensors`, if one was, will read `values`."""
        if not torch.is_grad_enabled() or not any(isinstance(t, Tensor) and t.requires_grad for t in tensors):
            return
        # Autograd makes the node before it calls the operator (PyTorch 2.14.1, torch/csrc/autograd/VariableType).
        self._waiting[torch._C._autograd._get_sequence_nr() - 1] = list(values)
        if len(self._waiting) > _MOST:
            for old in list(self._waiting)[: _MOST // 2]:
                del self._waiting[old]

    def attach(self, roots: Iterable[Any]) -> None:
        """Called before a backward pass from `roots`."""
        if not self._waiting:
            return
        for node in _nodes(roots):
            values = self._waiting.pop(node._sequence_nr(), None)
            if values is not None:
                node.register_prehook(_telling(self._reads, values))
                node.register_hook(_ending(self._reads))
                if not self._waiting:
                    return


def _telling(reads: Reads, values: list[int]) -> Callable[[Any], None]:
    def before(gradients: Any) -> None:
        reads.stand(values)

    return before


def _ending(reads: Reads) -> Callable[[Any, Any], None]:
    def after(inputs: Any, outputs: Any) -> None:
        reads.stand(())

    return after


def _nodes(roots: Iterable[Any]) -> Iterator[Any]:
    waiting = [getattr(root, "grad_fn", None) or getattr(root, "node", None) for root in roots]
    seen = set(waiting)
    while waiting:
        node = waiting.pop()
        if node is None:
            continue
        yield node
        for below, _ in node.next_functions:
            if below is not None and below not in seen:
                seen.add(below)
                waiting.append(below)
