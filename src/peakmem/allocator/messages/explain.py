"""Find every out-of-memory message in a log and explain it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from peakmem.allocator.messages import arithmetic, below, host, pytorch, settings_errors, summary, tensorflow, xla
from peakmem.allocator.messages.log import Log, clean
from peakmem.allocator.messages.model import Explanation, Verdict

_SAME_PLACE = 40
"""Two messages that begin so near to each other (characters without white space) are one, worded twice."""


def explain(text: str, *, alloc_conf: str = "") -> tuple[Explanation, ...]:
    """Explain the out-of-memory messages of a log, those that matter first; empty if there is none.

    Args:
        text: a message, with any log around it.
        alloc_conf: the allocator settings that were in force, where known; else taken from the log if it names them.
    """
    log = clean(text)
    if alloc_conf:
        log = replace(log, alloc_conf=alloc_conf)
    found = sorted(_all(log), key=lambda explanation: (explanation.position, _importance(explanation)))
    kept: list[Explanation] = []
    for explanation in found:
        near = kept and explanation.position - kept[-1].position < _SAME_PLACE
        if near and _importance(kept[-1]) <= _importance(explanation):
            continue
        if any(_same(explanation, other) for other in kept):
            continue
        kept.append(explanation)
    return tuple(sorted(kept, key=lambda explanation: (_importance(explanation), explanation.position)))


def _all(log: Log) -> Iterator[Explanation]:
    for message in pytorch.find(log):
        yield arithmetic.explain(message, log)
    for module in (below, host, tensorflow, xla, settings_errors, summary):
        yield from module.find(log)


def _importance(explanation: Explanation) -> int:
    """0 for a message with figures, 1 for one without, 2 for what may only follow from another, 3 for the harmless."""
    if explanation.verdict is Verdict.HARMLESS:
        return 3
    if explanation.wording == "a launcher or the system":
        return 2
    return 0 if explanation.figures.requested is not None or explanation.verdict is Verdict.SETTINGS else 1


def _same(one: Explanation, other: Explanation) -> bool:
    """Whether two are one message printed again (a traceback, then a log line, then the launcher's summary)."""
    return (one.verdict, one.happened, one.figures) == (other.verdict, other.happened, other.figures)
