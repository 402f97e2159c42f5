from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from peakmem.cli.gpus import command
from peakmem.errors import PeakmemError
from peakmem.vgpu.catalogue import devices

LAPTOPS = """\
GPU                      --gpu           GiB         bytes   CC  SMs
GeForce RTX 4050 Laptop  4050-laptop    5.66    6078595072  8.9   20
GeForce RTX 4060 Laptop  4060-laptop    7.75    8325824512  8.9   24
GeForce RTX 4070 Laptop  4070-laptop   ~7.65   ~8214544384  8.9   36
GeForce RTX 4080 Laptop  4080-laptop  ?11.72  ?12585009152  8.9   58
GeForce RTX 4090 Laptop  4090-laptop  ?15.57  ?16718495744  8.9   76
5 cards. Memory is what CUDA gives on Linux. ~ printed in MiB or GiB by such a
card; ? worked out from related cards.
"""


def run(*arguments: str, columns: int = 80) -> Result:
    result = CliRunner(env={"COLUMNS": str(columns)}).invoke(command, list(arguments))
    if result.exception is not None:
        raise result.exception
    return result


def test_a_part_of_the_list() -> None:
    assert run("ada", "laptop").output == LAPTOPS


@pytest.mark.parametrize("columns", [80, 110, 160])
def test_the_whole_list_fits_the_page(columns: int) -> None:
    output = run(columns=columns).output
    assert max(map(len, output.splitlines())) <= columns
    for device in devices():
        assert device.short_name in output
        assert f"{device.total_memory}" in output
    assert f"{len(devices())} cards." in output


def test_wide_pages_show_the_other_names() -> None:
    assert "h100-sxm" in run("h100", columns=120).output
    assert "h100-sxm" not in run("h100", columns=80).output


def test_json() -> None:
    document = json.loads(run("4090", "--json", "-").output)
    assert document["schema"] == "peakmem/gpus/1"
    card = document["results"][0]
    assert card["name"] == "NVIDIA GeForce RTX 4090"
    assert card["total_memory"] == 25_250_627_584
    assert card["compute_capability"] == "8.9"


def test_json_goes_to_a_file_and_spares_what_is_there(tmp_path: Path) -> None:
    target = tmp_path / "gpus.json"
    assert "GeForce" in run("--json", str(target)).output
    assert len(json.loads(target.read_text())["results"]) == len(devices())
    with pytest.raises(PeakmemError, match="exists already"):
        run("--json", str(target))
    run("--json", str(target), "--force", "t4")
    assert len(json.loads(target.read_text())["results"]) == 1
    with pytest.raises(PeakmemError, match="there is no folder"):
        run("--json", str(tmp_path / "nowhere" / "gpus.json"))


def test_a_pattern_that_fits_nothing() -> None:
    with pytest.raises(PeakmemError, match="no GPU 'voodoo 2' in the catalogue"):
        run("voodoo", "2")
