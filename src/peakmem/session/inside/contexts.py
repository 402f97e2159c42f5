"""Numbered contexts: what the program was doing when a block was handed out.

A context is (parent, kind, name); kind is "phase" (name: backward, optimizer), "module" (name: the path below the
outermost module that was called, such as `encoder.layers.5.linear1`), "op" (an operator) or "node" (a node of the
autograd graph being evaluated; its parent is the context of the forward pass in which it was made). Number 0 is
"nothing in particular".
"""

import bisect
import threading
from array import array

MOST_NODE_STARTS = 500_000


class Contexts:
    """The table of contexts, the current one of each thread, and which context made which autograd node."""

    def __init__(self, native, sequence_number):
        """
        Args:
            native: the control interface, told of each change.
            sequence_number: function giving the number that the thread's next autograd node will get.
        """
        self.table = [(0, "", "")]
        self.open = True
        self._node_starts = array("Q")
        self._node_contexts = array("I")
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
            self._node_starts.append(self._sequence_number())
            self._node_contexts.append(number)

    def of_node(self, sequence_number):
        """The context in which the main thread made an autograd node; 0 where that is not known any more."""
        index = bisect.bisect_right(self._node_starts, sequence_number) - 1
        return self._node_contexts[index] if index >= 0 else 0

    def forget_old_nodes(self):
        """Called between steps: drop the older half of what is known of nodes once it has grown large."""
        if len(self._node_starts) > MOST_NODE_STARTS:
            half = len(self._node_starts) // 2
            del self._node_starts[:half], self._node_contexts[:half]
