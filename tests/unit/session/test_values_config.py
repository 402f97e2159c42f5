"""Reading PEAKMEM_ASSUME."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

import peakmem.session


@pytest.fixture(scope="module")
def config() -> ModuleType:
    # The package itself needs torch; this module does not.
    path = Path(peakmem.session.__file__).parent / "inside" / "values" / "config.py"
    spec = importlib.util.spec_from_file_location("values_config", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["values_config"] = module
    spec.loader.exec_module(module)
    return module


def test_nothing_means_the_defaults(config: ModuleType) -> None:
    assert config.Assume.parse("") == config.Assume()
    assert config.Assume().bool is True and config.Assume().limit == 1 << 20


def test_each_field_can_be_set(config: ModuleType) -> None:
    found = config.Assume.parse("bool=false, nonzero=0.25,limit=16,number=1,nms=0.1,unique=0.2,off")
    assert found == config.Assume(bool=False, nonzero=0.25, limit=16, number=1.0, nms=0.1, unique=0.2, off=True)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("nonzer=1", "nonzer=1"),
        ("nonzero=2", "between 0 and 1"),
        ("nonzero", "not one of"),
        ("limit=many", "not a number"),
        ("bool=maybe", "not true or false"),
        ("limit=-1", "negative"),
    ],
)
def test_mistakes_are_named(config: ModuleType, text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        config.Assume.parse(text)
