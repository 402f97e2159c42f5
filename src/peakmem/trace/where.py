"""What a stack says to a user: their own line, the operation, the backward node."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from peakmem.trace.model import Frame, Trace

# Files between the user's code and the allocator. A library that is not torch (transformers, lightning) is not the
# user's either, but says more than nothing: it is taken when the stack has no line of the user's own.
_TORCH = re.compile(
    r"^torch/|/torchinductor_|(?:site|dist)-packages/torch(?:vision|audio|ao)?/|<frozen|<eval_with_key>"
)
_LIBRARY = re.compile(r"(?:^|/)(?:site-packages|dist-packages)/|(?:^|/)lib/python3(?:\.\d+)?/|<frozen|<string>")
_PYTHON = re.compile(r"\.pyc?$|^<ipython|^<stdin>|^<eval_with_key>|\.ipynb(?:\[\d+\])?$|^/tmp/ipykernel_")
_OP = re.compile(r"at::_ops::(\w+)::(?:call|redispatch)")
_NODE = re.compile(r"torch::autograd::(?:generated::)?(\w+Backward\w*|AccumulateGrad)::apply")
_NOISE = re.compile(
    r"CapturedTraceback|gather_with_cpp|unwind|CUDACachingAllocator|^_?Py|^_?PyEval|^cfunction|^method_vectorcall|^slot_tp"
    r"|^_start$|^__libc|^start_thread|^\?\?$"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Where:
    """What one stack says. Empty parts are unknown.

    Attributes:
        filename: file of the user's line.
        line: number of the user's line, 0 if unknown.
        function: function around it.
        op: name of the operation, for instance `aten::addmm`.
        node: node of the backward graph that ran, for instance `SigmoidBackward0`.
        path: the user's frames from the outermost to the innermost, as `file:line function`.
    """

    filename: str = ""
    line: int = 0
    function: str = ""
    op: str = ""
    node: str = ""
    path: tuple[str, ...] = ()

    @property
    def short(self) -> str:
        """One short text: `model.py:147 attention`, or the backward node, or the operation; may be empty."""
        if self.line:
            return f"{PurePosixPath(self.filename).name}:{self.line} {self.function}"
        if self.node:
            return f"backward of {self.node.partition('Backward')[0] or self.node}"
        return self.op or self.function


def is_users_own(filename: str) -> bool:
    """Whether a file is the user's own code: no library's, not Python's, not made by torch."""
    return not (_LIBRARY.search(filename) or _TORCH.search(filename) or filename.startswith("<"))


def explain_stack(frames: tuple[Frame, ...]) -> Where:
    """Find the user's line, the operation and the backward node in a stack (innermost frame first)."""
    python = [frame for frame in frames if _PYTHON.search(frame.filename)]
    own = [frame for frame in python if not _LIBRARY.search(frame.filename)]
    own = [frame for frame in own if not _TORCH.search(frame.filename)]
    if not own:
        own = [frame for frame in python if not _TORCH.search(frame.filename)]
    if not own:
        own = python
    op = next((match.group(1) for frame in frames if (match := _OP.search(frame.function))), "")
    node = next((match.group(1) for frame in frames if (match := _NODE.search(frame.function))), "")
    if not own:
        native = next((frame.function for frame in frames if not _NOISE.search(frame.function)), "")
        return Where(op=f"aten::{op}" if op else "", node=node, function=_short_native(native))
    line = own[0]
    return Where(
        filename=line.filename,
        line=line.line,
        function=line.function,
        op=f"aten::{op}" if op else "",
        node=node,
        path=tuple(f"{PurePosixPath(f.filename).name}:{f.line} {f.function}" for f in reversed(own)),
    )


def _short_native(name: str) -> str:
    """A C++ function without its arguments and template parameters."""
    previous = None
    while previous != name:
        previous = name
        name = re.sub(r"<[^<>]*>|\([^()]*\)", "", name)
    return name.split(" ")[-1] if " " in name else name


class Places:
    """`Where` for the stacks of one trace, each worked out once."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._of = lru_cache(maxsize=None)(self._explain)

    def _explain(self, stack: int) -> Where:
        return explain_stack(self._trace.stack(stack))

    def of(self, stack: int) -> Where:
        """What a stack says."""
        return self._of(int(stack))
