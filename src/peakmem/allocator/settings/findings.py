"""What a user should know about an accepted string: what does nothing, what harms, what depends on the version."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum

from peakmem.allocator.settings import options
from peakmem.allocator.settings.model import ParseResult, Settings
from peakmem.allocator.settings.rounding import one_division_rounds
from peakmem.units import MIB


class Kind(Enum):
    """How much a finding matters; `peakmem exec` refuses the first two unless forced."""

    HARMFUL = "harmful"
    INERT = "inert"
    NOTE = "note"


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One remark about a string.

    Attributes:
        kind: harmful, inert (it does nothing), or a note.
        options: the options that it is about.
        text: the remark, one or two sentences.
        suggestion: what to write instead; may be empty.
    """

    kind: Kind
    options: tuple[str, ...]
    text: str
    suggestion: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Platform:
    """Where the process runs.

    Attributes:
        system: linux, windows or darwin.
        runtime: cuda or rocm.
        rocm: the ROCm version (major, minor), where known.
    """

    system: str = "linux"
    runtime: str = "cuda"
    rocm: tuple[int, int] | None = None


LINUX_CUDA = Platform()


def examine(result: ParseResult, platform: Platform = LINUX_CUDA) -> tuple[Finding, ...]:
    """All remarks about an accepted string, the harmful ones first; none for a refused one (it says why itself)."""
    if result.refusal is not None:
        return ()
    found = [finding for rule in _RULES for finding in rule(result, platform)]
    order = list(Kind)
    return tuple(sorted(found, key=lambda finding: order.index(finding.kind)))


def _native_options_unused(result: ParseResult, platform: Platform) -> Iterator[Finding]:
    names = result.named_options()
    native = tuple(sorted(name for name in names if name != "backend" and not name.startswith("pinned_")))
    if result.settings.backend == "cudaMallocAsync" and native:
        yield Finding(
            kind=Kind.INERT,
            options=native,
            text=f"With backend:cudaMallocAsync the driver's pool does the caching; {_list(native)} "
            f"{'does' if len(native) == 1 else 'do'} nothing.",
            suggestion="leave out either the backend or the rest",
        )


def _garbage_collection(result: ParseResult, platform: Platform) -> Iterator[Finding]:
    settings = result.settings
    if "garbage_collection_threshold" not in result.named_options() or settings.backend != "native":
        return
    key = ("garbage_collection_threshold",)
    threshold = settings.garbage_collection_threshold
    if not result.version.at_least("2.10"):
        yield Finding(
            kind=Kind.INERT,
            options=key,
            text="garbage_collection_threshold does nothing unless the program sets a limit with "
            "torch.cuda.set_per_process_memory_fraction (1.0 counts, in this version).",
            suggestion="call torch.cuda.set_per_process_memory_fraction(1.0), or leave the option out",
        )
    elif settings.per_process_memory_fraction >= 1:
        yield Finding(
            kind=Kind.INERT,
            options=key,
            text="garbage_collection_threshold does nothing unless a memory fraction below 1 is set.",
            suggestion="add per_process_memory_fraction:0.99, or leave the option out",
        )
    else:
        fraction = settings.per_process_memory_fraction
        yield Finding(
            kind=Kind.NOTE,
            options=key,
            text=f"Garbage collection starts when the allocator holds more than {threshold * fraction:.1%} of the "
            f"device ({threshold:g} of the limit, which is {fraction:g} of the device).",
        )
    if settings.expandable_segments:
        yield Finding(
            kind=Kind.INERT,
            options=("garbage_collection_threshold", "expandable_segments"),
            text="Garbage collection never frees memory of expandable segments; with them on it finds next to nothing.",
            suggestion="leave garbage_collection_threshold out",
        )


def _split_with_expandable(result: ParseResult, platform: Platform) -> Iterator[Finding]:
    settings = result.settings
    if settings.max_split_size is None or not settings.expandable_segments:
        return
    size = settings.max_split_size // MIB
    yield Finding(
        kind=Kind.HARMFUL,
        options=("max_split_size_mb", "expandable_segments"),
        text="With expandable segments max_split_size_mb no longer prevents splitting, but free ranges of "
        f"{size} MiB or more are withheld from other requests, and new memory is mapped instead: reserved grows until "
        "the card is full. Measured with PyTorch 2.14.1: random sizes that never add up to more than 4.2 GiB came to "
        "reserve 80 GiB; 5.1 GiB without max_split_size_mb.",
        suggestion="keep expandable_segments:True and leave max_split_size_mb out",
    )


def _splitting(result: ParseResult, platform: Platform) -> Iterator[Finding]:
    names, settings = result.named_options(), result.settings
    if settings.max_split_size is not None and settings.backend == "native" and not settings.expandable_segments:
        yield Finding(
            kind=Kind.NOTE,
            options=("max_split_size_mb",),
            text="Blocks that are never split pile up where large sizes vary. Measured with PyTorch "
            "2.14.1: random sizes "
            "that never add up to more than 4.2 GiB reserved 14.9 GiB with max_split_size_mb:64, 8.0 GiB without, and "
            "5.1 GiB with expandable_segments:True.",
        )
    if "max_split_size_mb" in names and settings.max_split_size is None:
        yield Finding(
            kind=Kind.INERT,
            options=("max_split_size_mb",),
            text="max_split_size_mb is so large that it is no limit (a negative number wraps around to one).",
        )
    if "max_non_split_rounding_mb" in names and settings.max_split_size is None:
        yield Finding(
            kind=Kind.INERT,
            options=("max_non_split_rounding_mb",),
            text="max_non_split_rounding_mb does nothing without max_split_size_mb.",
        )


def _rounding(result: ParseResult, platform: Platform) -> Iterator[Finding]:
    if "roundup_power2_divisions" not in result.named_options():
        return
    key, table = ("roundup_power2_divisions",), result.settings.roundup_power2_divisions
    if max(table) == 0:
        yield Finding(kind=Kind.INERT, options=key, text="roundup_power2_divisions rounds nothing: every entry is 0.")
        return
    if max(table) == 1 and not one_division_rounds(result.version):
        yield Finding(
            kind=Kind.INERT,
            options=key,
            text="1 division means off: sizes are rounded up to 512 bytes only, not to the next power of two "
            "(PyTorch up to 1.13 did round; a later change to do so again was reverted).",
            suggestion="2 is the coarsest rounding: 514 MiB becomes 768 MiB",
        )
        return
    listed = "[" in next(named.value for named in result.named if named.option == "roundup_power2_divisions")
    gaps = [index for index, divisions in enumerate(table) if divisions == 0]
    if listed and gaps:
        sizes = ", ".join(f"{1 << index} MiB" for index in gaps)
        yield Finding(
            kind=Kind.NOTE,
            options=key,
            text=f"Not rounded, since the list does not name them: sizes from {sizes} to the next power of two each.",
        )
    if listed and ">" in result.text:
        where = "after the last listed size" if result.version.at_least("2.10") else "at the last listed size itself"
        yield Finding(
            kind=Kind.NOTE,
            options=key,
            text=f"In PyTorch {result.version} '>' begins {where} (up to 2.9 at it, since 2.10 after it).",
        )
    coarsest = min(divisions for divisions in table if divisions > (0 if one_division_rounds(result.version) else 1))
    yield Finding(
        kind=Kind.NOTE,
        options=key,
        text=f"A block can be up to {1 / coarsest:.1%} larger than its request.",
    )


def _limits(result: ParseResult, platform: Platform) -> Iterator[Finding]:
    names, settings = result.named_options(), result.settings
    if "per_process_memory_fraction" in names and settings.backend == "native":
        if settings.per_process_memory_fraction == 0:
            yield Finding(
                kind=Kind.HARMFUL,
                options=("per_process_memory_fraction",),
                text="A fraction of 0 forbids every allocation.",
            )
        elif settings.per_process_memory_fraction == 1:
            yield Finding(
                kind=Kind.INERT,
                options=("per_process_memory_fraction",),
                text="per_process_memory_fraction:1.0 is the default and sets no limit.",
            )
    if not settings.throw_on_cudamalloc_oom or settings.backend != "native":
        return
    if settings.per_process_memory_fraction < 1:
        yield Finding(
            kind=Kind.INERT,
            options=("throw_on_cudamalloc_oom",),
            text="throw_on_cudamalloc_oom acts only with a memory fraction of 1: below it the "
            "ordinary limit comes first.",
        )
    else:
        yield Finding(
            kind=Kind.HARMFUL,
            options=("throw_on_cudamalloc_oom",),
            text="throw_on_cudamalloc_oom raises OutOfMemoryError even where giving cached segments back would have "
            "made room.",
        )


def _expandable(result: ParseResult, platform: Platform) -> Iterator[Finding]:
    settings = result.settings
    if not settings.expandable_segments:
        return
    key = ("expandable_segments",)
    old_rocm = platform.runtime == "rocm" and (platform.rocm is None or platform.rocm < (7, 0))
    if platform.system != "linux" or old_rocm:
        where = "ROCm before 7.0" if platform.system == "linux" else platform.system.capitalize()
        yield Finding(
            kind=Kind.INERT,
            options=key,
            text=f"On {where} PyTorch warns 'expandable_segments not supported on this platform' and "
            "ignores the option.",
        )
    else:
        yield Finding(
            kind=Kind.NOTE,
            options=key,
            text="It works on Linux, with CUDA or ROCm 7.0 and later; elsewhere PyTorch warns and ignores it."
            + (
                " Sending its tensors to another process needs TORCH_CUDA_EXPANDABLE_SEGMENTS_IPC=1."
                if result.version.at_least("2.14")
                else ""
            ),
        )
    if settings.large_segment_size % (2 * MIB):
        yield Finding(
            kind=Kind.HARMFUL,
            options=("expandable_segments", "large_segment_size_mb"),
            text="The page of expandable segments is large_segment_size_mb, and the driver maps "
            "multiples of 2 MiB only.",
            suggestion="use an even number of MiB",
        )


def _pinned(result: ParseResult, platform: Platform) -> Iterator[Finding]:
    names, settings = result.named_options(), result.settings
    if "pinned_num_register_threads" in names and not settings.pinned_use_cuda_host_register:
        yield Finding(
            kind=Kind.INERT,
            options=("pinned_num_register_threads",),
            text="pinned_num_register_threads does nothing without pinned_use_cuda_host_register:True.",
        )
    cached, rounded = settings.pinned_max_cached_size, settings.pinned_max_round_threshold
    if cached is not None and rounded is not None and rounded > cached:
        yield Finding(
            kind=Kind.NOTE,
            options=("pinned_max_round_threshold_mb", "pinned_max_cached_size_mb"),
            text=f"Pinned blocks above {cached // MIB} MiB are never rounded up: the cache limit wins.",
        )


def _repeats(result: ParseResult, platform: Platform) -> Iterator[Finding]:
    seen: dict[str, str] = {}
    for named in result.named:
        if named.option in seen:
            yield Finding(
                kind=Kind.INERT,
                options=(named.option,),
                text=f"{named.option} is named more than once; the last wins, {seen[named.option]} is forgotten.",
            )
        seen[named.option] = named.value


def _defaults(result: ParseResult, platform: Platform) -> Iterator[Finding]:
    default = Settings()
    for option in options.table():
        if option.key not in result.named_options() or option.kind not in ("flag", "threads", "backend"):
            continue
        if getattr(result.settings, option.field) == getattr(default, option.field):
            yield Finding(
                kind=Kind.NOTE,
                options=(option.key,),
                text=f"{option.key}:{getattr(default, option.field)} is the default.",
            )


def _skipped(result: ParseResult, platform: Platform) -> Iterator[Finding]:
    for start, end in result.ignored:
        piece = result.text[start:end]
        if result.version.at_least("2.0"):
            text = f"PyTorch skips {piece!r} at column {start + 1} without looking at it."
            suggestion = "separate a key and its value by ':', two options by ','"
        else:
            text = f"PyTorch {result.version} skips {piece!r} at column {start + 1} without a word: it sets nothing."
            suggestion = "write key:value, without spaces"
        yield Finding(kind=Kind.INERT, options=(), text=text, suggestion=suggestion)


_RULES: tuple[Callable[[ParseResult, Platform], Iterator[Finding]], ...] = (
    _native_options_unused,
    _garbage_collection,
    _split_with_expandable,
    _splitting,
    _rounding,
    _limits,
    _expandable,
    _pinned,
    _repeats,
    _defaults,
    _skipped,
)


def _list(names: tuple[str, ...]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
