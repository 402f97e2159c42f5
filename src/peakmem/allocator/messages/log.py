"""A log as people paste it, made readable: colours, prefixes, escapes and line breaks taken out.

Line breaks stand anywhere in such logs, even inside numbers and words. Messages are therefore looked for in the text
without any white space; `squeezed` is that text.
"""

from __future__ import annotations

import bisect
import re
from dataclasses import dataclass

_COLOUR = re.compile(r"(?:\x1b|\\u001b|\\x1b|\\033|\\e|\^\[)\[[0-9;?]*[A-Za-z]")
_RANK = re.compile(r"^\W{0,3}\[?(?:default\d+:)?\[?rank\s?(\d+)\]?:")
_PREFIX = re.compile(
    r"""^\s*(?:
        \[?(?:default\d+:)?\[?rank\s?\d+\](?::|\s)       # [rank0]:
      | \[default\d+\]:                                  # [default0]:
      | \[\d+,\d+\]<std(?:err|out)>:                     # mpirun
      | \((?:[\w.]+\s)*[\w.]*\s?(?:\w+=[\w.-]+,?\s?)*pid=\d+[^)]*\)  # (RayTrainWorker pid=123, ip=...)
      | \d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[.,\d]*(?:Z|[+-]\d\d:?\d\d)?\s
      | \d{1,3}:\s(?=\S)                                 # srun -l
      | [\w.-]+\s*\|\s(?=\|)                             # docker compose, before a box
      | [\w.-]+-\d+\s+\|\s                               # docker compose
      | [>\#]\s                                          # quotation, comment
    )""",
    re.VERBOSE,
)
_WHITE = re.compile(r"\s+")
_CONF = re.compile(r"PYTORCH_(?:CUDA_|HIP_)?ALLOC_CONF['\"]?\]?\s*[=:]\s*['\"]?([a-z_]+:[^\s'\"]+)")
_HINT = re.compile(r"trysettingPYTORCH_(?:CUDA_|HIP_)?ALLOC_CONF=expandable_segments:True")


@dataclass(frozen=True, kw_only=True, slots=True)
class Log:
    """A log, cleaned.

    Attributes:
        text: without colours, prefixes and escapes; with its line breaks.
        squeezed: the same without white space.
        ranks: (position in squeezed, rank) where lines began with a rank.
        alloc_conf: a settings string met in it (other than in the hint of an error message); empty if none.
        windows: whether it comes from Windows.
        phase: what the program was doing, as far as a traceback tells; empty if it doesn't.
    """

    text: str
    squeezed: str
    ranks: tuple[tuple[int, int], ...]
    alloc_conf: str
    windows: bool
    phase: str

    def rank_at(self, position: int) -> int | None:
        """The rank that printed what stands at a position of the squeezed text."""
        index = bisect.bisect_right(self.ranks, (position, 10**9)) - 1
        return self.ranks[index][1] if index >= 0 else None


def clean(raw: str) -> Log:
    """Clean a log."""
    text = _COLOUR.sub("", _unescape(raw)).replace("\r", "\n").replace("\xa0", " ")
    lines: list[str] = []
    ranks: list[tuple[int, int]] = []
    length = 0
    for line in text.split("\n"):
        rank = _RANK.match(line)
        if rank is not None:
            ranks.append((length, int(rank[1])))
        for _ in range(3):
            shorter = _PREFIX.sub("", line, count=1)
            if shorter == line:
                break
            line = shorter
        lines.append(line)
        length += len(_WHITE.sub("", line))
    text = "\n".join(lines)
    squeezed = _WHITE.sub("", text)
    return Log(
        text=text,
        squeezed=squeezed,
        ranks=tuple(ranks),
        alloc_conf=_settings(text, squeezed),
        windows=bool(re.search(r"[A-Z]:\\|\bWindows\b|win32|not supported on this platform", text)),
        phase=_phase(text),
    )


def _unescape(raw: str) -> str:
    # A message quoted in JSON has its line breaks written out; a Windows path (C:\new) may look like one, so at least
    # as many escapes as true line breaks are asked for.
    if raw.count("\\n") > raw.count("\n") or '\\"' in raw:
        return raw.replace("\\r\\n", "\n").replace("\\n", "\n").replace("\\t", "\t").replace('\\"', '"')
    return raw


def _settings(text: str, squeezed: str) -> str:
    hints = len(_HINT.findall(squeezed))
    found = [match[1].rstrip(".,;)") for match in _CONF.finditer(text)]
    from_hints = [conf for conf in found if conf == "expandable_segments:True"]
    if len(from_hints) <= hints:
        found = [conf for conf in found if conf != "expandable_segments:True"]
    return found[0] if found else ""


_PHASES = (
    ("optimizer step", re.compile(r"optimizer\.step\(|torch/optim/|[\\/]optim[\\/]adam", re.IGNORECASE)),
    ("loading", re.compile(r"torch\.load\(|serialization\.py|load_state_dict\(|from_pretrained\(")),
    ("convolution", re.compile(r"_conv_forward\(|F\.conv[123]d\(|\bconv(?:_transpose)?[123]d\(")),
    ("backward", re.compile(r"\.backward\(|_engine_run_backward|run_backward\(")),
    ("loss", re.compile(r"cross_entropy\(|log_softmax\(|nll_loss\(")),
    ("attention", re.compile(r"scaled_dot_product|bmm\(|matmul\(q|softmax\(")),
)


def _phase(text: str) -> str:
    """The last of these phases that the traceback names: the innermost frame stands last."""
    last, phase = -1, ""
    for name, pattern in _PHASES:
        for match in pattern.finditer(text):
            if match.start() > last:
                last, phase = match.start(), name
    return phase
