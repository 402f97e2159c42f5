"""The table of options: which key exists in which PyTorch version, and what it is."""

from __future__ import annotations

import difflib
import sys
from dataclasses import dataclass
from functools import cache
from importlib import resources

from peakmem.allocator.settings.version import TorchVersion

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


@dataclass(frozen=True, kw_only=True, slots=True)
class ErrorText:
    """What PyTorch raises for a bad value: from the release `since` on, in the situation `when` (empty: any)."""

    since: str
    exception: str
    text: str
    when: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Option:
    """One option of the settings string (see options.toml for the meaning of each field)."""

    key: str
    since: str
    until: str = ""
    aliases: tuple[str, ...] = ()
    aliases_since: str = ""
    reader: str
    kind: str
    field: str
    default: str
    range: str
    run_time: str
    effect: str
    instead: str = ""
    source: str
    errors: tuple[ErrorText, ...] = ()

    def known_to(self, version: TorchVersion) -> bool:
        """Whether the parser of this PyTorch version knows the key."""
        return version.at_least(self.since) and not (self.until and version.after(self.until))

    def error(self, version: TorchVersion, when: str = "") -> ErrorText:
        """The error of this version for a bad value in the situation `when`."""
        for candidate in self.errors:
            if version.at_least(candidate.since) and candidate.when in ("", when):
                return candidate
        raise LookupError(f"no error text for {self.key} {when} in {version}")


@cache
def table() -> tuple[Option, ...]:
    """All options that ever existed, in the order of options.toml."""
    text = resources.files("peakmem.allocator.settings").joinpath("options.toml").read_text(encoding="utf-8")
    options = []
    for entry in tomllib.loads(text)["option"]:
        errors = tuple(ErrorText(**error) for error in entry.pop("errors", ()))
        options.append(Option(**{**entry, "aliases": tuple(entry.get("aliases", ()))}, errors=errors))
    return tuple(options)


def find(key: str, version: TorchVersion) -> Option | None:
    """The option that this PyTorch version knows under this name (or alias), or None."""
    for option in table():
        if option.known_to(version) and (
            key == option.key or (key in option.aliases and version.at_least(option.aliases_since))
        ):
            return option
    return None


def find_ever(key: str) -> Option | None:
    """The option that any PyTorch version knows under this name (or alias), or None."""
    return next((option for option in table() if key == option.key or key in option.aliases), None)


def closest(key: str, version: TorchVersion) -> Option | None:
    """The option of this version that a misspelt or invented key most likely means, or None."""
    known = {option.key: option for option in table() if option.known_to(version)}
    cleaned = key.strip("'\"` ").lower().replace("-", "_")
    # Invented keys are mostly a true key with a word missing or too many (max_split_mb, use_expandable_segments).
    words = set(cleaned.split("_")) - {"mb", "size", "use", "pytorch", "cuda", "alloc"}
    by_words = [name for name in known if words and words <= set(name.split("_"))]
    if len(by_words) == 1:
        return known[by_words[0]]
    matches = difflib.get_close_matches(cleaned, known, n=1, cutoff=0.6)
    return known[matches[0]] if matches else None
