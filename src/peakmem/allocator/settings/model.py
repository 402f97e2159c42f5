"""What parsing a settings string gives: the settings in force, or the exception that PyTorch raises."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from peakmem.allocator.settings.version import TorchVersion
from peakmem.errors import PeakmemError
from peakmem.units import MIB

INTERVALS = 16
"""Entries of the table of divisions: 1 MiB, 2 MiB, 4 MiB ... 32 GiB."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """The allocator's settings, every option resolved; sizes in bytes, None for "unlimited".

    The names are those of the options without `_mb`; what each does is in options.toml.
    """

    backend: str = "native"
    max_split_size: int | None = None
    max_non_split_rounding: int = 20 * MIB
    large_segment_size: int = 20 * MIB
    garbage_collection_threshold: float = 0.0
    roundup_power2_divisions: tuple[int, ...] = (0,) * INTERVALS
    roundup_bypass_threshold: int | None = None
    expandable_segments: bool = False
    per_process_memory_fraction: float = 1.0
    throw_on_cudamalloc_oom: bool = False
    release_lock_on_cudamalloc: bool = False
    graph_capture_record_stream_reuse: bool = False
    pinned_use_cuda_host_register: bool = False
    pinned_num_register_threads: int = 1
    pinned_use_background_threads: bool = False
    pinned_reserve_segment_size: int = 0
    pinned_max_round_threshold: int | None = None
    pinned_max_cached_size: int | None = None
    pinned_free_catch_all: bool = False


class Call(Enum):
    """How the string reaches PyTorch; some exceptions differ in class."""

    ENVIRONMENT = "environment"
    RUN_TIME = "run time"


@dataclass(frozen=True, kw_only=True, slots=True)
class Named:
    """An option that the string names, and the columns of its key and value (end excluded)."""

    key: str
    option: str
    value: str
    start: int
    end: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Refusal:
    """Why PyTorch refuses a string, and where.

    Attributes:
        exception: class of what PyTorch raises; empty where it reads beyond its token list, which is undefined
            (usually a crash).
        text: the text of the exception. For an internal assertion, the sentence at its end.
        condition: for an internal assertion, the condition that PyTorch prints in front; else empty.
        start: first column of what is wrong; the length of the string where something is missing at its end.
        end: the column after it.
        reason: what is wrong, in plain words.
        suggestion: what to write instead; may be empty.
        aborts: whether it is thrown while the libraries are loaded, where nothing catches it: `import torch` ends the
            process (SIGABRT).
    """

    exception: str
    text: str
    condition: str = ""
    aborts: bool = False
    start: int
    end: int
    reason: str
    suggestion: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class ParseResult:
    """What a PyTorch version makes of a settings string.

    Attributes:
        text: the string.
        version: the PyTorch version.
        settings: what is in force afterwards. A refused string leaves what stood before the fault in force.
        named: the options met, in order.
        refusal: why it is refused; None if it is accepted.
        ignored: parts that PyTorch skips without a word, as (start, end) columns.
        warnings: what PyTorch prints and goes on.
    """

    text: str
    version: TorchVersion
    settings: Settings
    named: tuple[Named, ...]
    refusal: Refusal | None
    ignored: tuple[tuple[int, int], ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def accepted(self) -> bool:
        """Whether PyTorch takes the string without an exception."""
        return self.refusal is None

    def named_options(self) -> frozenset[str]:
        """The options named, under their main names."""
        return frozenset(named.option for named in self.named)

    def require(self) -> Settings:
        """The settings.

        Raises:
            PeakmemError: PyTorch refuses the string; the message shows where.
        """
        if self.refusal is None:
            return self.settings
        raise PeakmemError(
            f"PyTorch {self.version} refuses {self.text!r}: {self.refusal.reason}\n{caret(self)}",
            hint=self.refusal.suggestion,
        )


def caret(result: ParseResult) -> str:
    """The string with carets under what is wrong, two lines; empty if nothing is."""
    if result.refusal is None:
        return ""
    start, end = result.refusal.start, max(result.refusal.end, result.refusal.start + 1)
    shown = "".join(letter if letter.isprintable() else " " for letter in result.text)
    return f"  {shown}\n  {' ' * start}{'^' * (end - start)}"
