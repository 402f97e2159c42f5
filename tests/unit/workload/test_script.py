"""The scripts that are written: always valid, and plain where nothing special is asked for."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peakmem.errors import PeakmemError
from peakmem.workload.model import Request
from peakmem.workload.optimizers import OPTIMIZERS, Optimizer
from peakmem.workload.resolving import names_a_function, workload_of
from peakmem.workload.script import write_script
from peakmem.workload.sources.function import parse_argument
from peakmem.workload.training import Training

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
                 "cudnn_benchmark", "deterministic", "keep_gradients", "selective_checkpointing",
                 "cuda_graphs"):  # fmt: skip
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
        (
            "graphs",
            Training(precision="amp-fp16", selective_checkpointing=True, cuda_graphs=True, clip=1.0, ema=True),
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
        ("no_such_module_anywhere:build", "there is no module", "or give file.py:function"),
        ("torchvison:resnet50", "there is no module 'torchvison'", "did you mean torchvision:resnet50?"),
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


def test_arguments_of_a_function_are_passed_on(tmp_path):
    path = tmp_path / "nets.py"
    path.write_text("def build(depth, *, width=8):\n    ...\n\ndef any(**kwargs):\n    ...\n")
    arguments = tuple(parse_argument(text) for text in ("depth=4", "width=(1, 2)"))
    made = workload_of(Request(what=f"{path}:build", batch=1, shape=(8,), arguments=arguments))
    assert "split(build(depth=4, width=(1, 2)))" in made.model
    assert made.title.endswith("nets.py:build(depth=4, width=(1, 2))")
    workload_of(Request(what=f"{path}:any", batch=1, shape=(8,), arguments=arguments))


@pytest.mark.parametrize("text", ["depth", "=4", "1=2", "a b=2"])
def test_what_is_no_argument_is_refused(text):
    with pytest.raises(PeakmemError, match="is no NAME=VALUE"):
        parse_argument(text)


def test_a_value_that_is_no_literal_is_a_string_and_never_code():
    assert parse_argument("kind=__import__('os').system('x')") == ("kind", repr("__import__('os').system('x')"))


@pytest.mark.parametrize(
    ("what", "there"),
    [
        ("nets.py:build", True),
        ("package.nets:build", True),
        ("./a/nets.py:build", True),
        ("torchvision:resnet50", False),
        ("timm:resnet50", False),
        ("hf:model", False),
        ("dense:1-2", False),
        ("nets.py", False),
    ],
)
def test_functions_are_told_from_names_of_models(what, there):
    assert names_a_function(what) is there


def test_arguments_are_for_functions():
    with pytest.raises(PeakmemError, match="takes no arguments"):
        workload_of(Request(what="dense:10-10", batch=1, arguments=(("depth", "4"),)))


def test_qlora_is_written_without_a_network_of_its_own(monkeypatch):
    monkeypatch.setattr("peakmem.workload.training.installed", lambda package: True)
    for precision in ("amp-bf16", "bf16"):
        script = write_script(DENSE, Training(lora=16, quantize="nf4", precision=precision), steps=3)
        compile(script, "train.py", "exec")
        assert ("prepare_model_for_kbit_training(model" in script) == (precision != "bf16")
        # The weights are quantized when they come to the GPU, so before it: peft wraps layers that know their kind.
        assert script.index('quantize_linear_layers(model, "nf4"') < script.index("get_peft_model(model")
        assert script.index("get_peft_model(model") < script.index("model = model.cuda()")
