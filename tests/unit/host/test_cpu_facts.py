"""On which machines and builds `--device cpu` works, and what is said where it does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from peakmem.errors import PeakmemError
from peakmem.host import library
from peakmem.host.library import environment, read_cpu_facts

FOUND: dict[str, object] = {
    "python": "3.12.3",
    "system": "Linux",
    "machine": "x86_64",
    "libc": ["glibc", "2.36"],
    "torch": {"folder": "/site/torch", "version": "2.13.0+cpu", "libraries": ["libtorch_cpu.so", "libgomp.so.1"]},
}


@pytest.fixture(autouse=True)
def _gomp(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "_calls_gomp", lambda path: True)
    monkeypatch.delenv("LD_PRELOAD", raising=False)


def test_a_cpu_build_will_do() -> None:
    facts = read_cpu_facts(FOUND, python=Path("/usr/bin/python"))
    assert (facts.version, facts.libc, facts.folder) == ("2.13.0+cpu", "glibc 2.36", Path("/site/torch"))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"system": "Darwin"}, "this is macOS"),
        ({"machine": "ppc64le"}, "this is ppc64le"),
        ({"libc": ["", ""]}, "musl"),
        ({"torch": None}, "has no torch"),
    ],
)
def test_what_can_not_be_forecast_is_said(change: dict[str, object], said: str) -> None:
    with pytest.raises(PeakmemError, match=said):
        read_cpu_facts({**FOUND, **change}, python=Path("/usr/bin/python"))


def test_who_has_neither_framework_hears_of_both() -> None:
    with pytest.raises(PeakmemError) as caught:
        read_cpu_facts({**FOUND, "torch": None}, python=Path("/usr/bin/python"))
    assert (
        caught.value.hint == "--device cpu works with PyTorch and TensorFlow: pip install torch, into /usr/bin/python"
    )


def test_openmp_that_is_linked_in_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "_calls_gomp", lambda path: False)
    with pytest.raises(PeakmemError, match="shared libgomp"):
        read_cpu_facts(FOUND, python=Path("/usr/bin/python"))


def test_another_malloc_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_PRELOAD", "/usr/lib/libjemalloc.so.2")
    with pytest.raises(PeakmemError, match="jemalloc"):
        read_cpu_facts(FOUND, python=Path("/usr/bin/python"))


def test_the_script_finds_no_card_and_other_preloads_stay() -> None:
    variables = environment(Path("/cache/lib.so"), base={"LD_PRELOAD": "/a.so", "X": "1"})
    assert variables["LD_PRELOAD"] == "/cache/lib.so /a.so"
    assert variables["CUDA_VISIBLE_DEVICES"] == ""
    assert variables["X"] == "1"


def test_a_path_with_blanks_is_found_by_its_name() -> None:
    variables = environment(Path("/my cache/lib.so"), base={})
    assert variables["LD_PRELOAD"] == "lib.so"
    assert variables["LD_LIBRARY_PATH"] == "/my cache"
