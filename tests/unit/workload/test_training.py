"""Training settings: what is read, and which of them don't go together."""

from __future__ import annotations

from typing import Any

import pytest

from peakmem.errors import PeakmemError
from peakmem.workload import training
from peakmem.workload.optimizers import OPTIMIZERS, Optimizer
from peakmem.workload.training import Training


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("adamw", "torch.optim.AdamW(trained, lr=0.001)"),
        ("SGD:momentum=0.9,nesterov=true", "torch.optim.SGD(trained, momentum=0.9, nesterov=True, lr=0.001)"),
        ("adam:fused,lr=1e-4", "torch.optim.Adam(trained, fused=True, lr=0.0001)"),
        ("adamw:loop", "torch.optim.AdamW(trained, foreach=False, lr=0.001)"),
        ("adafactor", "torch.optim.Adafactor(trained)"),
    ],
)
def test_an_optimizer_is_made_as_it_is_written(text, made):
    assert Optimizer.parse(text).made_from("trained") == made


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("adanw", "did you mean adamw?"),
        ("sparseadam", "adam"),
        ("adamw:quick", "fused"),
        ("sgd:momentum=high", "amsgrad=true"),
        ("sgd:import os=1", ""),
    ],
)
def test_what_is_no_optimizer_says_what_is(text, hint):
    with pytest.raises(PeakmemError) as caught:
        Optimizer.parse(text)
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    "settings",
    [
        {"optimizer_in_backward": True, "accumulate": 2},
        {"optimizer_in_backward": True, "clip": 1.0},
        {"optimizer_in_backward": True, "precision": "amp-fp16"},
        {"optimizer": Optimizer(name="lbfgs"), "accumulate": 2},
        {"accumulate": 0},
        {"clip": 0.0},
        {"precision": "fp8"},
        {"zero_grad": "never"},
        {"compile": True, "optimizer_in_backward": True},
        {"quantize": "nf4"},
        {"quantize": "int3", "lora": 8},
        {"cuda_graphs": True, "accumulate": 2},
        {"cuda_graphs": True, "zero_grad": "end"},
        {"cuda_graphs": True, "keep_gradients": True},
        {"cuda_graphs": True, "optimizer_in_backward": True},
        {"cuda_graphs": True, "offload_activations": True},
        {"cuda_graphs": True, "compile": True},
        {"cuda_graphs": True, "optimizer": Optimizer(name="lbfgs")},
    ],
)
def test_settings_that_do_not_go_together_are_refused(settings: dict[str, Any]):
    with pytest.raises(PeakmemError) as caught:
        Training(**settings)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"lora": 8}, "LoRA needs the package peft"),
        ({"optimizer": Optimizer(name="adamw8bit")}, "the optimizer adamw8bit needs the package bitsandbytes"),
    ],
)
def test_a_package_that_is_missing_is_named(monkeypatch, settings, message):
    monkeypatch.setattr(training, "installed", lambda package: package == "torch")
    with pytest.raises(PeakmemError, match=message) as caught:
        Training(**settings)
    assert caught.value.hint.startswith("pip install ")


@pytest.mark.torch
def test_every_optimizer_of_torch_is_known():
    torch = pytest.importorskip("torch")
    there = {name for name in dir(torch.optim) if isinstance(getattr(torch.optim, name), type)}
    assert there - set(OPTIMIZERS.values()) <= {"Optimizer", "SparseAdam"}
