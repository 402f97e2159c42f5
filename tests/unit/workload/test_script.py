"""The scripts that are written: always valid, and plain where nothing special is asked for."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peakmem.errors import PeakmemError
from peakmem.workload.model import Request
from peakmem.workload.resolving import workload_of
from peakmem.workload.script import write_script
from peakmem.workload.training import OPTIMIZERS, Optimizer, Training

GOLDEN = Path(__file__).parent / "golden"
DENSE = workload_of(Request(what="dense:1000-100-10", batch=256))


@st.composite
def trainings(draw):
    name = draw(st.sampled_from([*OPTIMIZERS]))
    settings = {
        "optimizer": Optimizer(name=name),
        "precision": draw(st.sampled_from(["fp32", "tf32", "amp-bf16", "amp-fp16", "bf16"])),
        "zero_grad": draw(st.sampled_from(["start", "backward", "end"])),
        "accumulate": draw(st.integers(1, 3)),
        "clip": draw(st.none() | st.floats(0.5, 2)),
        "freeze": draw(st.sampled_from([(), ("0.",)])),
    }
    for flag in ("checkpointing", "ema", "channels_last", "optimizer_in_backward", "offload_activations",
                 "cudnn_benchmark", "deterministic", "keep_gradients"):  # fmt: skip
        settings[flag] = draw(st.booleans())
    try:
        return Training(**settings)
    except PeakmemError:
        return Training(optimizer=Optimizer(name=name), precision="fp32")


@given(trainings())
def test_every_script_is_valid_python(training):
    script = write_script(DENSE, training, steps=3)
    compile(script, "predict.py", "exec")
    assert script.count("optimizer.step(") <= 1 or training.optimizer.name == "muon"


@pytest.mark.parametrize(
    ("name", "training"),
    [
        ("plain", Training()),
        (
            "everything",
            Training(
                optimizer=Optimizer.parse("sgd:momentum=0.9"),
                precision="amp-fp16",
                checkpointing=True,
                accumulate=2,
                clip=1.0,
                ema=True,
                freeze=("0.",),
                cudnn_benchmark=True,
                deterministic=True,
                offload_activations=True,
                zero_grad="end",
            ),
        ),
    ],
)
def test_golden_scripts(name, training, request):
    import os

    path = GOLDEN / f"{name}.py.txt"
    script = write_script(DENSE, training, steps=20)
    if os.environ.get("PEAKMEM_UPDATE_GOLDEN"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(script, encoding="utf-8")
    assert script == path.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("what", "message", "hint"),
    [
        ("dense:1000", "no dense network", "dense:1000-100"),
        ("dense:10-0-10", "no dense network", "dense:"),
        ("1000-100-10", "names no model", "did you mean dense:1000-100-10?"),
        ("resnet50", "names no model", "did you mean torchvision:resnet50"),
        ("missing.safetensors", "there is no file", ""),
        ("train.py", "is a script", "peakmem run train.py"),
        ("missing.py:build", "there is no file missing.py", ""),
        ("no_such_module_anywhere:build", "there is no module", ""),
        ("hf:./nowhere/config.json", "there is no file", ""),
    ],
)
def test_what_names_no_model_says_what_does(what, message, hint):
    with pytest.raises(PeakmemError, match=message) as caught:
        workload_of(Request(what=what, batch=2))
    assert hint in caught.value.hint


def test_a_batch_is_asked_for():
    with pytest.raises(PeakmemError, match="batch") as caught:
        workload_of(Request(what="dense:10-10"))
    assert "--batch" in caught.value.hint


def test_a_function_that_is_not_there_is_named(tmp_path):
    path = tmp_path / "nets.py"
    path.write_text("def build():\n    pass\n")
    with pytest.raises(PeakmemError, match="defines no 'biuld'") as caught:
        workload_of(Request(what=f"{path}:biuld", batch=2, shape=(3,)))
    assert caught.value.hint == f"did you mean {path}:build?"
