"""What autograd keeps for the backward pass, read off the nodes of its graph."""

import functools
import threading
from array import array

from .notes import ACTIVATION, AUTOCAST_COPY

_VIEWS = ("TBackward", "ViewBackward", "TransposeBackward", "PermuteBackward", "UnsafeViewBackward", "AliasBackward",
          "ReshapeAliasBackward", "ExpandBackward", "SliceBackward", "SelectBackward", "UnsqueezeBackward",
          "SqueezeBackward")  # fmt: skip
_CAST = "ToCopyBackward"


class Hooked:
    """Which nodes were made while hooks for saved tensors (checkpointing, offloading) were set.

    To unpack what such a node saved would run the hook, that is, a whole recomputation: these nodes are not asked. What
    the hooks keep on the GPU is seen as they return it instead.
    """

    def __init__(self, torch, notes):
        self._torch = torch
        self._notes = notes
        self._threads = threading.local()  # each thread numbers its own nodes

    def install(self):
        """Take the place of the two functions that set hooks and take them away."""
        autograd = self._torch._C._autograd
        push, pop = autograd._push_saved_tensors_default_hooks, autograd._pop_saved_tensors_default_hooks
        now = autograd._get_sequence_nr

        def push_noted(pack, unpack):
            push(self._packing(pack), unpack)
            self._stretches().open.append(now())

        def pop_noted():
            pop()
            stretches = self._stretches()
            if stretches.open:
                first, end = stretches.open.pop(), now()
                if end > first:
                    stretches.first.append(first)
                    stretches.end.append(end)

        autograd._push_saved_tensors_default_hooks = push_noted
        autograd._pop_saved_tensors_default_hooks = pop_noted

    def made(self, sequence_number):
        """Whether a node that this thread made was made under hooks."""
        stretches = self._stretches()
        if stretches.open and sequence_number >= stretches.open[0]:
            return True
        # The latest stretches are the likely ones.
        for index in range(len(stretches.first) - 1, -1, -1):
            if stretches.first[index] <= sequence_number < stretches.end[index]:
                return True
        return False

    def forget(self):
        """Called between steps: nothing of the stretches so far is asked for again."""
        stretches = self._stretches()
        del stretches.first[:], stretches.end[:]

    def _stretches(self):
        found = getattr(self._threads, "stretches", None)
        if found is None:
            found = self._threads.stretches = _Stretches()
        return found

    def _packing(self, pack):
        if not hasattr(pack, "__code__"):
            return pack
        notes = self._notes

        @functools.wraps(pack)
        def packed(tensor):
            kept = pack(tensor)
            for _, part in notes.tensors_in(kept, depth=2):
                notes.note(part, ACTIVATION, "recomputed or kept by a hook")
            return kept

        return packed


class _Stretches:
    """Numbers of the nodes that one thread made under hooks."""

    def __init__(self):
        self.first = array("Q")
        self.end = array("Q")
        self.open = []


class SavedTensors:
    """Notes what nodes keep. Unpacking gives a tensor on the same memory, which is let go at once."""

    def __init__(self, torch, notes, hooked):
        self._tensor = torch.Tensor
        self._notes = notes
        self._hooked = hooked
        self._fields = {}

    def of_node(self, node, name):
        """Note what one node keeps."""
        if self._hooked.made(node._sequence_nr()):
            return
        for field in self._fields_of(node):
            try:
                value = getattr(node, field)
            except Exception:  # let go already, or changed in place since: backward will say so itself
                continue
            short = field[len("_saved_") :] if field.startswith("_saved_") else field
            if isinstance(value, self._tensor):
                self._note(value, f"{name}.{short}")
            elif isinstance(value, (list, tuple)):
                for number, item in enumerate(value):
                    if isinstance(item, self._tensor):
                        self._note(item, f"{name}.{short}[{number}]")
        kept = getattr(node, "__dict__", None)
        if kept:
            for field, value in list(kept.items()):
                for path, tensor in self._notes.tensors_in(value, depth=2):
                    self._note(tensor, ".".join(filter(None, (name, field, path))))

    def _fields_of(self, node):
        kind = type(node)
        fields = self._fields.get(kind)
        if fields is None:
            names = dir(kind)
            fields = [field[4:] for field in names if field.startswith("_raw_saved_")]
            if "_raw_saved_tensors" in names and "saved_tensors" in names:  # a torch.autograd.Function
                fields = [*(field for field in fields if field != "_saved_tensors"), "saved_tensors"]
            self._fields[kind] = fields
        return fields

    def _note(self, tensor, name):
        if tensor.is_cuda:
            role = AUTOCAST_COPY if _is_cast_parameter(tensor) else ACTIVATION
            self._notes.note(tensor, role, name)


def _is_cast_parameter(tensor):
    """Whether a tensor is a parameter in another type, or a view of one."""
    node = tensor.grad_fn
    for _ in range(8):
        if node is None:
            return False
        name = node.name()
        if name.startswith(_CAST):
            below = node.next_functions[0][0]
            return below is not None and below.name().endswith("AccumulateGrad")
        if not name.startswith(_VIEWS):
            return False
        node = node.next_functions[0][0]
    return False
