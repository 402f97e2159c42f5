"""`peakmem.predict` and `peakmem.watch` from Python."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys

import pytest

import peakmem
from tests.e2e.conftest import run_peakmem

pytestmark = pytest.mark.torch


def test_import_is_light():
    code = "import sys, peakmem; print([name for name in ('torch', 'numpy', 'rich', 'click') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    with pytest.raises(AttributeError, match="no attribute 'preditc'"):
        peakmem.preditc  # noqa: B018


def test_a_live_model_takes_what_its_name_takes():
    torchvision = pytest.importorskip("torchvision")
    live = torchvision.models.resnet18()
    before = live.conv1.weight.clone()
    forecast = peakmem.predict(live, (3, 64, 64), batch=4, steps=3, loss="mean", with_range=False)
    assert live.conv1.weight.equal(before) and not live.conv1.weight.is_cuda
    same = peakmem.predict(lambda_free_resnet18, (3, 64, 64), batch=4, steps=3, loss="mean", with_range=False)
    assert forecast.peak.allocated == same.peak.allocated
    assert forecast.peak.reserved == same.peak.reserved
    assert len(forecast.steps) == 3


def lambda_free_resnet18():
    import torchvision

    return torchvision.models.resnet18()


def test_a_text_inputs_and_targets():
    torch = pytest.importorskip("torch")
    model = torch.nn.Sequential(torch.nn.Linear(1000, 100), torch.nn.ReLU(), torch.nn.Linear(100, 10))
    live = peakmem.predict(
        model, torch.randn(256, 1000), targets=torch.randint(10, (256,)), loss="cross-entropy", optimizer="adam"
    )
    text = peakmem.predict("dense:1000-100-10", batch=256, optimizer="adam")
    assert live.peak.allocated == text.peak.allocated
    assert live.workload["batch"] == "inputs 256 x 1000 float32; targets 256 int64"


def test_tied_weights_stay_tied():
    torch = pytest.importorskip("torch")
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 64))
    model[1].weight = model[0].weight
    forecast = peakmem.predict(model, (64,), batch=2, steps=2)
    assert forecast.workload["parameters"] == f"{64 * 64 + 2 * 64:,}"


def test_what_can_not_be_shipped_is_said():
    torch = pytest.importorskip("torch")
    model = torch.nn.Linear(4, 4)
    model.lock = __import__("threading").Lock()
    with pytest.raises(peakmem.PeakmemError, match="can't be sent") as caught:
        peakmem.predict(model, (4,), batch=2)
    assert "a function that builds it" in caught.value.hint
    with pytest.raises(peakmem.PeakmemError, match="is no model"):
        peakmem.predict(3)
    with pytest.raises(peakmem.PeakmemError, match="targets are given, but no loss"):
        peakmem.predict(torch.nn.Linear(4, 4), torch.zeros(2, 4), targets=torch.zeros(2))


def test_training_on_the_cpu_is_not_mixed_up_with_the_process_that_asks():
    torch = pytest.importorskip("torch")
    widths = (2048, 2048, 2048, 10)
    layers = [torch.nn.Linear(a, b) for a, b in itertools.pairwise(widths)]
    model = torch.nn.Sequential(layers[0], torch.nn.ReLU(), layers[1], torch.nn.ReLU(), layers[2])
    before = layers[0].weight.clone()
    held = torch.ones(2**28)  # 1 GiB, more than the training takes
    batch, labels = torch.randn(64, 2048), torch.randint(10, (64,))
    live = peakmem.predict(model, batch, targets=labels, loss="cross-entropy", device="cpu", memory="4GiB")
    del held
    text = peakmem.predict("dense:2048-2048-2048-10", batch=64, device="cpu", memory="4GiB")
    assert type(live).__name__ == "CpuForecast" and live.verdict == "fits" and live.host.limit == 4 * 2**30
    assert live.workload["batch"] == text.workload["batch"] == "inputs 64 x 2048 float32; targets 64 int64"
    assert len(live.host.steps) == 3
    assert {row.name: row.bytes for row in live.host.roles}["parameter"] == pytest.approx(
        4 * sum(p.numel() for p in model.parameters()), rel=0.01
    )
    # malloc keeps some more or less from run to run; real trainings scatter so too
    assert live.host.peak_rss == pytest.approx(text.host.peak_rss, rel=0.1)
    assert live.own_peak < 2**30
    assert layers[0].weight.equal(before)
    done = run_peakmem("predict", "--device", "cpu", "dense:2048-2048-2048-10", "--batch", "64", "--json", "-")
    assert done.json["host"]["peak_rss"] == pytest.approx(text.host.peak_rss, rel=0.1)


def test_what_can_not_be_trained_on_the_cpu_is_said_as_it_is_for_a_gpu():
    torch = pytest.importorskip("torch")
    with pytest.raises(peakmem.PeakmemError, match="can't be trained with inputs 2 x 5 float32: mat1 and mat2 shapes"):
        peakmem.predict(torch.nn.Linear(4, 4), (5,), batch=2, device="cpu")
    with pytest.raises(peakmem.PeakmemError, match="--cuda-graphs is not for training on the CPU"):
        peakmem.predict(torch.nn.Linear(4, 4), (4,), batch=2, device="cpu", cuda_graphs=True)
    with pytest.raises(peakmem.PeakmemError, match="--gpu says nothing about training on the CPU"):
        peakmem.predict("dense:4-4", batch=2, device="cpu", gpu="t4")
    with pytest.raises(peakmem.PeakmemError, match="is for models of PyTorch"):
        peakmem.predict("keras:nets.py:build", batch=2, device="cpu")


WATCHED = """
import torch, peakmem
from torch import nn

with peakmem.watch() as watched:
    model = nn.Sequential(nn.Linear(1000, 1000), nn.ReLU(), nn.Linear(1000, 10)).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(3):
        model(torch.randn(256, 1000).cuda()).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
import json, msgspec
print(json.dumps({
    "forecast": json.loads(msgspec.json.encode(watched.forecast)),
    "allocated": torch.cuda.max_memory_allocated(),
    "reserved": torch.cuda.max_memory_reserved(),
}))
"""


def test_watching_a_real_run(script):
    """The virtual GPU, with nothing of peakmem in the process, stands for a real one."""
    from peakmem.vgpu.build import ensure_library
    from peakmem.vgpu.catalogue import find_device
    from peakmem.vgpu.launch import Options, environment
    from peakmem.vgpu.probe import probe

    facts, device = probe(sys.executable), find_device("a100-80")
    context = 500 * 2**20
    variables = environment(
        library=ensure_library(facts),
        device=device,
        facts=facts,
        options=Options(capacity=device.total_memory, context=context, cudnn="likely", true_byte=1),
    )
    done = subprocess.run([sys.executable, script(WATCHED)], env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    peak = result["forecast"]["peak"]
    assert (peak["allocated"], peak["reserved"]) == (result["allocated"], result["reserved"])
    assert peak["context"] == context
    assert peak["used"] == peak["reserved"] + context
    steps = result["forecast"]["steps"]
    assert len(steps) == 3 and max(step["allocated"] for step in steps) == peak["allocated"]
    assert sum(result["forecast"]["roles_at_peak"].values()) == peak["allocated"]


def test_watching_without_a_gpu_says_what_works_without_one():
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(peakmem.PeakmemError, match="no GPU") as caught, peakmem.watch():
        pass
    assert "peakmem.predict" in caught.value.hint
    assert run_peakmem("predict", "--help").code == 0
