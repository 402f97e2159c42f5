"""The GPUs that peakmem knows (`data/devices.toml`), and how a name that somebody types finds one of them.

How a name is matched, in this order; case, spaces, dashes and the words NVIDIA, GeForce, Tesla and GPU never matter:

1. An alias wins, whole and unique: `h100` is the SXM card, `3080` the 10 GB card. The memory that the card is sold
   with may follow it: `4090 24GB`.
2. So does the full name as PyTorch prints it, where only one card has it.
3. Else every word typed must be a word of the card (of its name, its aliases, or its memory: `a30 24gb`,
   `rtx 4090 laptop`), and one card only must fit.
4. Else it is an error that names the cards meant most probably and the shortest name of each.
"""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

from peakmem.errors import PeakmemError
from peakmem.units import GIB, MIB, format_size

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

Provenance = Literal["reported", "reported_rounded", "derived", "given"]

DEFAULT_LIKE = "a100-80"
"""The card whose other properties a device has of which only the memory is given."""

_DATA = Path(__file__).parent / "data" / "devices.toml"
_NOISE = {"nvidia", "geforce", "tesla", "gpu", "graphics", "card", "the"}
_WORD = re.compile(r"[a-z0-9]+")
_SIZE = re.compile(r"^(\d+)(?:g|gb|gib)$")
_SUGGESTED = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One model of GPU. Sizes are bytes.

    Attributes:
        name: as `torch.cuda.get_device_name` prints it. Two cards that differ in memory alone can share it.
        aliases: short names that mean this card and no other; the first is the one to suggest.
        compute_capability: major and minor number, such as `(8, 9)`.
        architecture: NVIDIA's name for the generation, such as `Ada`.
        multiprocessors: streaming multiprocessors (SMs).
        total_memory: what `torch.cuda.get_device_properties(0).total_memory` gives on Linux: the memory of the card
            without what the driver keeps back.
        total_memory_is: `reported` (bytes printed by a program on such a card), `reported_rounded` (the same, printed
            in MiB or GiB, true to its last digit), `derived` (worked out from related cards) or `given` (by the user).
        total_memory_source: what was printed, by what, under which driver; or how it was worked out.
        smi_memory: the total that nvidia-smi and NVML show, larger than `total_memory`; None where it is not known.
        l2_cache: size of the L2 cache.
        shared_memory_per_multiprocessor: shared memory of one SM.
        shared_memory_per_block_optin: largest shared memory of one block, when the kernel asks for it.
        threads_per_multiprocessor: most resident threads of one SM.
        blocks_per_multiprocessor: most resident blocks of one SM.
        clock_khz: highest clock of the SMs, kHz.
        memory_clock_khz: highest clock of the memory, kHz.
        memory_bus_width: bits.
        unified_memory: whether it shares the memory of its host (GB10, Jetson).
        specification: where SM count, L2, clocks and bus width come from.
        guesses: names of the fields above that no source gives.
    """

    name: str
    aliases: tuple[str, ...]
    compute_capability: tuple[int, int]
    architecture: str
    multiprocessors: int
    total_memory: int
    total_memory_is: Provenance
    total_memory_source: str
    smi_memory: int | None
    l2_cache: int
    shared_memory_per_multiprocessor: int
    shared_memory_per_block_optin: int
    threads_per_multiprocessor: int
    blocks_per_multiprocessor: int
    clock_khz: int
    memory_clock_khz: int
    memory_bus_width: int
    unified_memory: bool
    specification: str
    guesses: tuple[str, ...]

    @property
    def capability(self) -> str:
        """The compute capability as people write it, `8.9`."""
        major, minor = self.compute_capability
        return f"{major}.{minor}"

    @property
    def short_name(self) -> str:
        """The shortest name that `find_device` takes for this card and no other."""
        return self.aliases[0]

    def as_dict(self) -> dict[str, Any]:
        """All fields, as JSON types; the compute capability as `"8.9"`."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        values |= {"compute_capability": self.capability}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}


@cache
def devices() -> tuple[Device, ...]:
    """All GPUs of the catalogue, in its order (by kind, then by age). Read once, on first use."""
    catalogue = tomllib.loads(_DATA.read_text(encoding="utf-8"))
    return tuple(_device(entry, catalogue["capability"][entry["compute_capability"]]) for entry in catalogue["device"])


def _device(entry: dict[str, Any], shared: dict[str, Any]) -> Device:
    values = {**entry, **shared}
    smi_mib = values.pop("smi_memory_mib", None)
    clock, memory_clock = values.pop("clocks_mhz")
    major, minor = values.pop("compute_capability").split(".")
    aliases = tuple(values.pop("aliases"))
    guesses = tuple(values.pop("guesses", ()))
    unified = values.pop("unified_memory", False)
    return Device(
        **values,
        aliases=aliases,
        guesses=guesses,
        unified_memory=unified,
        compute_capability=(int(major), int(minor)),
        clock_khz=clock * 1000,
        memory_clock_khz=memory_clock * 1000,
        smi_memory=None if smi_mib is None else smi_mib * MIB,
    )


def find_device(name: str) -> Device:
    """Find the GPU that somebody means: `4090`, `a100-80`, `RTX 4090`, `A100 80GB`, `NVIDIA A100-SXM4-80GB`.

    Raises:
        PeakmemError: no card, or more than one, fits; the hint names the nearest.
    """
    words = _words(name)
    called = _called("".join(words))
    if not called and words:
        # "4090 24GB": a name, and the memory that the card is sold with.
        called = [device for device in _called("".join(words[:-1])) if words[-1] == str(sold_memory(device))]
    fitting = called or _by_words(words)
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        raise PeakmemError(
            f"{name!r} can mean {len(fitting)} GPUs: {_enumerate(fitting)}", hint=f"say {_short_names(fitting)}"
        )
    nearest = _nearest("".join(words))
    raise PeakmemError(
        f"no GPU {name!r} in the catalogue" + (f"; the nearest are {_enumerate(nearest)}" if nearest else ""),
        hint=f"say {_short_names(nearest)}" if nearest else "`peakmem gpus` lists them; --memory 24GiB needs no name",
    )


def custom_device(*, memory: int | None = None, like: Device | str | None = None) -> Device:
    """A device with the given memory and all else as another has it.

    Args:
        memory: bytes that `total_memory` shall give; None leaves it as it is.
        like: the card, or a name of it, that it is in all else; by default an A100-SXM4-80GB, whose name it then does
            not take.

    Raises:
        PeakmemError: the memory is not positive, or `like` names no card.
    """
    base = like if isinstance(like, Device) else find_device(like or DEFAULT_LIKE)
    if memory is None:
        return base
    if memory <= 0:
        raise PeakmemError(f"a GPU can't have {memory} bytes of memory", hint="write --memory 24GiB")
    return replace(
        base,
        name=base.name if like else f"peakmem virtual GPU ({format_size(memory)})",
        total_memory=memory,
        total_memory_is="given",
        total_memory_source="given by the user",
        # A card that the user shrinks has no NVML total of its own.
        smi_memory=None,
    )


@cache
def _aliases() -> dict[str, Device]:
    return {_squash(alias): device for device in devices() for alias in device.aliases}


def _words(text: str) -> list[str]:
    """The words that can tell one card from another: `NVIDIA A100-SXM4-80GB` gives a100, sxm4, 80."""
    words = (_SIZE.sub(r"\1", word) for word in _WORD.findall(text.lower()))
    return [word for word in words if word not in _NOISE]


def _squash(text: str) -> str:
    return "".join(_words(text))


@cache
def _vocabulary() -> tuple[tuple[frozenset[str], Device], ...]:
    rows = []
    for device in devices():
        words = {word for text in (device.name, *device.aliases) for word in _words(text)}
        words |= {word.rstrip("0123456789") for word in words if word.startswith("sxm")}
        # Cards are sold by a round number of GB that lies a little above what CUDA leaves of it.
        words |= {str(sold_memory(device)), device.architecture.lower()}
        # "RTX 4090" and "RTX4090" are the same to everybody.
        parts = _words(device.name)
        words |= {first + second for first, second in pairwise(parts)}
        rows.append((frozenset(words), device))
    return tuple(rows)


def sold_memory(device: Device) -> int:
    """The memory in GB that the card is sold with: 80 for an A100-SXM4-80GB."""
    in_name = re.search(r"\b(\d+)GB", device.name)
    if in_name and not device.name.startswith("NVIDIA GH200"):
        return int(in_name.group(1))
    size = (device.smi_memory or device.total_memory) / GIB
    sizes = (4, 5, 6, 8, 10, 11, 12, 16, 20, 24, 32, 40, 48, 64, 80, 94, 96, 128, 141, 180, 186, 288)
    return min(sizes, key=lambda sold: abs(sold - size))


def _called(squashed: str) -> list[Device]:
    """The cards of which this is an alias or the full name."""
    if squashed in _aliases():
        return [_aliases()[squashed]]
    return [device for device in devices() if _squash(device.name) == squashed]


def search_devices(pattern: str) -> tuple[Device, ...]:
    """All GPUs that have every word of the pattern in name, short names, architecture or memory (`ada laptop`, `80gb`).

    Raises:
        PeakmemError: there is none.
    """
    words = _words(pattern)
    found = tuple(
        device
        for vocabulary, device in _vocabulary()
        if all(any(word == known or (len(word) > 2 and word in known) for known in vocabulary) for word in words)
    )
    return found or (find_device(pattern),)  # whose error names the nearest


def _by_words(words: list[str]) -> list[Device]:
    if not words:
        return []
    return [device for vocabulary, device in _vocabulary() if vocabulary.issuperset(words)]


def _nearest(squashed: str) -> list[Device]:
    close = difflib.get_close_matches(squashed, list(_aliases()), n=_SUGGESTED * 2, cutoff=0.7)
    if not close and len(squashed) > 2:
        close = [alias for alias in _aliases() if squashed in alias or alias in squashed]
    return list(dict.fromkeys(_aliases()[alias] for alias in close))[:_SUGGESTED]


def _enumerate(found: Iterable[Device]) -> str:
    names = [f"{device.name} ({format_size(device.total_memory, digits=1)})" for device in found]
    return ", ".join(names[:_SUGGESTED]) + (f" and {len(names) - _SUGGESTED} more" if len(names) > _SUGGESTED else "")


def _short_names(found: Iterable[Device]) -> str:
    names = [device.short_name for device in found][:_SUGGESTED]
    return names[0] if len(names) == 1 else ", ".join(names[:-1]) + " or " + names[-1]
