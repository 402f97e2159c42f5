"""Who holds memory at a moment: blocks grouped by role, name, module and line."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from peakmem.trace.roles import ContextKind, Role
from peakmem.trace.where import Places

if TYPE_CHECKING:
    from peakmem.trace.replay import Replay

BEFORE = "before the recording"
UNKNOWN = "no stack recorded"


@dataclass(frozen=True, kw_only=True, slots=True)
class Holder:
    """Blocks of one kind that are alive at one moment.

    Attributes:
        role: what they are for.
        name: for instance a parameter's name; may be empty.
        module: the module in which they were allocated; may be empty.
        line: the user's line, the backward node or the operation; `BEFORE` or `UNKNOWN` if no stack tells.
        shape: of the tensor, empty if unknown.
        dtype: of the tensor, empty if unknown.
        size: bytes of all blocks together, after rounding.
        requested: bytes that were asked for.
        count: how many blocks.
        since: number of the event that made the oldest of them, -1 for "before the first event".
    """

    role: Role
    name: str
    module: str
    line: str
    shape: tuple[int, ...]
    dtype: str
    size: int
    requested: int
    count: int
    since: int


def module_of_name(role: Role, name: str) -> tuple[str, str]:
    """The module to which a name belongs, and what it is there.

    Parameters, buffers and gradients are named `MODULE.weight`, optimizer states `exp_avg of MODULE.weight`; tied
    weights `MODULE.weight = OTHER.weight` count for the first. Keras has slashes: `MODULE/kernel`. Other roles don't
    belong to a module by name.
    """
    if role not in (Role.PARAMETER, Role.BUFFER, Role.GRADIENT, Role.OPTIMIZER_STATE):
        return "", name
    state, of, tensor = name.rpartition(" of ")
    first = tensor.partition(" = ")[0]
    module, _, last = first.rpartition("/" if "/" in first else ".")
    return module, f"{state}{of}{last}"


class Describer:
    """What is known about the allocations of a replay at a moment.

    Args:
        replay: the replay.
        moment: owners are taken as they are at this moment.
    """

    def __init__(self, replay: Replay, moment: int) -> None:
        self._replay = replay
        self._trace = replay.trace
        self._rows = replay.owner_rows(moment)
        self._modules: dict[int, str] = {}
        self.places = Places(replay.trace)

    def role(self, allocation: int) -> Role:
        """What it is for."""
        row = int(self._rows[allocation])
        return Role(int(self._trace.owners.role[row])) if row >= 0 else Role.UNATTRIBUTED

    def name(self, allocation: int) -> str:
        """Its name, for instance a parameter's; may be empty."""
        row = int(self._rows[allocation])
        return self._trace.strings[int(self._trace.owners.name[row])] if row >= 0 else ""

    def shape(self, allocation: int) -> tuple[int, ...]:
        """Shape of its tensor, empty if unknown."""
        row = int(self._rows[allocation])
        return self._trace.shapes[int(self._trace.owners.shape[row])] if row >= 0 else ()

    def dtype(self, allocation: int) -> str:
        """Dtype of its tensor, empty if unknown."""
        row = int(self._rows[allocation])
        return self._trace.strings[int(self._trace.owners.dtype[row])] if row >= 0 else ""

    def module(self, allocation: int) -> str:
        """The module in which it was allocated; may be empty."""
        return self.module_of(int(self._replay.allocations.context[allocation]))

    def module_of(self, context: int) -> str:
        """The module around a context; may be empty."""
        if context not in self._modules:
            self._modules[context] = self._trace.context_name(context, ContextKind.MODULE)
        return self._modules[context]

    def line(self, allocation: int) -> str:
        """The user's line, the backward node or the operation."""
        blocks = self._replay.allocations
        text = self.places.of(int(blocks.stack[allocation])).short
        if not text:
            text = self._trace.context_name(int(blocks.context[allocation]), ContextKind.OP)
        return text or (BEFORE if blocks.born[allocation] < 0 else UNKNOWN)

    def text(self, allocation: int) -> str:
        """All of it in one short line."""
        shape, parts = self.shape(allocation), [self.name(allocation), self.module(allocation), self.line(allocation)]
        if shape:
            parts.insert(1, f"{self.dtype(allocation)}{list(shape)}")
        return " · ".join(dict.fromkeys(part for part in parts if part))


def holders(replay: Replay, moment: int, describer: Describer | None = None) -> list[Holder]:
    """Everything handed out at a moment, the largest first. The sizes add up to `allocated`."""
    describe = describer or Describer(replay, moment)
    blocks = replay.allocations
    sums: dict[tuple[Role, str, str, str, tuple[int, ...], str], list[int]] = {}
    for allocation in replay.alive(moment).tolist():
        key = (
            describe.role(allocation), describe.name(allocation), describe.module(allocation),
            describe.line(allocation), describe.shape(allocation), describe.dtype(allocation),
        )  # fmt: skip
        entry = sums.setdefault(key, [0, 0, 0, int(blocks.born[allocation])])
        entry[0] += int(blocks.size[allocation])
        entry[1] += int(blocks.requested[allocation])
        entry[2] += 1
        entry[3] = min(entry[3], int(blocks.born[allocation]))
    found = [
        Holder(
            role=role, name=name, module=module, line=line, shape=shape, dtype=dtype,
            size=size, requested=requested, count=count, since=since,
        )
        for (role, name, module, line, shape, dtype), (size, requested, count, since) in sums.items()
    ]  # fmt: skip
    return sorted(found, key=lambda holder: (-holder.size, holder.role, holder.name, holder.module, holder.line))


_NUMBER = re.compile(r"(?<![^. ])\d+(?=\.|$| )")
_KERAS_NUMBER = re.compile(r"(?<=_)\d+(?=/|$|_| )")


def any_layer(path: str) -> str:
    """A path of Keras, which has slashes, with a star for the number of each layer: `encoder_*/dense_*`."""
    return _KERAS_NUMBER.sub("*", path) if "/" in path else path


def alike(found: list[Holder]) -> list[Holder]:
    """Put holders together that differ only in the numbers of their modules, as the layers of a model do.

    Numbers of those that are put together become `*`: `encoder.layers.*.weight`. The sums stay the same.
    """
    groups: dict[tuple[Role, str, str, str, tuple[int, ...], str], list[Holder]] = {}
    for holder in found:
        name, module = (any_layer(_NUMBER.sub("*", text)) for text in (holder.name, holder.module))
        groups.setdefault((holder.role, name, module, holder.line, holder.shape, holder.dtype), []).append(holder)
    made = [
        members[0]
        if len(members) == 1
        else replace(
            members[0],
            name=_common(key[1], {holder.name for holder in members}),
            module=_common(key[2], {holder.module for holder in members}),
            size=sum(holder.size for holder in members),
            requested=sum(holder.requested for holder in members),
            count=sum(holder.count for holder in members),
            since=min(holder.since for holder in members),
        )
        for key, members in groups.items()
    ]
    return sorted(made, key=lambda holder: (-holder.size, holder.role, holder.name, holder.module, holder.line))


def _common(pattern: str, texts: set[str]) -> str:
    """The text itself if it is the same everywhere, else its pattern."""
    return next(iter(texts)) if len(texts) == 1 else pattern
