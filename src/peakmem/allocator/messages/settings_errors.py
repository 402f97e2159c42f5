"""Errors and warnings about the settings string itself, as they stand in logs."""

from __future__ import annotations

import re
from collections.abc import Iterator

from peakmem.allocator.messages.log import Log
from peakmem.allocator.messages.model import Explanation, Verdict
from peakmem.allocator.settings import options
from peakmem.allocator.settings.version import REFERENCE

_UNKNOWN = re.compile(
    r"UnrecognizedCachingAllocatoroption:|Unrecognizedkey'(?P<new>[^']{1,80})'in(?:CUDA|Accelerator)allocatorconfig"
)
_OLD_KEY = re.compile(r"Unrecognized\s+CachingAllocator\s+option:\s*([^\s\"]+)")
_FAULTS = (
    (
        re.compile(r"ExpectedasingleTrue/Falseargumentfor(?P<what>[a-z_]+)"),
        "{what} takes True or False, spelt so.",
        "Write {what}:True.",
    ),
    (
        re.compile(r"Expected'True'or'False'atindex\d+inConfigTokenizerbutgot'(?P<what>[^']*)'"),
        "An option takes True or False, spelt so, and was given '{what}'.",
        "Write True or False with a capital letter.",
    ),
    (
        re.compile(r"ErrorparsingCachingAllocator(?:::AllocatorConfig)?settings,expected(?P<what>[:,])"),
        "The settings string has something else where '{what}' is expected (often '=', a semicolon "
        "or a quotation mark).",
        "Write key:value, with ',' between two of them and no quotes inside.",
    ),
    (
        re.compile(r"IndexoutofboundsinConfigTokenizer"),
        "The settings string ends where a value is expected.",
        "Write key:value for every option.",
    ),
    (
        re.compile(r"CachingAllocatoroption(?P<what>max_[a-z_]+)toosmall,mustbe(?P<least>>=?\d+)"),
        "{what} is too small: it must be {least} (MiB).",
        "Give a larger number; 128 to 512 is usual for max_split_size_mb.",
    ),
    (
        re.compile(r"garbage_collect_threshold(?:toosmall|toobig|isinvalid)"),
        "garbage_collection_threshold must be between 0 and 1, both excluded.",
        "Write for example garbage_collection_threshold:0.8, and per_process_memory_fraction below 1 beside it.",
    ),
)
_HARMLESS = (
    (
        re.compile(r"expandable_segmentsnotsupportedonthisplatform"),
        "PyTorch ignores expandable_segments on this platform (Windows, ROCm before 7.0).",
        "No: expandable_segments does nothing here. max_split_size_mb works.",
        "Leave the option out; where memory is fragmented, try max_split_size_mb:128.",
    ),
    (
        re.compile(r"backend:cudaMallocAsyncignoresmax_split_size_mb"),
        "With backend:cudaMallocAsync the other options are ignored.",
        "No: the driver's pool does the caching.",
        "Leave out either the backend or the rest.",
    ),
    (
        re.compile(r"PYTORCH_(?:CUDA|HIP)_ALLOC_CONFisdeprecated,usePYTORCH_ALLOC_CONFinstead"),
        "PyTorch 2.9 warns so, but its CUDA allocator reads PYTORCH_CUDA_ALLOC_CONF only; the warning is gone in 2.10.",
        "It changes nothing about memory.",
        "Keep PYTORCH_CUDA_ALLOC_CONF: renamed, the settings would not be read by the CUDA allocator of 2.9.",
    ),
)


def find(log: Log) -> Iterator[Explanation]:
    """All errors and warnings of this kind in a log."""
    for match in _UNKNOWN.finditer(log.squeezed):
        yield _unknown(match, log)
    for pattern, happened, first in _FAULTS:
        for match in pattern.finditer(log.squeezed):
            yield Explanation(
                wording="PyTorch, settings string",
                verdict=Verdict.SETTINGS,
                happened=f"PyTorch refused the allocator settings: {happened.format(**match.groupdict())}",
                option="The run stops because of the option, not for want of memory.",
                first=f"{first.format(**match.groupdict())} peakmem conf check STR shows the place.",
                option_helps=False,
                position=match.start(),
                rank=log.rank_at(match.start()),
            )
    for pattern, happened, option, first in _HARMLESS:
        for match in pattern.finditer(log.squeezed):
            yield Explanation(
                wording="PyTorch, warning about settings",
                verdict=Verdict.HARMLESS,
                happened=happened,
                option=option,
                first=first,
                position=match.start(),
                rank=log.rank_at(match.start()),
            )


def _unknown(match: re.Match[str], log: Log) -> Explanation:
    key = match["new"]
    if key is None:
        # Nothing marks the end of the key but white space, which the squeezed text has lost.
        named = _OLD_KEY.search(log.text)
        key = named[1] if named is not None else ""
    option = options.find_ever(key)
    closest = options.closest(key.partition("=")[0], REFERENCE)
    if option is not None:
        if option.until:
            happened = f"This PyTorch does not know {key}: it was removed after {option.until}."
            first = f"Use {option.instead}." if option.instead else "Leave it out."
        else:
            happened = f"This PyTorch is too old for {key}, which exists since {option.since}."
            first = f"Remove {key} from the settings, or use PyTorch {option.since} or later."
    elif "=" in key:
        happened = f"The settings string has '=' where ':' belongs: {key}."
        first = f"Write {key.replace('=', ':', 1)}."
    else:
        happened = f"There is no allocator option {key}."
        first = f"Did you mean {closest.key}?" if closest is not None else "Leave it out."
    return Explanation(
        wording="PyTorch, settings string",
        verdict=Verdict.SETTINGS,
        happened=f"{happened} The first use of CUDA fails.",
        option="The run stops because of the option, not for want of memory.",
        first=first,
        position=match.start(),
        rank=log.rank_at(match.start()),
    )
