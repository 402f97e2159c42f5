"""Settings of `peakmem predict` beyond the common ones: what the printed script reads from torch, to the byte."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib import util

import pytest

from peakmem.vgpu.build import ensure_library
from peakmem.vgpu.catalogue import find_device
from peakmem.vgpu.launch import Options, environment
from peakmem.vgpu.probe import probe
from tests.e2e.conftest import run_peakmem

pytestmark = pytest.mark.torch

LLAMA = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 256, "num_hidden_layers": 4,
    "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 688, "vocab_size": 1000,
}  # fmt: skip
NETS = """
from torch import nn

class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))

def build():
    return nn.Sequential(*(Block(256) for _ in range(6)))
"""
needs_bitsandbytes = pytest.mark.skipif(not util.find_spec("bitsandbytes"), reason="bitsandbytes is not here")
needs_peft = pytest.mark.skipif(not util.find_spec("peft"), reason="peft is not here")


@pytest.fixture
def llama(tmp_path):
    folder = tmp_path / "llama"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(LLAMA))
    return f"hf:{folder}"


@pytest.fixture
def nets(tmp_path):
    (tmp_path / "nets.py").write_text(NETS)
    return f"{tmp_path / 'nets.py'}:build"


def predict(tmp_path, *words):
    """The forecast, after its peaks were compared with what the script reads from torch with nobody watching."""
    script = tmp_path / "train.py"
    told = run_peakmem(
        "predict", *words, "--steps", "3", "--no-range", "--save-script", script, "--force", "--json", "-"
    )
    assert told.code == 0, told.err
    facts, device = probe(sys.executable), find_device("a100-80")
    options = Options(capacity=device.total_memory, true_byte=1)  # as `peakmem run` assumes of `bool(tensor)`
    variables = environment(library=ensure_library(facts), device=device, facts=facts, options=options)
    done = subprocess.run([sys.executable, str(script)], env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    read = {name: int(value) for name, value in re.findall(r"max_memory_(\w+) (\d+)", done.stdout)}
    assert read == {name: told.json["peak"][name] for name in ("allocated", "reserved")}
    return told.json


@pytest.mark.parametrize("what", ["nets", "llama"])
def test_selective_checkpointing_keeps_products_only(tmp_path, request, what):
    if what == "llama":
        pytest.importorskip("transformers")
    model = request.getfixturevalue(what)
    words = (model, "--batch", "32", *(("--input", "512x256") if what == "nets" else ("--tokens", "512")))
    held = {}
    for setting in ((), ("--selective-checkpointing",), ("--checkpointing",)):
        forecast = predict(tmp_path, *words, *setting)
        held[setting] = forecast["peak"]["allocated"]
    plain, selective, blocks = held.values()
    assert blocks < selective < plain


@pytest.mark.parametrize(
    "settings", [(), ("--amp", "fp16", "--clip", "1", "--optimizer", "adamw:fused"), ("--amp", "bf16", "--ema")]
)
def test_cuda_graphs(tmp_path, nets, settings):
    words = (nets, "--batch", "64", "--input", "128x256", "--loss", "mse", *settings)
    graphs = predict(tmp_path, *words, "--cuda-graphs")
    assert len(graphs["steps"]) == 3
    assert "CUDA graphs" in graphs["workload"]["training"]
    plain = predict(tmp_path, *words)
    # The pool of the graph is its own: what the warm-up left in the other one is not for it.
    assert graphs["peak"]["reserved"] > plain["peak"]["reserved"]


def test_cuda_graphs_of_a_convolutional_network(tmp_path):
    pytest.importorskip("torchvision")
    forecast = predict(tmp_path, "torchvision:resnet18", "--batch", "4", "--cuda-graphs", "--channels-last")
    assert forecast["verdict"] == "fits"


def test_a_model_that_waits_for_values_can_not_be_captured(tmp_path):
    (tmp_path / "nets.py").write_text(
        "from torch import nn\n"
        "class Waits(nn.Linear):\n"
        "    def forward(self, x):\n"
        "        y = super().forward(x)\n"
        "        return y * 2 if y.sum().item() > 0 else y\n"
        "def build():\n    return Waits(8, 8)\n"
    )
    told = run_peakmem("predict", f"{tmp_path / 'nets.py'}:build", "--batch", "2", "--input", "8", "--cuda-graphs")
    assert told.code == 2
    assert "captur" in told.err


@needs_bitsandbytes
@pytest.mark.parametrize("optimizer", ["adam8bit", "adamw8bit", "paged_adamw", "paged_adamw8bit", "lion8bit"])
def test_optimizers_of_bitsandbytes(tmp_path, optimizer):
    words = ("dense:1024-1024-1024-10", "--batch", "8")
    forecast = predict(tmp_path, *words, "--optimizer", optimizer)
    parameters = int(forecast["workload"]["parameters"].replace(",", ""))
    states = forecast["roles_at_peak"].get("optimizer_state", 0)
    expected = {"adam8bit": 2, "adamw8bit": 2, "paged_adamw": 0, "paged_adamw8bit": 0, "lion8bit": 1}[optimizer]
    assert states == pytest.approx(expected * parameters, abs=0.1 * parameters)  # small tensors stay as they are
    assert ("not counted" in forecast["workload"].get("assumed", "")) == optimizer.startswith("paged")


@needs_bitsandbytes
@needs_peft
@pytest.mark.parametrize("kind", ["nf4", "fp4"])
def test_qlora(tmp_path, llama, kind):
    pytest.importorskip("transformers")
    words = (llama, "--batch", "4", "--tokens", "128", "--amp", "bf16", "--lora", "16")
    whole = predict(tmp_path, *words)
    quantized = predict(tmp_path, *words, "--quantize", kind, "--checkpointing", "--optimizer", "paged_adamw8bit")
    linear = LLAMA["num_hidden_layers"] * (256 * 256 * 2 + 256 * 128 * 2 + 3 * 256 * 688)
    saved = whole["roles_at_peak"]["parameter"] - quantized["roles_at_peak"]["parameter"]
    # fp32 to half a byte; the scales of the blocks are no parameters.
    assert saved == pytest.approx(linear * 3.5, rel=0.02)
    assert f"linear layers in {kind}" in quantized["workload"]["training"]


@needs_peft
def test_lora_of_a_model_that_is_not_of_transformers(tmp_path, nets):
    forecast = predict(tmp_path, nets, "--batch", "4", "--input", "16x256", "--lora", "8")
    assert forecast["workload"]["parameters"].endswith(f"of which {6 * 2 * 8 * (256 + 1024):,} are trained")
