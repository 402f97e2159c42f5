"""Models that are too large for the host: built on the device, or without their weights."""

import sys

import pytest

from tests.e2e.conftest import measured, run_peakmem

pytestmark = [pytest.mark.torch, pytest.mark.slow]

LLAMA_7B = """
import torch
from transformers import LlamaConfig, LlamaForCausalLM
config = LlamaConfig(hidden_size=4096, intermediate_size=11008, num_hidden_layers=32, num_attention_heads=32)
model = LlamaForCausalLM(config).to(torch.bfloat16).cuda().train()
model.gradient_checkpointing_enable()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
for _ in range(4):
    tokens = torch.randint(32000, (1, 2048)).cuda()
    model(input_ids=tokens, labels=tokens, use_cache=False).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def test_a_7b_model_built_on_the_device_takes_little_host_memory(script):
    words = [sys.executable, "-m", "peakmem", "run", "--gpu", "a100-80", "--build-on-device", str(script(LLAMA_7B))]
    _, largest = measured(*words)
    # The largest of the processes; peakmem's own side holds the recording and no tensor.
    assert largest < 1_200_000 * 1024, f"{largest} bytes"


def test_pretrained_models_are_built_from_their_configuration(script, tmp_path):
    folder = tmp_path / "bert"
    folder.mkdir()
    (folder / "config.json").write_text(
        '{"architectures": ["BertForMaskedLM"], "model_type": "bert", "num_hidden_layers": 2, "hidden_size": 128,'
        ' "num_attention_heads": 2, "intermediate_size": 512, "vocab_size": 1000}'
    )
    text = f"""
import timm, torch, torchvision
from transformers import AutoModelForSequenceClassification
bert = AutoModelForSequenceClassification.from_pretrained({str(folder)!r}, num_labels=3).cuda().train()
assert bert.config.num_labels == 3
resnet = torchvision.models.resnet18(weights="IMAGENET1K_V1").cuda()
small = timm.create_model("resnet10t", pretrained=True).cuda()
optimizer = torch.optim.SGD([*bert.parameters(), *resnet.parameters(), *small.parameters()], 0.1)
tokens, images = torch.ones(2, 16, dtype=torch.long).cuda(), torch.randn(2, 3, 64, 64).cuda()
for _ in range(3):
    loss = bert(input_ids=tokens, labels=tokens[:, 0]).loss + resnet(images).sum() + small(images).sum()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""
    done = run_peakmem("run", "--no-weights", "--no-range", "--json", "-", script(text))
    assert done.code == 0, done.err
    assert len(done.json["steps"]) == 3


def test_without_no_weights_the_missing_file_is_the_scripts_own_error(script, tmp_path):
    text = f"import transformers\ntransformers.BertModel.from_pretrained({str(tmp_path)!r})\n"
    done = run_peakmem("run", script(text), HF_HUB_OFFLINE="1")
    assert done.code == 3 and "OSError" in done.err


def test_parameters_are_made_on_the_device(script):
    text = """
import torch
layer = torch.nn.Linear(8, 8)
assert layer.weight.is_cuda and layer.bias.is_cuda
torch.nn.Sequential(layer, torch.nn.BatchNorm1d(8)).cuda()(torch.randn(4, 8).cuda()).sum().backward()
"""
    assert run_peakmem("run", "--build-on-device", script(text)).code == 0
