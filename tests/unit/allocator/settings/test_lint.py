"""The linter: set in time, spelt right, worth setting; in scripts and in notebooks."""

from __future__ import annotations

import json
from pathlib import Path
from textwrap import dedent

import pytest

from peakmem.allocator.settings import TorchVersion
from peakmem.allocator.settings.lint import Level, Remark, lint_file, lint_source
from peakmem.errors import PeakmemError

CONF = '"expandable_segments:True"'


def lint(source: str, version: str = "2.14.1") -> list[Remark]:
    return lint_source(dedent(source), version=TorchVersion.parse(version))


def test_set_before_anything_is_right() -> None:
    assert lint(f'import os\nos.environ["PYTORCH_CUDA_ALLOC_CONF"] = {CONF}\nimport torch\ntorch.zeros(1).cuda()') == []


def test_set_after_the_first_use_of_cuda_is_too_late() -> None:
    # Public report: axolotl-ai-cloud/axolotl pull request 2183.
    (remark,) = lint(
        """
        import os, torch
        model = torch.nn.Linear(1, 1).to("cuda")
        os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True,roundup_power2_divisions:16"
        """
    )
    assert remark.level is Level.ERROR
    assert remark.line == 4
    assert "Too late: CUDA is used before, on line 3" in remark.text
    assert "peakmem exec" in remark.suggestion


@pytest.mark.parametrize(
    "use",
    [
        'x = torch.zeros(1, device="cuda")',
        'x = torch.zeros(1, device="cuda:1")',
        'x = torch.zeros(1, device=torch.device("cuda"))',
        "x = y.cuda()",
        'x = y.to("cuda")',
        "torch.cuda.init()",
        "torch.cuda.empty_cache()",
        "torch.cuda.set_device(0)",
        "free, total = torch.cuda.mem_get_info()",
    ],
)
def test_uses_of_cuda(use: str) -> None:
    (remark,) = lint(f'import os, torch\n{use}\nos.environ["PYTORCH_CUDA_ALLOC_CONF"] = {CONF}')
    assert remark.level is Level.ERROR


@pytest.mark.parametrize(
    "harmless",
    [
        "torch.cuda.is_available()",
        "torch.cuda.device_count()",
        "torch.cuda.manual_seed_all(1)",
        'device = torch.device("cuda")',
        "x = torch.zeros(1)",
    ],
)
def test_what_does_not_read_the_settings(harmless: str) -> None:
    (remark,) = lint(f'import os, torch\n{harmless}\nos.environ["PYTORCH_CUDA_ALLOC_CONF"] = {CONF}')
    assert remark.level is Level.WARNING
    assert "set after torch is imported, on line 1" in remark.text


def test_the_backend_must_be_set_before_torch_is_imported() -> None:
    source = 'import os, torch\nos.environ["PYTORCH_CUDA_ALLOC_CONF"] = "backend:cudaMallocAsync"'
    (remark,) = lint(source)
    assert remark.level is Level.ERROR
    assert "Too late for backend" in remark.text


def test_functions_are_followed_where_they_are_called() -> None:
    source = """
        import os
        import torch

        def configure():
            os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"

        def main():
            x = torch.zeros(1, device="cuda")
            configure()

        if __name__ == "__main__":
            main()
        """
    (late,) = lint(source)
    assert late.level is Level.ERROR
    early = lint(source.replace('    x = torch.zeros(1, device="cuda")\n            configure()', "    configure()"))
    assert [remark.level for remark in early] == [Level.WARNING]


@pytest.mark.parametrize(
    "statement",
    [
        'os.environ["PYTORCH_CUDA_ALLOC_CONF"] = VALUE',
        'os.environ.setdefault("PYTORCH_CUDA_ALLOC_CONF", VALUE)',
        'os.environ.update({"PYTORCH_CUDA_ALLOC_CONF": VALUE})',
        "os.environ.update(PYTORCH_CUDA_ALLOC_CONF=VALUE)",
        'os.putenv("PYTORCH_CUDA_ALLOC_CONF", VALUE)',
        'environ["PYTORCH_CUDA_ALLOC_CONF"] = VALUE',
    ],
)
def test_every_way_to_set_it_is_seen_and_its_value_judged(statement: str) -> None:
    (remark,) = lint(f'import os\nfrom os import environ\nVALUE = "max_split_mb:" + "64"\n{statement}\nimport torch')
    assert remark.level is Level.ERROR
    assert "refuses 'max_split_mb:64'" in remark.text
    assert "did you mean max_split_size_mb?" in remark.suggestion


def test_a_value_that_does_nothing_is_a_warning() -> None:
    (remark,) = lint('import os\nos.environ["PYTORCH_CUDA_ALLOC_CONF"] = "garbage_collection_threshold:0.8"')
    assert remark.level is Level.WARNING
    assert "memory fraction below 1" in remark.text


@pytest.mark.parametrize("value", ["0", "", "False"])
def test_caching_is_turned_off_by_any_value(value: str) -> None:
    (remark,) = lint(f'import os\nos.environ["PYTORCH_NO_CUDA_MEMORY_CACHING"] = "{value}"')
    assert remark.level is Level.ERROR
    assert "any value does" in remark.text
    assert lint('import os\nos.environ["PYTORCH_NO_CUDA_MEMORY_CACHING"] = "1"') == []


def test_a_misspelt_variable() -> None:
    (remark,) = lint('import os\nos.environ["PYTORCH_CUDA_ALLOCATOR_CONF"] = "x:1"')
    assert remark.suggestion == "did you mean PYTORCH_CUDA_ALLOC_CONF?"
    assert lint('import os\nos.environ["CUDA_VISIBLE_DEVICES"] = "0"') == []


def test_a_variable_that_the_version_does_not_read() -> None:
    source = f'import os\nos.environ["PYTORCH_ALLOC_CONF"] = {CONF}\nimport torch'
    assert lint(source) == []
    (remark,) = lint(source, "2.9")
    assert remark.level is Level.ERROR
    assert "does not read PYTORCH_ALLOC_CONF" in remark.text


def test_a_call_at_run_time_resets_other_options() -> None:
    remarks = lint('import torch\ntorch.cuda.memory._set_allocator_settings("max_split_mb:64")')
    assert [remark.level for remark in remarks] == [Level.NOTE, Level.ERROR]
    assert "resets max_split_size_mb" in remarks[0].text


def test_an_export_in_a_shell_of_its_own() -> None:
    (remark,) = lint('import os\nos.system("export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True")')
    assert remark.level is Level.ERROR
    assert "never sees it" in remark.text


def test_place_and_syntax_error() -> None:
    with pytest.raises(PeakmemError, match="line 2"):
        lint("x = 1\ny = (")


def notebook(*cells: str) -> str:
    return json.dumps(
        {
            "cells": [{"cell_type": "markdown", "source": ["# title"]}]
            + [{"cell_type": "code", "source": cell.splitlines(keepends=True)} for cell in cells],
            "nbformat": 4,
        }
    )


def lint_notebook(folder: Path, *cells: str) -> list[Remark]:
    path = folder / "n.ipynb"
    path.write_text(notebook(*cells))
    return lint_file(path)


def test_notebooks(tmp_path: Path) -> None:
    assert lint_notebook(tmp_path, "%env PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True", "import torch") == []
    (exported,) = lint_notebook(tmp_path, "!export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True")
    assert exported.cell == 2
    assert "%env PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True" in exported.suggestion
    (shell,) = lint_notebook(tmp_path, "%%bash\nexport PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True")
    assert shell.line == 2
    (late,) = lint_notebook(
        tmp_path,
        "import torch\n!nvidia-smi\nx = torch.ones(1).cuda()",
        f'import os\nos.environ["PYTORCH_CUDA_ALLOC_CONF"] = {CONF}',
    )
    assert (late.cell, late.line) == (3, 2)
    assert "in cell 2, line 3" in late.text
    (quoted,) = lint_notebook(tmp_path, "%env PYTORCH_CUDA_ALLOC_CONF='max_split_size_mb:64'")
    assert quoted.suggestion == "remove the quotes"


def test_what_is_no_script_or_notebook(tmp_path: Path) -> None:
    broken = tmp_path / "b.ipynb"
    broken.write_text("{}")
    with pytest.raises(PeakmemError, match="is not a Jupyter notebook"):
        lint_file(broken)
    binary = tmp_path / "b.py"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(PeakmemError, match="is not a text file"):
        lint_file(binary)
    with pytest.raises(PeakmemError, match="can't be read"):
        lint_file(tmp_path / "missing.py")
