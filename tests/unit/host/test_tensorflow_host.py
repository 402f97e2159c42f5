"""On which TensorFlow `--device cpu` works, what is said where it does not, and what the script is started with."""

from __future__ import annotations

from pathlib import Path

import pytest

from peakmem.errors import PeakmemError
from peakmem.host import tensorflow
from peakmem.host.tensorflow import MOST_BYTES, environment_of_tensorflow, exports_allocators, read_tensorflow_cpu

PYTHON = Path("/usr/bin/python")
FOUND: dict[str, object] = {
    "python": "3.12.3",
    "system": "Linux",
    "machine": "x86_64",
    "libc": ["glibc", "2.36"],
    "tensorflow": "/site/tensorflow",
    "version": "2.21.0",
    "build": {"is_cuda_build": "False"},
}


@pytest.fixture(autouse=True)
def _exported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensorflow, "exports_allocators", lambda path: True)


def test_a_cpu_build_will_do() -> None:
    facts = read_tensorflow_cpu(FOUND, python=PYTHON)
    assert (facts.version, facts.libc, facts.folder) == ("2.21.0", "glibc 2.36", Path("/site/tensorflow"))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"tensorflow": None}, "has no tensorflow"),
        ({"system": "Darwin"}, "this is macOS"),
        ({"machine": "ppc64le"}, "this is ppc64le"),
    ],
)
def test_what_can_not_be_forecast_is_said(change: dict[str, object], said: str) -> None:
    with pytest.raises(PeakmemError, match=said):
        read_tensorflow_cpu({**FOUND, **change}, python=PYTHON)


def test_a_build_that_keeps_its_allocators_to_itself_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensorflow, "exports_allocators", exports_allocators)
    with pytest.raises(PeakmemError, match="can't be followed"):
        read_tensorflow_cpu(FOUND, python=PYTHON)


def test_the_allocator_is_not_bound_to_this_machine_unless_somebody_said_so() -> None:
    library = Path("/cache/lib.so")
    variables = environment_of_tensorflow(library, base={"LD_PRELOAD": "/other.so"})
    assert int(variables[MOST_BYTES]) == 2**46
    assert variables["LD_PRELOAD"] == "/cache/lib.so /other.so"
    assert environment_of_tensorflow(library, base={MOST_BYTES: "5"})[MOST_BYTES] == "5"
