from __future__ import annotations

import contextlib
import os
import pickle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from peakmem.errors import PeakmemError
from peakmem.trace.load import load_trace
from peakmem.trace.plain_pickle import PlainUnpickler

plain_data = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**200), 2**200)
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary(max_size=300),
    lambda inner: (
        st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner) | st.tuples(inner, inner, inner, inner)
    ),
    max_leaves=60,
)


def read(data: bytes) -> Any:
    return PlainUnpickler(data, name="x", on_dict=lambda item: item).load()


@given(plain_data, st.integers(0, 5))
@settings(deadline=None)
def test_plain_data_is_read_as_pickle_reads_it(value: Any, protocol: int) -> None:
    if protocol < 3 and has_bytes(value):
        return  # older protocols have no bytes: they call a function, which is refused
    assert read(pickle.dumps(value, protocol=protocol)) == value


def has_bytes(value: Any) -> bool:
    if isinstance(value, dict):
        return any(has_bytes(item) for item in value.values())
    return isinstance(value, bytes) or (isinstance(value, list | tuple) and any(has_bytes(item) for item in value))


@given(plain_data, st.data())
@settings(deadline=None)
def test_a_pickle_that_is_cut_off_is_an_error(value: Any, data: st.DataObject) -> None:
    whole = pickle.dumps(value, protocol=4)
    with pytest.raises(PeakmemError):
        read(whole[: data.draw(st.integers(0, len(whole) - 1))])


@given(st.binary(max_size=200))
@settings(deadline=None)
def test_arbitrary_bytes_give_a_value_or_our_error(data: bytes) -> None:
    with contextlib.suppress(PeakmemError):
        read(b"\x80\x04" + data)


def test_long_runs_of_references_are_resolved() -> None:
    for count in (100, 300, 70_000):
        shared = [{"n": index} for index in range(count)]
        assert read(pickle.dumps([shared, shared[::-1]], protocol=4)) == [shared, shared[::-1]]


class Harmful:
    def __init__(self, *call: Any) -> None:
        self.call = call

    def __reduce__(self) -> tuple[Any, ...]:
        return self.call[0], self.call[1:]


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4, 5])
def test_a_pickle_that_calls_something_is_refused_and_runs_nothing(tmp_path: Path, protocol: int) -> None:
    proof = tmp_path / "proof"
    path = tmp_path / "harmful.pickle"
    call = Harmful(os.system, f"touch {proof}")
    path.write_bytes(pickle.dumps({"segments": [call], "device_traces": []}, protocol=protocol))
    with pytest.raises(
        PeakmemError, match=r"refused: it is not plain data, but a pickle that wants to use \w+\.system"
    ) as error:
        load_trace(path)
    assert "harmful" in error.value.hint
    assert not proof.exists()


@pytest.mark.parametrize(
    "code",
    [
        b"\x80\x02}(X\x01\x00\x00\x00aK\x01ub.",  # BUILD on a dict
        b"\x80\x02\x82\x01.",  # EXT1
        b"(cos\nsystem\nX\x02\x00\x00\x00lso.",  # OBJ
        b"(X\x02\x00\x00\x00lsios\nsystem\n.",  # INST
        b"Psomething\n.",  # PERSID
        b"\x80\x04\x8c\x02os\x8c\x06system\x93.",  # STACK_GLOBAL
    ],
)
def test_every_other_way_to_run_something_is_refused(code: bytes) -> None:
    with pytest.raises(PeakmemError, match="refused"):
        read(code)


@pytest.mark.parametrize(
    "code",
    [
        b"\x80\x02h\x05.",
        b"\x80\x02]u.",
        b"\x80\x02K\x01a.",
        b"\x80\x09N.",
        b"\x80\x02NN.",
        b"\x80\x02r\xff\xff\xff\xff.",
    ],
)
def test_damaged_pickles_give_our_error(code: bytes) -> None:
    with pytest.raises(PeakmemError):
        read(code)
