from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from peakmem.errors import PeakmemError
from peakmem.vgpu.probe import find_interpreter, probe, read_facts

PYTHON = Path("/opt/python")


def found(**changes: Any) -> dict[str, Any]:
    torch = {
        "folder": "/site/torch",
        "version": "2.14.1+cu130",
        "cuda": "13.0",
        "hip": None,
        "libraries": ["libc10.so", "libtorch_cuda.so"],
    }
    whole = {"python": "3.12.1", "system": "Linux", "machine": "x86_64", "torch": torch, "cudnn": "9.24.0.43"}
    torch_changes = changes.pop("torch_changes", {})
    return whole | {"torch": torch | torch_changes} | changes


def test_a_cuda_build_on_linux_is_taken() -> None:
    facts = read_facts(found(), python=PYTHON)
    assert (facts.version, facts.cuda, facts.cuda_number, facts.cudnn) == ("2.14.1+cu130", "13.0", 13000, "9.24.0.43")
    assert facts.folder == Path("/site/torch")


@pytest.mark.parametrize(("cuda", "number"), [("12.4", 12040), ("12.8", 12080), ("13", 13000), ("11.8.1", 11080)])
def test_the_cuda_version_as_a_number(cuda: str, number: int) -> None:
    assert read_facts(found(torch_changes={"cuda": cuda}), python=PYTHON).cuda_number == number


@pytest.mark.parametrize(
    ("changes", "message", "hint"),
    [
        ({"torch": None}, "/opt/python has no torch", "pip install torch"),
        (
            {"torch_changes": {"version": "2.14.1+cpu", "cuda": None}},
            "torch 2.14.1+cpu of /opt/python is a CPU-only build",
            "in place of",
        ),
        ({"torch_changes": {"libraries": ["libc10.so"]}}, "CPU-only build", "CUDA build of PyTorch"),
        ({"torch_changes": {"cuda": None, "hip": "6.4"}}, "is a ROCm build", "environment of its own"),
        ({"system": "Darwin"}, "works on Linux only, and this is macOS", "Linux container"),
        ({"system": "Windows"}, "works on Linux only, and this is Windows", "WSL"),
        ({"machine": "riscv64"}, "and this is riscv64", "one of these"),
    ],
)
def test_anything_else_is_refused_with_what_to_do(changes: dict[str, Any], message: str, hint: str) -> None:
    with pytest.raises(PeakmemError) as error:
        read_facts(found(**changes), python=PYTHON)
    assert message in error.value.message
    assert hint in error.value.hint


def test_an_interpreter_is_looked_at_without_importing_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "torch"
    (package / "lib").mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    (package / "version.py").write_text("__version__ = '2.6.0+cu124'\ncuda = '12.4'\nhip = None\n")
    (package / "lib" / "libtorch_cuda.so").touch()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    facts = probe(sys.executable)
    assert (facts.version, facts.cuda_number, facts.folder) == ("2.6.0+cu124", 12040, package)
    assert facts.python_version.count(".") == 2


def test_an_interpreter_that_is_none_is_named(tmp_path: Path) -> None:
    with pytest.raises(PeakmemError, match="no interpreter 'no-such-python' was found"):
        probe("no-such-python")
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\necho broken >&2\nexit 3\n")
    program.chmod(0o755)
    with pytest.raises(PeakmemError, match="is no working Python interpreter: broken"):
        probe(program)


def test_the_active_environment_comes_before_our_own_interpreter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CONDA_PREFIX", raising=False)
    monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path))
    assert find_interpreter() == Path(sys.executable)  # the environment has no interpreter
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").touch()
    assert find_interpreter() == tmp_path / "bin" / "python"
