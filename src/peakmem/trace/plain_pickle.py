"""Reads pickles of plain data (dict, list, tuple, str, int, float, bool, None) and nothing else.

Python's own `pickle.load` runs whatever a file names. This reader knows only the opcodes that make plain values, so a
file can't run anything; one that tries is refused with the name of what it wanted. It also keeps memory small: a memory
snapshot of 1 GB is a few million dicts, and holding these would take several times the size of the file. So each dict,
once it is complete, is offered to a callback, which may take its contents and leave a small value in its place.
"""

from __future__ import annotations

import re
import struct
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from peakmem.errors import PeakmemError

if TYPE_CHECKING:
    import mmap
    from collections.abc import Callable

    Buffer = bytes | mmap.mmap

_HINT_FOREIGN = "give a file that torch.cuda.memory._dump_snapshot() wrote"
_ITEM = rb"h.|j.{4}|K.|M.{2}|J.{4}|\x8a\x05.{5}|\x8a\x06.{6}|\x8a\x07.{7}|\x8a\x08.{8}"
# A whole dict, memoized or not, whose keys and values are memoized things and whole numbers: most events of a snapshot.
# Each item's first byte says how long it is, so there is one way only to read such a text.
_FLAT_DICT = re.compile(rb"\}(\x94?)\(((?:" + _ITEM + rb"){2,64})u", re.DOTALL)
_ITEMS = re.compile(_ITEM, re.DOTALL)
_RUNS = {0x68: re.compile(rb"(?:h[\x00-\xff]){2,}"), 0x6A: re.compile(rb"(?:j[\x00-\xff]{4}){2,}")}
_CALLS = {
    0x52: "REDUCE", 0x69: "INST", 0x6F: "OBJ", 0x81: "NEWOBJ", 0x92: "NEWOBJ_EX", 0x62: "BUILD", 0x82: "EXT1",
    0x83: "EXT2", 0x84: "EXT4", 0x50: "PERSID", 0x51: "BINPERSID", 0x97: "NEXT_BUFFER",
}  # fmt: skip


class PlainDict(dict[Any, Any]):
    """A dict of the pickle. `reference` is for the callback's use, -1 at first; `place` is its place in the memo."""

    __slots__ = ("place", "reference")

    def __init__(self) -> None:
        super().__init__()
        self.reference = -1
        self.place = -1


class PlainList(list[Any]):
    """A list of the pickle. `reference` is for the callback's use, -1 at first."""

    __slots__ = ("reference",)

    def __init__(self) -> None:
        super().__init__()
        self.reference = -1


class _Taken:
    """Stands in the memo for a dict that the callback took, and for places that were left out."""

    __slots__ = ()


_TAKEN = _Taken()


class PlainUnpickler:
    """Reads one pickle from a buffer.

    Args:
        data: the bytes; a memory map does.
        name: of the file, for messages.
        on_dict: called with each dict that is filled at once, as all picklers since protocol 1 do; what it returns
            takes the dict's place where it is used next (return the dict itself to leave it). Dicts that are filled one
            item at a time (protocol 0, or a single item) are left as they are.
    """

    def __init__(self, data: Buffer, *, name: str, on_dict: Callable[[PlainDict], Any]) -> None:
        self._data = data
        self._name = name
        self._on_dict = on_dict

    def load(self) -> Any:
        """The value.

        Raises:
            PeakmemError: the pickle is cut off, damaged, or holds more than plain data.
        """
        try:
            return self._load()
        except (LookupError, struct.error) as error:
            raise PeakmemError(f"{self._name} is cut off or damaged", hint="copy or dump it again") from error
        except (TypeError, ValueError, AttributeError, UnicodeDecodeError, OverflowError) as error:
            if isinstance(error, PeakmemError):
                raise
            raise PeakmemError(f"{self._name} is a damaged pickle: {error}", hint="copy or dump it again") from error

    def _refuse(self, wanted: str) -> NoReturn:
        raise PeakmemError(
            f"{self._name} is refused: it is not plain data, but a pickle that wants to use {wanted}",
            hint=f"it may be harmful; {_HINT_FOREIGN}",
        )

    def _line(self, at: int) -> tuple[bytes, int]:
        """The bytes up to the end of the line, and the position after it."""
        end = self._data.find(b"\n", at)
        if end < 0:
            raise IndexError
        return self._data[at:end], end + 1

    def _take(self, at: int, count: int) -> bytes:
        """Bytes of the file; fails if it ends before."""
        chunk = self._data[at : at + count]
        if len(chunk) != count:
            raise IndexError
        return chunk

    def _offer(self, item: PlainDict, memo: list[Any]) -> Any:
        """Give a complete dict to the callback; what it took is also forgotten by the memo."""
        result = self._on_dict(item)
        if result is not item and item.place >= 0:
            memo[item.place] = _TAKEN
        return result

    def _flat_dict(self, body: bytes, memo: list[Any], *, place: int) -> Any:
        """A dict from the items between its mark and its end."""
        values = []
        for item in _ITEMS.findall(body):
            op = item[0]
            if op == 0x68:
                values.append(memo[item[1]])
            elif op == 0x6A:
                values.append(memo[int.from_bytes(item[1:], "little")])
            elif op == 0x8A:
                values.append(int.from_bytes(item[2:], "little", signed=True))
            elif op == 0x4A:
                values.append(int.from_bytes(item[1:], "little", signed=True))
            else:
                values.append(int.from_bytes(item[1:], "little"))
        made = PlainDict()
        if place >= 0:
            made.place = place
            memo.append(made)
        dict.update(made, zip(values[::2], values[1::2], strict=True))
        return self._offer(made, memo)

    def _load(self) -> Any:
        # One loop, most frequent instructions first: a call for each of 10^8 instructions would triple the time.
        data = self._data
        stack: list[Any] = []
        marks: list[int] = []
        memo: list[Any] = []

        push = stack.append
        at = 0
        end = len(data)
        while True:
            op = data[at]
            at += 1
            if op == 0x7D:  # EMPTY_DICT
                flat = _FLAT_DICT.match(data, at - 1)
                if flat is None:
                    push(PlainDict())
                else:
                    at = flat.end()
                    push(self._flat_dict(flat[2], memo, place=len(memo) if flat[1] else -1))
            elif op == 0x6A or op == 0x68:  # LONG_BINGET, BINGET: long runs of them in stacks of frames
                width = 1 if op == 0x68 else 4
                if at + width < end and data[at + width] == op:
                    start, at = _RUNS[op].match(data, at - 1).span()  # type: ignore[union-attr]
                    stack.extend([memo[key] for key in _memo_keys(data[start:at], op)])
                else:
                    push(memo[int.from_bytes(self._take(at, width), "little")])
                    at += width
            elif op == 0x94:  # MEMOIZE
                top = stack[-1]
                if type(top) is PlainDict:
                    top.place = len(memo)
                memo.append(top)
            elif op == 0x8A:  # LONG1
                count = data[at]
                push(int.from_bytes(self._take(at + 1, count), "little", signed=True))
                at += 1 + count
            elif op == 0x4B:  # BININT1
                push(data[at])
                at += 1
            elif op == 0x4A:  # BININT
                push(int.from_bytes(self._take(at, 4), "little", signed=True))
                at += 4
            elif op == 0x4D:  # BININT2
                push(int.from_bytes(self._take(at, 2), "little"))
                at += 2
            elif op == 0x28:  # MARK
                marks.append(len(stack))
            elif op == 0x75:  # SETITEMS
                mark = marks.pop()
                target = stack[mark - 1]
                items = stack[mark:]
                del stack[mark:]
                if type(target) is not PlainDict or len(items) % 2:
                    raise TypeError("items for something that is no dict")
                dict.update(target, zip(items[::2], items[1::2], strict=True))
                stack[-1] = self._offer(target, memo)
            elif op == 0x5D:  # EMPTY_LIST
                push(PlainList())
            elif op == 0x65:  # APPENDS
                mark = marks.pop()
                target = stack[mark - 1]
                if type(target) is not PlainList:
                    raise TypeError("items for something that is no list")
                target.extend(stack[mark:])
                del stack[mark:]
            elif op == 0x8C:  # SHORT_BINUNICODE
                count = data[at]
                push(str(self._take(at + 1, count), "utf-8", "surrogatepass"))
                at += 1 + count
            elif op == 0x95:  # FRAME
                at += 8
                if at > end:
                    raise IndexError
            elif op == 0x61:  # APPEND
                value = stack.pop()
                if type(stack[-1]) is not PlainList:
                    raise TypeError("an item for something that is no list")
                stack[-1].append(value)
            elif op == 0x73:  # SETITEM
                value = stack.pop()
                key = stack.pop()
                if type(stack[-1]) is not PlainDict:
                    raise TypeError("an item for something that is no dict")
                stack[-1][key] = value
            elif op == 0x71:  # BINPUT
                _memoize(memo, data[at], stack[-1])
                at += 1
            elif op == 0x72:  # LONG_BINPUT
                _memoize(memo, int.from_bytes(self._take(at, 4), "little"), stack[-1])
                at += 4
            elif op == 0x4E:  # NONE
                push(None)
            elif op == 0x88 or op == 0x89:  # NEWTRUE, NEWFALSE
                push(op == 0x88)
            elif op == 0x47:  # BINFLOAT
                push(struct.unpack(">d", self._take(at, 8))[0])
                at += 8
            elif op == 0x85 or op == 0x86 or op == 0x87:  # TUPLE1, TUPLE2, TUPLE3
                count = op - 0x84
                if len(stack) < count:
                    raise IndexError
                stack[-count:] = [tuple(stack[-count:])]
            elif op == 0x29:  # EMPTY_TUPLE
                push(())
            elif op == 0x74 or op == 0x6C:  # TUPLE, LIST
                mark = marks.pop()
                items = stack[mark:]
                del stack[mark:]
                push(tuple(items) if op == 0x74 else _as_list(items))
            elif op == 0x64:  # DICT
                mark = marks.pop()
                items = stack[mark:]
                del stack[mark:]
                made = PlainDict()
                dict.update(made, zip(items[::2], items[1::2], strict=True))
                push(self._on_dict(made))
            elif op == 0x58 or op == 0x54 or op == 0x42:  # BINUNICODE, BINSTRING, BINBYTES
                count = int.from_bytes(self._take(at, 4), "little")
                push(_text(self._take(at + 4, count), op))
                at += 4 + count
            elif op == 0x8D or op == 0x8E:  # BINUNICODE8, BINBYTES8
                count = int.from_bytes(self._take(at, 8), "little")
                push(_text(self._take(at + 8, count), op))
                at += 8 + count
            elif op == 0x55 or op == 0x43:  # SHORT_BINSTRING, SHORT_BINBYTES
                count = data[at]
                push(_text(self._take(at + 1, count), op))
                at += 1 + count
            elif op == 0x8B:  # LONG4
                count = int.from_bytes(self._take(at, 4), "little", signed=True)
                if not 0 <= count <= 64:
                    raise ValueError("a number of absurd size")
                push(int.from_bytes(self._take(at + 4, count), "little", signed=True))
                at += 4 + count
            elif op == 0x80:  # PROTO
                if data[at] > 5:
                    raise ValueError(f"protocol {data[at]}")
                at += 1
            elif op == 0x2E:  # STOP
                if len(stack) != 1 or marks:
                    raise ValueError("it stops in the middle")
                return stack[0]
            elif op == 0x30:  # POP
                stack.pop()
            elif op == 0x32:  # DUP
                push(stack[-1])
            elif op == 0x31:  # POP_MARK
                del stack[marks.pop() :]
            elif op in _TEXT_OPS:
                line, at = self._line(at)
                _text_op(op, line, stack, memo)
            elif op == 0x63:  # GLOBAL
                module, at = self._line(at)
                thing, at = self._line(at)
                self._refuse(f"{module!r}.{thing!r}".replace("b'", "").replace("'", ""))
            elif op == 0x93:  # STACK_GLOBAL
                self._refuse(".".join(str(item) for item in stack[-2:]))
            elif op in _CALLS:
                self._refuse(f"the instruction {_CALLS[op]}")
            else:
                raise ValueError(f"unknown instruction {op:#04x} at byte {at - 1}")


def _memo_keys(run: bytes, op: int) -> list[int]:
    """The memo keys of a run of BINGET or LONG_BINGET instructions."""
    if op == 0x68:
        return list(run[1::2])
    planes = np.frombuffer(run, dtype="u1").reshape(-1, 5)[:, 1:]
    keys: list[int] = np.ascontiguousarray(planes).view("<u4").reshape(-1).tolist()
    return keys


def _memoize(memo: list[Any], place: int, value: Any) -> None:
    """Put a value into the memo. Picklers count up, from 0 or 1; a place far ahead is no pickler's work."""
    if place > len(memo) + 1:
        raise ValueError("a memo with holes")
    if isinstance(value, PlainDict):
        value.place = place
    if place > len(memo):
        memo.append(_TAKEN)
    if place == len(memo):
        memo.append(value)
    else:
        memo[place] = value


def _as_list(items: list[Any]) -> PlainList:
    made = PlainList()
    made.extend(items)
    return made


def _text(raw: bytes, op: int) -> str | bytes:
    """A string; bytes stay bytes. Strings of Python 2 are read as Latin-1."""
    if op in (0x42, 0x8E, 0x43):
        return bytes(raw)
    return raw.decode("latin-1") if op in (0x54, 0x55) else raw.decode("utf-8", "surrogatepass")


_TEXT_OPS = frozenset(b"ILFSVgp")


def _text_op(op: int, raw: bytes, stack: list[Any], memo: list[Any]) -> None:
    """The instructions of protocol 0, which are lines of text."""
    kind, line = chr(op), raw.decode("latin-1")
    if kind == "I":
        stack.append({"00": False, "01": True}[line] if line in ("00", "01") else int(line))
    elif kind == "L":
        stack.append(int(line.removesuffix("L")))
    elif kind == "F":
        stack.append(float(line))
    elif kind == "S":
        stack.append(line.strip()[1:-1])
    elif kind == "V":
        stack.append(raw.decode("raw-unicode-escape"))
    elif kind == "g":
        stack.append(memo[int(line)])
    else:
        _memoize(memo, int(line), stack[-1])
