"""Who holds the memory at the peak: bytes by role, the largest holders, and what is alive without need."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from peakmem.forecast.model import Holder, Unneeded
from peakmem.trace.attribution import KEPT, LOADED, OUTPUT
from peakmem.trace.holders import any_layer
from peakmem.trace.replay import Replay
from peakmem.trace.roles import ContextKind, Role
from peakmem.trace.where import Places

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from peakmem.trace.model import Trace

MOST_HOLDERS = 40
MOST_EXAMPLES = 3
WORTH_A_WORD = 0.001
"""What need not be alive is told from this share of the peak on."""
_NUMBER = re.compile(r"(?<![^.\[])\d+(?![^.\]])")


@dataclass(frozen=True, kw_only=True, slots=True)
class AtPeak:
    """What is alive at the moment at which a device had handed out most.

    Attributes:
        step: number of the training step, None before or after all of them.
        phase: "forward", "backward", "optimizer" or "other".
        op, module, line: where the block was taken that made the peak; None if unknown.
        allocated: bytes handed out.
        roles: bytes by role, for every role; the sum is `allocated`.
        holders: the largest ones first.
        unneeded: what need not be alive, largest first.
    """

    step: int | None
    phase: str
    op: str | None
    module: str | None
    line: str | None
    allocated: int
    roles: dict[str, int]
    holders: tuple[Holder, ...]
    unneeded: tuple[Unneeded, ...]


def at_peak(trace: Trace, *, device: int = 0, accumulates: bool = False) -> AtPeak:
    """Look at the peak of a device.

    Args:
        trace: the trace.
        device: which device.
        accumulates: whether gradients are accumulated: they are alive in forward passes by intent.
    """
    return _Look(trace, device).result(accumulates=accumulates)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Block:
    size: int
    role: Role
    name: str
    module: str
    op: str
    line: str
    shape: tuple[int, ...]
    dtype: str
    step: int
    phase: str


class _Look:
    def __init__(self, trace: Trace, device: int) -> None:
        self._trace = trace
        self._replay = Replay(trace, device)
        self._places = Places(trace)
        self._moment = self._replay.peak_moment()
        alive = self._replay.alive(self._moment)
        self._rows = self._replay.owner_rows(self._moment)
        self._forward_lines = self._lines_of_modules()
        self._blocks = [self._block(int(number)) for number in alive]

    def result(self, *, accumulates: bool) -> AtPeak:
        trace, moment = self._trace, self._moment
        context, line = 0, ""
        if moment:
            context = int(trace.events.context[moment - 1])
            line = _line(self._places, int(trace.events.stack[moment - 1]))
        step = trace.context_step(context)
        phase = trace.context_name(context, ContextKind.PHASE) or "other"
        ended = self._last_step() < step
        return AtPeak(
            step=None if step < 0 or ended else step,
            phase=phase,
            op=trace.context_name(context, ContextKind.OP) or None,
            module=trace.context_name(context, ContextKind.MODULE) or None,
            line=line or None,
            allocated=self._replay.at(moment).allocated,
            roles=self._roles(),
            holders=self._holders(),
            unneeded=tuple(self._unneeded(step, accumulates=accumulates)),
        )

    def _last_step(self) -> int:
        spans = self._trace.spans
        numbers = spans.number[spans.kind == ContextKind.STEP]
        return int(numbers.max()) if len(numbers) else -1

    def _block(self, number: int) -> _Block:
        trace, blocks = self._trace, self._replay.allocations
        owners, row, context = trace.owners, int(self._rows[number]), int(blocks.context[number])
        owned = row >= 0
        module = trace.context_name(context, ContextKind.MODULE)
        phase = trace.context_name(context, ContextKind.PHASE)
        line = _line(self._places, int(blocks.stack[number]))
        if not line and phase == "backward":
            line = self._forward_lines.get(module, "")
        return _Block(
            size=int(blocks.size[number]),
            role=Role(int(owners.role[row])) if owned else Role.UNATTRIBUTED,
            name=trace.strings[int(owners.name[row])] if owned else "",
            shape=trace.shapes[int(owners.shape[row])] if owned else (),
            dtype=trace.strings[int(owners.dtype[row])] if owned else "",
            module=module,
            op=trace.context_name(context, ContextKind.OP),
            line=line,
            step=trace.context_step(context),
            phase=phase,
        )

    def _lines_of_modules(self) -> dict[str, str]:
        """The line from which each module was called: autograd evaluates nodes in threads that have no line."""
        trace, blocks = self._trace, self._replay.allocations
        lines: dict[str, str] = {}
        for context, stack in {*zip(blocks.context.tolist(), blocks.stack.tolist(), strict=True)}:
            module = trace.context_name(context, ContextKind.MODULE)
            if module not in lines and trace.context_name(context, ContextKind.PHASE) == "forward":
                line = _line(self._places, stack)
                if line:
                    lines[module] = line
        return lines

    def _roles(self) -> dict[str, int]:
        sums = np.zeros(len(Role), dtype="i8")
        for block in self._blocks:
            sums[block.role] += block.size
        return {role.word: int(sums[role]) for role in (*list(Role)[1:], Role.UNATTRIBUTED)}

    def _holders(self) -> tuple[Holder, ...]:
        """Blocks that differ in the numbers of layers alone count as one holder."""
        groups: dict[tuple[object, ...], list[_Block]] = {}
        for block in self._blocks:
            name = "" if block.role is Role.ACTIVATION else _any_number(block.name)
            key = (block.role, name, _any_number(block.module), block.op, block.line, block.phase)
            groups.setdefault(key, []).append(block)
        return tuple(_holder(blocks) for blocks in _largest(groups.values()))

    def _unneeded(self, step: int, *, accumulates: bool) -> list[Unneeded]:
        found: list[Unneeded] = []

        def look(what: str, remedy: str, chosen: Callable[[_Block], bool]) -> None:
            blocks = [block for block in self._blocks if chosen(block)]
            if sum(block.size for block in blocks) >= WORTH_A_WORD * self._replay.at(self._moment).allocated > 0:
                largest = sorted(blocks, key=lambda block: -block.size)[:MOST_EXAMPLES]
                size = sum(block.size for block in blocks)
                examples = tuple(_holder([block]) for block in largest)
                found.append(Unneeded(what=what, bytes=size, count=len(blocks), examples=examples, remedy=remedy))

        def old(block: _Block) -> bool:
            return 0 <= block.step < step

        renewed = {block.name for block in self._blocks if block.role is Role.INPUT and block.step == step}
        if not accumulates:
            look(
                "gradients of the step before",
                "optimizer.zero_grad(set_to_none=True) right after optimizer.step()",
                lambda block: block.role is Role.GRADIENT and old(block),
            )
        look(
            "graph of an earlier step",
            "keep loss.item() or loss.detach() rather than the loss",
            lambda block: block.role is Role.ACTIVATION and old(block),
        )
        look(
            "outputs of an earlier step or pass that a variable still holds",
            "del the variable (or let a function return) before the next forward pass",
            lambda block: (
                block.role in (Role.TEMPORARY, Role.UNATTRIBUTED)
                and (block.name.startswith((KEPT, OUTPUT)))
                and (old(block) or block.name.startswith(KEPT))
            ),
        )
        look(
            "inputs of an earlier step that a variable still holds",
            "del the batch, or load the next one in a function",
            lambda block: block.role is Role.INPUT and old(block) and block.name in renewed,
        )
        look(
            "tensors of an earlier forward pass that are still held, by a graph or a list",
            "keep numbers with .item(), results with .detach().cpu()",
            lambda block: block.role is Role.UNATTRIBUTED and old(block) and block.phase == "forward",
        )
        look(
            "a second copy of the weights while they are loaded",
            "torch.load(..., map_location='cpu'), or load_state_dict(..., assign=True)",
            lambda block: block.name.startswith(LOADED),
        )
        return sorted(found, key=lambda row: -row.bytes)


def _largest(groups: Iterable[list[_Block]]) -> list[list[_Block]]:
    lists = [sorted(group, key=lambda block: -block.size) for group in groups]
    lists.sort(key=lambda blocks: -sum(block.size for block in blocks))
    return lists[:MOST_HOLDERS]


def _holder(blocks: list[_Block]) -> Holder:
    first = blocks[0]
    names = {block.name for block in blocks}
    stars = {_any_number(name) for name in names}
    modules = {block.module for block in blocks}
    same_shape = all(block.shape == first.shape for block in blocks)
    return Holder(
        role=first.role.word,
        name=first.name if len(names) == 1 else stars.pop() if len(stars) == 1 else "",
        module=(first.module if len(modules) == 1 else _any_number(first.module)) or None,
        op=first.op or None,
        line=first.line or None,
        shape=first.shape if same_shape else (),
        dtype=first.dtype,
        step=first.step if all(block.step == first.step for block in blocks) else None,
        phase=first.phase or None,
        count=len(blocks),
        bytes=sum(block.size for block in blocks),
    )


def _any_number(path: str) -> str:
    """A path with a star for each number in it: `layers.*.linear1`."""
    return any_layer(_NUMBER.sub("*", path))


def _line(places: Places, stack: int) -> str:
    where = places.of(stack)
    inside_torch = "/site-packages/torch/" in where.filename or "/dist-packages/torch/" in where.filename
    return f"{where.filename}:{where.line}" if where.line and not inside_torch else ""
