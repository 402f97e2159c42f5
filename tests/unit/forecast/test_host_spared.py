"""What a run of peakmem's own script leaves out is in the host's peak where a script would have had it."""

import pytest

from peakmem.forecast.host_side import _spared

MIB = 2**20


def parts(*, late=0, beside="", initial=0, built=0, resident=500):
    facts = {
        "at_cuda": {"anonymous": built * MIB, "peak": 9999 * MIB},
        "spared": {
            "late": late * MIB,
            "late_with": f"2.14.1 3.11 {beside}",
            "initial_values": initial * MIB,
        },
    }
    return {part.name: part.bytes // MIB for part in _spared(facts, resident=resident * MIB) if part.bytes}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, {}),
        ({"late": 150}, {"unused libraries": 150}),
        # Built with 480 resident: 480 + 100 is 80 above the peak that was seen, but the compiler comes later, with 150.
        ({"late": 150, "initial": 100, "built": 480}, {"unused libraries": 150}),
        ({"late": 150, "initial": 300, "built": 480}, {"initial values": 280}),
        # torchvision imports the compiler before the model is built: both are there at once.
        (
            {"late": 150, "initial": 100, "built": 480, "beside": "torchvision"},
            {"unused libraries": 150, "initial values": 80},
        ),
        ({"late": 150, "initial": 10, "built": 480, "beside": "timm,torchvision"}, {"unused libraries": 150}),
    ],
)  # fmt: skip
def test_what_was_left_out(given, expected):
    assert parts(**given) == expected


def test_a_recording_from_before_knows_of_nothing():
    assert [part.bytes for part in _spared({"at_cuda": None}, resident=MIB)] == [0, 0]
