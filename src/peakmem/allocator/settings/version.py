"""PyTorch versions, as far as the allocator's settings depend on them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from peakmem.errors import PeakmemError

_VERSION = re.compile(r"\s*v?(\d+)\.(\d+)(?:\.(\d+))?\S*\s*")


@dataclass(frozen=True, kw_only=True, slots=True, order=True)
class TorchVersion:
    """A PyTorch release; the local part (`+cu130`) plays no role here."""

    major: int
    minor: int
    patch: int = 0

    @classmethod
    def parse(cls, text: str) -> TorchVersion:
        """Read `2.14.1+cu130`, `2.1` or `v1.13.0`.

        Raises:
            PeakmemError: the text is no version, or one before 1.10, which had no such options.
        """
        match = _VERSION.fullmatch(text)
        if match is None:
            raise PeakmemError(f"{text!r} is not a PyTorch version", hint="write it like 2.14.1 or 2.6")
        version = cls(major=int(match[1]), minor=int(match[2]), patch=int(match[3] or 0))
        if version < OLDEST:
            raise PeakmemError(
                f"PyTorch {version} has no allocator options",
                hint="PYTORCH_CUDA_ALLOC_CONF is read since PyTorch 1.10",
            )
        return version

    def at_least(self, minor_release: str) -> bool:
        """Whether this is the given minor release (`2.9`) or a later one."""
        major, _, minor = minor_release.partition(".")
        return (self.major, self.minor) >= (int(major), int(minor))

    def after(self, minor_release: str) -> bool:
        """Whether this is later than every patch of the given minor release."""
        major, _, minor = minor_release.partition(".")
        return (self.major, self.minor) > (int(major), int(minor))

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}.{self.patch}"


OLDEST = TorchVersion(major=1, minor=10)
REFERENCE = TorchVersion(major=2, minor=14, patch=1)
"""The release whose every accepted and refused string was compared with the real allocator."""
