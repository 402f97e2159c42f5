"""Numbered contexts: what the program was doing when a block was handed out.

A context is (parent, kind, name); kind is "phase" (name: forward, backward, optimizer) or "module" (name: the path
below the outermost module that was called, such as `encoder.layers.5.linear1`). Number 0 is "nothing in particular".
"""

import threading
from array import array


class Contexts:
    """The table of contexts, the current one of each thread, and which forward context made which autograd node."""

    def __init__(self, native, sequence_number):
        """
        Args:
            native: the control interface, told of each change.
            sequence_number: function giving the number that the thread's next autograd node will get.
        """
        self.table = [(0, "", "")]
        self.node_starts = array("Q")
        self.node_contexts = array("I")
        self.open = True
        self._numbers = {}
        self._set = native.set_context
        self._sequence_number = sequence_number
        self._threads = threading.local()
        self._main = threading.get_ident()

    def current(self):
        """The number of this thread's context."""
        return getattr(self._threads, "current", 0)

    def number(self, parent, kind, name):
        """The number of a context, made if it is new."""
        key = (parent, kind, name)
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self.table)
            self.table.append(key)
        return number

    def enter(self, kind, name):
        """Go into a context below the current one; returns what `leave` needs."""
        before = getattr(self._threads, "current", 0)
        self._go(self.number(before, kind, name))
        return before

    def leave(self, before):
        """Go back to the context that `enter` left."""
        self._go(before)

    def _go(self, number):
        self._threads.current = number
        self._set(number)
        if self.open and threading.get_ident() == self._main:
            self.node_starts.append(self._sequence_number())
            self.node_contexts.append(number)
