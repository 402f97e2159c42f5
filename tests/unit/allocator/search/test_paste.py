"""Lines to paste."""

from __future__ import annotations

import os
import subprocess

import pytest

from peakmem.allocator.search.paste import pastes
from peakmem.allocator.settings import TorchVersion

LIST = "roundup_power2_divisions:[256:1,>:8],expandable_segments:True"


def test_a_shell_gets_the_value_whole() -> None:
    shell = pastes(LIST, TorchVersion.parse("2.14.1"))[0]
    done = subprocess.run(
        ["sh", "-c", f"{shell.text}\nprintf %s \"$PYTORCH_CUDA_ALLOC_CONF\""],
        capture_output=True, text=True, check=True, env={"PATH": os.environ["PATH"]},
    )  # fmt: skip
    assert done.stdout == LIST


def test_python_gets_the_value_whole() -> None:
    cell = next(paste for paste in pastes(LIST, TorchVersion.parse("2.6.0")) if "notebook" in paste.place)
    kept = dict(os.environ)
    try:
        exec(cell.text, {})
        assert os.environ["PYTORCH_CUDA_ALLOC_CONF"] == LIST
    finally:
        os.environ.clear()
        os.environ.update(kept)
    assert "above the first import of torch" in cell.place


@pytest.mark.parametrize("version", ["1.12.0", "2.6.0", "2.9.1", "2.14.1"])
def test_the_variable_is_one_that_the_version_reads(version: str) -> None:
    assert all("PYTORCH_CUDA_ALLOC_CONF" in paste.text for paste in pastes("a:1", TorchVersion.parse(version)))


def test_slurm_does_not_use_export_options_which_cut_at_commas() -> None:
    slurm = next(paste for paste in pastes(LIST, TorchVersion.parse("2.14.1")) if "Slurm" in paste.place)
    assert "--export" not in slurm.text
