"""The training script of `peakmem predict --device cpu`."""

from __future__ import annotations

import pytest

from peakmem.errors import PeakmemError
from peakmem.workload.model import Request
from peakmem.workload.resolving import workload_of
from peakmem.workload.script import write_script
from peakmem.workload.training import Training


def script(**settings) -> str:
    workload = workload_of(Request(what="dense:1000-100-10", batch=256))
    return write_script(workload, Training(device="cpu", **settings), steps=3)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"precision": "amp-bf16"},
        {"precision": "amp-fp16", "clip": 1.0},
        {"precision": "bf16", "channels_last": True},
        {"checkpointing": True, "ema": True},
        {"optimizer_in_backward": True},
    ],
)
def test_nothing_of_it_names_a_gpu(settings):
    text = script(**settings)
    compile(text, "predict.py", "exec")
    assert "cuda" not in text
    assert "GPU" not in text
    assert "ru_maxrss" in text


def test_autocast_is_that_of_the_cpu():
    assert 'torch.autocast("cpu", dtype=torch.bfloat16)' in script(precision="amp-bf16")


@pytest.mark.parametrize(
    ("setting", "option"),
    [
        ({"precision": "tf32"}, "--precision tf32"),
        ({"cuda_graphs": True}, "--cuda-graphs"),
        ({"offload_activations": True}, "--offload-activations"),
        ({"cudnn_benchmark": True}, "--cudnn-benchmark"),
        ({"compile": True}, "--compile"),
    ],
)
def test_settings_of_gpus_are_refused(setting, option):
    with pytest.raises(PeakmemError) as error:
        script(**setting)
    assert error.value.message == f"{option} is not for training on the CPU"
    assert option in error.value.hint
