"""In which PyTorch releases a string is accepted."""

from __future__ import annotations

from peakmem.allocator.settings.parse import parse
from peakmem.allocator.settings.version import TorchVersion

MINOR_RELEASES = (*(f"1.{minor}" for minor in range(10, 14)), *(f"2.{minor}" for minor in range(15)))
"""The releases since 1.10 that the table of options covers."""


def accepted_by(text: str) -> str:
    """The releases that accept a string, in words: `2.1 to 2.9, 2.11 to 2.14`; empty if none does."""
    verdicts = [_takes(text, TorchVersion.parse(release)) for release in MINOR_RELEASES]
    spans: list[str] = []
    begin: int | None = None
    for index, accepted in enumerate([*verdicts, False]):
        if accepted and begin is None:
            begin = index
        elif not accepted and begin is not None:
            first, last = MINOR_RELEASES[begin], MINOR_RELEASES[index - 1]
            spans.append(first if first == last else f"{first} to {last}")
            begin = None
    return ", ".join(spans)


def _takes(text: str, version: TorchVersion) -> bool:
    """Whether a release accepts a string; what 1.10 to 1.13 skip as a whole without a word does not count."""
    result = parse(text, version=version)
    return result.accepted and not (result.ignored and not result.named)
