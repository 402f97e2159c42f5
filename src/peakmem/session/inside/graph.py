"""The autograd graph: before a backward pass, each node is given the context under which its blocks are counted."""

_MARK = "peakmem"


def mark_nodes(tensors, contexts, native, see=None):
    """Have each node below some tensors say, right before it is evaluated, which forward context made it.

    Args:
        tensors: what the backward pass starts from.
        contexts: the table of contexts.
        native: the control interface.
        see: called with each node and its name.
    """
    if not contexts.open:
        return
    set_context = native.set_context
    for node in _nodes(tensors):
        name = node.name()
        if see is not None:
            see(node, name)
        # A node that adds up gradients does not allocate on behalf of a module of its own: it goes on in the context of
        # the node before it.
        if name.endswith("AccumulateGrad"):
            continue
        number = contexts.number(contexts.of_node(node._sequence_nr()), "node", name)
        node.register_prehook(_announce(set_context, number))


def look_at_nodes(tensors, see):
    """Call `see` with each node below some tensors and its name, once for each node."""
    for node in _nodes(tensors):
        see(node, node.name())


def _announce(set_context, number):
    def hook(gradients):
        set_context(number)

    return hook


def _nodes(tensors):
    """The nodes that no earlier call has seen."""
    waiting = [tensor.grad_fn for tensor in tensors if getattr(tensor, "grad_fn", None) is not None]
    while waiting:
        node = waiting.pop()
        if node is None or _MARK in node.metadata:
            continue
        node.metadata[_MARK] = True
        yield node
        waiting.extend(below for below, _ in node.next_functions)
