"""The grammar since PyTorch 2.10: a tokenizer that checks no separator, read once for common and once for CUDA keys.

Facts from PyTorch 2.14.1, c10/core/AllocatorConfig.h and .cpp, c10/cuda/CUDAAllocatorConfig.h and .cpp, and from the
released allocator, asked string by string (tests/e2e/test_settings_differential.py).
"""

from __future__ import annotations

from dataclasses import replace

from peakmem.allocator.settings import numbers, options
from peakmem.allocator.settings.model import INTERVALS
from peakmem.allocator.settings.state import (
    LARGEST_SIZE,
    Parse,
    RefusedError,
    capped_size,
    divisions_table,
    is_power_of_two,
    why_unknown,
)
from peakmem.allocator.settings.tokens import Token, tokenize
from peakmem.units import MIB

_END_CONDITION = "i < config_.size()"
_END_TEXT = "Index out of bounds in ConfigTokenizer"
_BRACKET_TEXT = "Expected closing bracket ']' in ConfigTokenizer but reached end of config"


def parse_common(parse: Parse) -> None:
    """The common reader: resets four options, then reads the keys that every accelerator shares."""
    reader = _Reader(parse)
    large = parse.settings.large_segment_size
    parse.set(
        max_split_size=None,
        roundup_power2_divisions=(0,) * INTERVALS,
        garbage_collection_threshold=0.0,
        max_non_split_rounding=large,
    )
    reader.find_large_segment_size()
    parse.set(max_non_split_rounding=parse.settings.large_segment_size)
    reader.read("common", "Accelerator")


def parse_cuda(parse: Parse) -> None:
    """The CUDA reader: the keys that only CUDA and ROCm have."""
    reader = _Reader(parse)
    reader.read("cuda", "CUDA")


def backend_at_load(parse: Parse) -> str:
    """The backend that `import torch` chooses; it steps over everything else without reading it.

    Raises:
        RefusedError: the string ends too early, which ends the process.
    """
    reader = _Reader(parse)
    index = 0
    try:
        while index < len(reader.tokens):
            if reader.tokens[index].text == "backend":
                return "cudaMallocAsync" if reader.value_of(index).text == "cudaMallocAsync" else "native"
            index = reader.skip(index) + 2
    except RefusedError as error:
        raise RefusedError(replace(error.refusal, aborts=True)) from None
    return "native"


class _Reader:
    def __init__(self, parse: Parse) -> None:
        self.parse = parse
        self.tokens = tokenize(parse.text)

    def find_large_segment_size(self) -> None:
        """The limits of other sizes depend on it, so PyTorch looks for it first, at any place, even as a value."""
        if not self.parse.version.at_least("2.11"):
            return
        option = options.find("large_segment_size_mb", self.parse.version)
        assert option is not None
        index = 0
        while index < len(self.tokens):
            if self.tokens[index].text == option.key:
                self.value_of(index)
                self.value(option, index)
                index += 2
            index += 1

    def read(self, reader: str, name: str) -> None:
        index = 0
        while index < len(self.tokens):
            key = self.tokens[index]
            option = options.find(key.text, self.parse.version)
            if option is None:
                text = f"Unrecognized key '{key.text}' in {name} allocator config."
                raise self.parse.unknown_key(key, "ValueError", text)
            last = self.value(option, index) if option.reader == reader else self.skip(index)
            if option.reader == reader:
                value = "".join(token.text for token in self.tokens[index + 2 : last + 1])
                self.parse.name(key, option, value, self.tokens[last].end)
                self.check_separator(index + 1, ":")
            if last + 1 < len(self.tokens) and option.reader == reader:
                self.check_separator(last + 1, ",")
            index = last + 2

    def check_separator(self, index: int, separator: str) -> None:
        """PyTorch skips one token here without looking at it; a wrong one is worth telling."""
        token = self.tokens[index]
        if token.text != separator:
            self.parse.ignored.append((token.start, token.end))

    def value_of(self, key: int) -> Token:
        """The token two after a key."""
        for index in (key + 1, key + 2):
            if index >= len(self.tokens):
                raise self.ends(self.tokens[key])
        return self.tokens[key + 2]

    def ends(self, key: Token) -> RefusedError:
        end = len(self.parse.text)
        if options.find(key.text, self.parse.version) is None:
            # The key itself is what is wrong ("max_split_size_mb=64"), though PyTorch stumbles over what should follow.
            reason, suggestion = why_unknown(key.text, self.parse.version)
            return self.parse.refuse(
                "RuntimeError",
                _END_TEXT,
                key.start,
                key.end,
                reason,
                condition=_END_CONDITION,
                suggestion=suggestion,
            )
        return self.parse.refuse(
            "RuntimeError",
            _END_TEXT,
            end,
            end + 1,
            f"the string ends where a value of {key.text} is expected",
            condition=_END_CONDITION,
            suggestion=f"write {key.text}:VALUE",
        )

    def skip(self, key: int) -> int:
        """Step over a key of the other reader; gives the index of its last token."""
        token = self.value_of(key)
        if token.text != "[":
            return key + 2
        for index in range(key + 3, len(self.tokens)):
            if self.tokens[index].text == "]":
                return index
        raise self.no_bracket(token, _END_CONDITION)

    def no_bracket(self, opening: Token, condition: str) -> RefusedError:
        end = len(self.parse.text)
        return self.parse.refuse(
            "RuntimeError",
            _BRACKET_TEXT,
            opening.start,
            end,
            "the list is not closed",
            condition=condition,
            suggestion="end it with ']'",
        )

    def value(self, option: options.Option, key: int) -> int:
        """Read the value of a key; gives the index of its last token."""
        token = self.value_of(key)
        if option.kind == "divisions":
            return self.divisions(option, key)
        if option.kind == "flag":
            self.flag(option, token, key + 2)
        elif option.kind == "fraction":
            self.fraction(option, token)
        elif option.kind == "size":
            self.size(option, token)
        elif option.kind == "threads":
            self.threads(option, token)
        else:
            self.backend(option, token)
        return key + 2

    def flag(self, option: options.Option, token: Token, index: int) -> None:
        if token.text not in ("True", "False"):
            text = f"Expected 'True' or 'False' at index {index} in ConfigTokenizer but got '{token.text}'"
            meant = {"true": "True", "1": "True", "yes": "True", "on": "True"}.get(token.text.lower(), "False")
            if token.text.lower() not in ("true", "1", "yes", "on", "false", "0", "no", "off"):
                meant = "True or False"
            raise self.parse.refuse(
                "ValueError",
                text,
                token.start,
                token.end,
                f"{option.key} takes {option.range}, not {token.text!r}",
                suggestion=f"write {option.key}:{meant}",
            )
        self.parse.set(**{option.field: token.text == "True"})

    def fraction(self, option: options.Option, token: Token) -> None:
        value = self.parse.number(numbers.stod, token, option.key)
        closed = option.key == "per_process_memory_fraction"
        if not (0 <= value <= 1 if closed else 0 < value < 1):
            raise self.parse.bad_value(option, token)
        self.parse.set(**{option.field: float(value)})

    def size(self, option: options.Option, token: Token) -> None:
        value = int(self.parse.number(numbers.stoull, token, option.key))
        if option.key in ("max_split_size_mb", "max_non_split_rounding_mb"):
            minimum = self.parse.settings.large_segment_size // MIB
            if value < minimum:
                raise self.parse.bad_value(option, token, minimum=minimum)
            capped = capped_size(value)
            if capped is None and option.field == "max_non_split_rounding":
                capped = LARGEST_SIZE * MIB
            self.parse.set(**{option.field: capped})
        elif option.key == "large_segment_size_mb":
            if value <= 10:
                raise self.parse.bad_value(option, token)
            self.parse.set(large_segment_size=min(value, LARGEST_SIZE) * MIB)
        elif option.key == "pinned_reserve_segment_size_mb":
            if value == 0:
                raise self.parse.bad_value(option, token)
            self.parse.set(pinned_reserve_segment_size=value * MIB)
        else:
            self.parse.set(**{option.field: capped_size(value)})

    def threads(self, option: options.Option, token: Token) -> None:
        value = int(self.parse.number(numbers.stoull, token, option.key))
        if not is_power_of_two(value):
            raise self.parse.bad_value(option, token, when="power", value=value)
        if value > 128:
            raise self.parse.bad_value(option, token, when="high", value=value)
        self.parse.set(pinned_num_register_threads=value)

    def backend(self, option: options.Option, token: Token) -> None:
        if token.text not in ("native", "cudaMallocAsync"):
            raise self.parse.bad_value(option, token)
        loaded = self.parse.loaded_backend
        if loaded is not None and token.text != loaded:
            raise self.parse.refuse(
                "RuntimeError",
                "Allocator backend parsed at runtime != allocator backend parsed at load time, "
                f"{token.text} != {loaded}",
                token.start,
                token.end,
                f"the backend is fixed when torch is imported; this process has {loaded}",
                condition="tokenizer[i] == get()->name()",
                suggestion="set it in the environment before torch is imported",
            )
        self.parse.set(backend=token.text)

    def divisions(self, option: options.Option, key: int) -> int:
        token = self.tokens[key + 2]
        if token.text != "[":
            value = int(self.parse.number(numbers.stoull, token, option.key))
            if not is_power_of_two(value):
                raise self.parse.bad_value(option, token, when="single")
            self.parse.set(roundup_power2_divisions=(value,) * INTERVALS)
            return key + 2
        before = self.parse.settings.roundup_power2_divisions
        pairs: list[tuple[str, int]] = []
        index = key + 3
        while index < len(self.tokens) and self.tokens[index].text != "]":
            boundary = self.tokens[index]
            if index + 2 >= len(self.tokens):
                raise self.ends(self.tokens[key])
            share = self.tokens[index + 2]
            value = int(self.parse.number(numbers.stoull, share, option.key))
            if value != 0 and not is_power_of_two(value):
                raise self.parse.bad_value(option, share, when="list")
            if boundary.text != ">" and not is_power_of_two(
                int(self.parse.number(numbers.stoull, boundary, option.key))
            ):
                raise self.parse.bad_value(option, boundary, when="interval")
            pairs.append((boundary.text, value))
            # Each pair is in force as soon as it is read, even if a later one is refused.
            self.parse.set(roundup_power2_divisions=divisions_table(before, pairs, rest_after_last=True))
            self.check_separator(index + 1, ":")
            index += 3
            if index >= len(self.tokens):
                raise self.ends(self.tokens[key])
            if self.tokens[index].text != "]":
                self.check_separator(index, ",")
                index += 1
        if index >= len(self.tokens):
            raise self.no_bracket(token, "i < tokenizer.size()")
        return index
