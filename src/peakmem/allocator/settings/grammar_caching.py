"""The grammar of PyTorch 2.0 to 2.9: one reader, separators checked, every fault a RuntimeError.

Facts from PyTorch 2.1 and 2.8, c10/cuda/CUDAAllocatorConfig.cpp, the headers of 2.2 to 2.9, the texts in the
binaries of 2.0.0 to 2.9.1, and the 2.6.0 release, asked string by string.
"""

from __future__ import annotations

import re

from peakmem.allocator.settings import numbers, options
from peakmem.allocator.settings.model import INTERVALS
from peakmem.allocator.settings.state import (
    LARGEST_SIZE,
    Parse,
    RefusedError,
    capped_size,
    divisions_table,
    is_power_of_two,
)
from peakmem.allocator.settings.tokens import Token, tokenize
from peakmem.units import MIB

_NATIVE_IGNORED = (
    "backend:cudaMallocAsync ignores max_split_size_mb,roundup_power2_divisions, and garbage_collect_threshold."
)
_MISSING = {"backend": "Error parsing backend value"}


def parse_all(parse: Parse) -> None:
    """Reset three options, then read all keys."""
    parse.set(max_split_size=None, roundup_power2_divisions=(0,) * INTERVALS, garbage_collection_threshold=0.0)
    _Reader(parse).read()
    names = {named.option for named in parse.named}
    if parse.settings.backend == "cudaMallocAsync" and "backend" in names and len(names) > 1:
        parse.warnings.append(_NATIVE_IGNORED)


def backend_at_load(text: str) -> str:
    """The backend that `import torch` chooses, with a simpler parser of its own that knows nothing of lists."""
    for option in re.split(r"[\s,]+", text):
        pieces = re.split(":+", option)
        if len(pieces) >= 2 and pieces[0] == "backend" and pieces[1] in ("native", "cudaMallocAsync"):
            return pieces[1]
    return "native"


class _Reader:
    def __init__(self, parse: Parse) -> None:
        self.parse = parse
        self.tokens = tokenize(parse.text, dropped=frozenset(" "))

    def read(self) -> None:
        index = 0
        while index < len(self.tokens):
            key = self.tokens[index]
            option = options.find(key.text, self.parse.version)
            if option is None:
                text = f"Unrecognized CachingAllocator option: {key.text}"
                raise self.parse.unknown_key(key, "RuntimeError", text)
            last = self.value(option, index)
            value = "".join(token.text for token in self.tokens[index + 2 : last + 1])
            self.parse.name(key, option, value, self.tokens[last].end)
            if last + 1 < len(self.tokens):
                self.expect(last + 1, ",")
            index = last + 2

    def expect(self, index: int, separator: str) -> None:
        if index < len(self.tokens) and self.tokens[index].text == separator:
            return
        end = len(self.parse.text)
        start, stop = (self.tokens[index].start, self.tokens[index].end) if index < len(self.tokens) else (end, end + 1)
        found = repr(self.tokens[index].text) if index < len(self.tokens) else "the end"
        raise self.parse.refuse(
            "RuntimeError",
            f"Error parsing CachingAllocator settings, expected {separator}",
            start,
            stop,
            f"{separator!r} is expected here, not {found}",
            suggestion="write key:value pairs with ',' between them",
        )

    def value(self, option: options.Option, key: int) -> int:
        """Read the value of a key; gives the index of its last token."""
        self.expect(key + 1, ":")
        if key + 2 >= len(self.tokens):
            raise self.missing(option, self.tokens[key])
        token = self.tokens[key + 2]
        if option.kind == "divisions":
            return self.divisions(option, key)
        if option.kind == "flag":
            if token.text not in ("True", "False"):
                raise self.parse.bad_value(option, token)
            self.parse.set(**{option.field: token.text == "True"})
        elif option.kind == "fraction":
            value = self.parse.number(numbers.stod, token, option.key)
            if not value > 0:
                raise self.parse.bad_value(option, token, when="low")
            if not value < 1:
                raise self.parse.bad_value(option, token, when="high")
            self.parse.set(**{option.field: float(value)})
        elif option.kind == "size":
            self.size(option, token)
        elif option.kind == "threads":
            threads = int(self.parse.number(numbers.stoi, token, option.key))
            if not is_power_of_two(threads):
                raise self.parse.bad_value(option, token, when="power")
            if threads > 128:
                raise self.parse.bad_value(option, token, when="high")
            self.parse.set(pinned_num_register_threads=threads)
        else:
            self.backend(option, token)
        return key + 2

    def missing(self, option: options.Option, key: Token) -> RefusedError:
        end = len(self.parse.text)
        if option.kind == "flag" and not option.key.startswith("pinned_"):
            text = option.error(self.parse.version).text
        else:
            text = _MISSING.get(option.key, f"Error, expecting {option.key} value")
        return self.parse.refuse(
            "RuntimeError",
            text,
            end,
            end + 1,
            f"the string ends where a value of {option.key} is expected",
            suggestion=f"write {option.key}:VALUE",
        )

    def size(self, option: options.Option, token: Token) -> None:
        value = int(self.parse.number(numbers.stoi, token, option.key))
        if option.key in ("max_split_size_mb", "max_non_split_rounding_mb"):
            if value <= 20:
                raise self.parse.bad_value(option, token)
            capped = capped_size(value)
            if capped is None and option.field == "max_non_split_rounding":
                capped = LARGEST_SIZE * MIB
            self.parse.set(**{option.field: capped})
        else:
            self.parse.set(**{option.field: value * MIB})

    def backend(self, option: options.Option, token: Token) -> None:
        if token.text not in ("native", "cudaMallocAsync"):
            raise self.parse.bad_value(option, token)
        loaded = self.parse.loaded_backend
        if loaded is not None and token.text != loaded:
            raise self.parse.refuse(
                "RuntimeError",
                "Allocator backend parsed at runtime != allocator backend parsed at load time",
                token.start,
                token.end,
                f"the backend is fixed when torch is imported; this process has {loaded}",
                condition="config[i] == get()->name()",
                suggestion="set it in the environment before torch is imported",
            )
        self.parse.set(backend=token.text)

    def divisions(self, option: options.Option, key: int) -> int:
        token = self.tokens[key + 2]
        if token.text != "[":
            value = int(self.parse.number(numbers.stoi, token, option.key))
            if not is_power_of_two(value):
                raise self.parse.bad_value(option, token, when="single")
            self.parse.set(roundup_power2_divisions=(value,) * INTERVALS)
            return key + 2
        before = self.parse.settings.roundup_power2_divisions
        pairs: list[tuple[str, int]] = []
        index = key + 3
        zero_allowed = self.parse.version.at_least("2.4")
        while index < len(self.tokens) and self.tokens[index].text != "]":
            boundary = self.tokens[index]
            self.expect(index + 1, ":")
            if index + 2 >= len(self.tokens):
                end = len(self.parse.text)
                text = "Error parsing roundup_power2_divisions value"
                raise self.parse.refuse("RuntimeError", text, end, end + 1, "the list ends where a number is expected")
            share = self.tokens[index + 2]
            value = int(self.parse.number(numbers.stoi, share, option.key))
            if not is_power_of_two(value) and not (value == 0 and zero_allowed):
                raise self.parse.bad_value(option, share, when="list")
            if boundary.text != ">" and not is_power_of_two(
                int(self.parse.number(numbers.stoul, boundary, option.key))
            ):
                raise self.parse.bad_value(option, boundary, when="interval")
            pairs.append((boundary.text, value))
            self.parse.set(roundup_power2_divisions=divisions_table(before, pairs, rest_after_last=False))
            index += 3
            if index >= len(self.tokens):
                raise self.beyond_the_end(token)
            if self.tokens[index].text != "]":
                self.expect(index, ",")
                index += 1
        # A list that ends right after '[' or ',' is taken as closed.
        return min(index, len(self.tokens) - 1)

    def beyond_the_end(self, opening: Token) -> RefusedError:
        return self.parse.refuse(
            "",
            "",
            opening.start,
            len(self.parse.text),
            "the list is not closed; this version reads beyond the end of its memory there and usually crashes",
            suggestion="end it with ']'",
        )
