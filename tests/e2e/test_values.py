"""True values beside a device that computes nothing: scripts go the way they would go on a card."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import peakmem.session

SCRIPTS = Path(__file__).parent / "scripts"
pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def variables() -> dict[str, str]:
    """The environment of a program on an A100 80 GB."""
    from peakmem.vgpu.build import ensure_library
    from peakmem.vgpu.catalogue import find_device
    from peakmem.vgpu.launch import Options, environment
    from peakmem.vgpu.probe import probe

    facts = probe(sys.executable)
    device = find_device("A100-SXM4-80GB")
    return environment(library=ensure_library(facts), device=device, facts=facts, options=Options(true_byte=1))


@pytest.fixture(scope="module")
def inside(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the watching side is the package `peakmem_inside`, as in a session."""
    folder = tmp_path_factory.mktemp("inside")
    (folder / "peakmem_inside").symlink_to(Path(peakmem.session.__file__).parent / "inside")
    return folder


def run(script: str, inside: Path, variables: dict[str, str], *words: str) -> Any:
    """Run a script and give the JSON on its last line."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", SCRIPTS / script, inside, *words],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, **variables, "HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"},
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.strip().splitlines()[-1])


def needs(name: str) -> None:
    if importlib.util.find_spec(name) is None:
        pytest.skip(f"needs {name}")


def test_scripts_see_true_values(inside: Path, variables: dict[str, str]) -> None:
    found = run("values_behave.py", inside, variables)
    assert found["failed"] == {}, "\n".join(f"{name}\n{text}" for name, text in found["failed"].items())
    assert found["ran"] >= 20


def both(inside: Path, variables: dict[str, str], *names: str) -> tuple[Any, Any]:
    return tuple(run("values_neutral.py", inside, variables, state, *names) for state in ("off", "on"))  # type: ignore[return-value]


def test_following_changes_no_byte(inside: Path, variables: dict[str, str]) -> None:
    off, on = both(inside, variables, "mlp", "mlp-float16", "encoder", "tinygpt-bfloat16", "lstm")
    assert off == on


def test_following_changes_no_byte_of_a_resnet(inside: Path, variables: dict[str, str]) -> None:
    needs("torchvision")
    off, on = both(inside, variables, "resnet50", "resnet50-bfloat16")
    assert off == on


@pytest.mark.slow
def test_following_changes_no_byte_of_transformers(inside: Path, variables: dict[str, str]) -> None:
    needs("transformers")
    off, on = both(inside, variables, "gpt2-bfloat16", "gpt2_checkpointed-bfloat16", "bert")
    assert off == on


@pytest.mark.slow
def test_a_mask_of_ones_leaves_gpt2_on_flash_attention(inside: Path, variables: dict[str, str]) -> None:
    needs("transformers")
    blind = {**variables, "PEAKMEM_VGPU_BOOL": "0"}  # so that nothing but the true mask can choose flash attention
    masked = run("values_neutral.py", inside, blind, "on", "gpt2_masked-bfloat16")["gpt2_masked-bfloat16"]
    plain = run("values_neutral.py", inside, variables, "off", "gpt2-bfloat16")["gpt2-bfloat16"]
    # The mask itself is 16 KiB; a mask for every query and key would be 25 MB.
    assert 0 <= masked[-1][1] - plain[-1][1] <= 1 << 20


@pytest.mark.slow
@pytest.mark.parametrize("model", ["fasterrcnn_resnet50_fpn", "retinanet_resnet50_fpn", "maskrcnn_resnet50_fpn"])
def test_detectors_train(model: str, inside: Path, variables: dict[str, str]) -> None:
    needs("torchvision")
    found = run("values_detection.py", inside, variables, model)
    assert found["peaks"][1] > 2 << 30
    assert len(found["losses"]) >= 2
    assert found["refused"], "a box without area has to be found"
    if model != "retinanet_resnet50_fpn":
        assert any("nms" in row["what"] for row in found["assumptions"])


def test_a_mixture_of_experts_trains(inside: Path, variables: dict[str, str], tmp_path: Path) -> None:
    needs("transformers")
    script = tmp_path / "mixtral.py"
    script.write_text(
        "import sys, json, torch\n"
        "sys.path.insert(0, sys.argv[1])\n"
        "import peakmem_inside.values as following\n"
        "values = following.install('')\n"
        "from transformers import MixtralConfig, MixtralForCausalLM\n"
        "config = MixtralConfig(vocab_size=100, hidden_size=32, intermediate_size=64, num_hidden_layers=2,\n"
        "    num_attention_heads=4, num_key_value_heads=2, num_local_experts=4, output_router_logits=True)\n"
        "model = MixtralForCausalLM(config).to('cuda')\n"
        "x = torch.randint(100, (2, 16)).to('cuda')\n"
        "model(input_ids=x, labels=x, attention_mask=torch.ones_like(x)).loss.backward()\n"
        "print(json.dumps([p.grad is not None for n, p in model.named_parameters() if 'expert' in n]))\n"
    )
    assert all(run(str(script), inside, variables))
