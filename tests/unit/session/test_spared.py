"""The sizes of unused libraries are kept once they are known."""

import pytest

from peakmem.session.spared import known_exit_sizes, known_late_sizes, remember_sizes


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "peakmem" / "compiler-sizes.json"


def recording(key, size):
    return {"host": {"spared": {"late": size, "late_with": key}}}


def test_what_was_found_is_known_from_then_on(cache):
    assert known_late_sizes() == {}
    remember_sizes(recording("2.14 3.11 ", 100))
    remember_sizes(recording("2.14 3.11 timm", 90))
    remember_sizes(recording("2.14 3.11 ", 5))  # as it was known then
    assert known_late_sizes() == {"2.14 3.11 ": 100, "2.14 3.11 timm": 90}


@pytest.mark.parametrize("empty", [{}, {"host": None}, {"host": {}}, recording("", 0)])
def test_a_run_that_found_nothing_leaves_nothing(cache, empty):
    remember_sizes(empty)
    assert not cache.exists()


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"a": "b"}', '{"a": -5}', '{"a": true}', '{"a": 99999999999999999999}']
)
def test_a_file_that_was_damaged_is_as_good_as_none(cache, text):
    cache.parent.mkdir()
    cache.write_text(text)
    assert known_late_sizes() == {}


def test_a_run_on_the_cpu_tells_what_the_compiler_took(cache):
    remember_sizes({"late": {"with": "2.14 3.11 ", "size": 100, "left_out": 0}})
    remember_sizes({"late": {"with": "", "size": 0, "left_out": 0}})
    assert known_late_sizes() == {"2.14 3.11 ": 100}


def test_what_unloading_touched_is_known_once_it_was_seen(cache):
    remember_sizes({"exit_with": "2.14 3.11 ", "left": {"touched": None}})
    assert known_exit_sizes() == {}
    remember_sizes({"exit_with": "2.14 3.11 ", "left": {"touched": 0}})
    remember_sizes({"exit_with": "2.14 3.11 torchvision", "left": None})
    assert known_exit_sizes() == {"2.14 3.11 ": 0}
    assert known_late_sizes() == {}
