"""Which operator took each block, by the intervals in which operators ran."""

from __future__ import annotations

from dataclasses import dataclass

from peakmem.trace.recording_log import Log

# Operators that make a block on behalf of the one around them.
_MAKERS = (
    "aten::empty",
    "aten::new_",
    "aten::resize",
    "aten::zeros",
    "aten::full",
    "aten::ones",
    "aten::scalar_tensor",
)
_MODE = "PythonDispatchMode"  # an operator goes through a mode written in Python
_ENGINE = "autograd::engine::evaluate_function: "


@dataclass(frozen=True, kw_only=True, slots=True)
class Operation:
    """What ran when an event happened.

    Attributes:
        outer: the operator that the program called, empty if none.
        inner: the innermost one that computes (not one that only makes a tensor for it), empty if none.
        inner_end: the event before which `inner` ended, 0 if there is none.
        node: the node of the autograd graph, empty if none.
    """

    outer: str = ""
    inner: str = ""
    inner_end: int = 0
    node: str = ""


NOTHING = Operation()


def operations(log: Log) -> list[Operation]:
    """For each event of the log what ran when it happened."""
    result = [NOTHING] * len(log.events)
    if not len(log.operators):
        return result
    names = log.operator_names
    by_thread: dict[int, list[tuple[int, int, int, int]]] = {}
    for first, end, name, thread, depth in log.operators.tolist():
        by_thread.setdefault(thread, []).append((first, depth, end, name))
    threads = log.events["thread"].tolist()
    waiting = {thread: iter(sorted(rows)) for thread, rows in by_thread.items()}
    following = {thread: next(rows, None) for thread, rows in waiting.items()}
    running: dict[int, list[tuple[int, int]]] = {thread: [] for thread in by_thread}
    for event, thread in enumerate(threads):
        stack = running.get(thread)
        if stack is None:
            continue
        while stack and stack[-1][0] <= event:
            stack.pop()
        row = following[thread]
        while row is not None and row[0] <= event:
            first, _, end, name = row
            if end > event:
                stack.append((end, name))
            row = following[thread] = next(waiting[thread], None)
        if stack:
            result[event] = _describe([(end, names[name]) for end, name in stack])
    return result


def running(names: list[str]) -> str:
    """The name of what runs, from the names of all that do, outermost first; empty if nothing does."""
    operation = _describe([(0, name) for name in names])
    return operation.node or operation.outer


def _describe(stack: list[tuple[int, str]]) -> Operation:
    outer = node = inner = ""
    inner_end = 0
    for end, name in stack:
        if name.startswith(_ENGINE):
            node = name[len(_ENGINE) :]
        elif name != node and name != _MODE:
            outer = outer or name
            if not name.startswith(_MAKERS):
                inner, inner_end = name, end
    return Operation(outer=outer, inner=inner, inner_end=inner_end, node=node.rpartition("::")[2])
