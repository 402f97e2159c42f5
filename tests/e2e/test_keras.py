"""Keras 3 on its torch backend: what `predict` says is what the plain script prints, to the byte."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from peakmem.vgpu.build import ensure_library
from peakmem.vgpu.catalogue import find_device
from peakmem.vgpu.launch import NO_LIMIT, Options, environment
from tests.e2e.conftest import EXAMPLES, run_peakmem
from tests.e2e.recorded_run import facts

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(importlib.util.find_spec("keras") is None, reason="needs keras"),
]
MODELS = Path(__file__).parent / "scripts" / "keras_models.py"
TORCH = {"KERAS_BACKEND": "torch"}
KEPT = {"KEEP_GARBAGE": "1"}


def printed(script: Path) -> dict[str, int]:
    """The peaks that a script prints on a virtual GPU that nobody watches."""
    options = Options(capacity=NO_LIMIT, true_byte=1)
    variables = environment(
        library=ensure_library(facts()),
        device=find_device("a100-80"),
        facts=facts(),
        options=options,
        base={**os.environ, **KEPT},
    )
    done = subprocess.run(
        [sys.executable, str(script)], env=variables, capture_output=True, text=True, check=True, timeout=300
    )
    return {name: int(value) for name, value in re.findall(r"^max_memory_(\w+) (\d+)$", done.stdout, re.MULTILINE)}


def predict(name: str, *words: str, cwd: Path | None = None, **variables: str):
    done = run_peakmem(
        "predict", f"keras:{MODELS}:{name}", *words, "--no-range", "--json", "-", cwd=cwd, **TORCH, **variables
    )
    assert done.code == 0, done.err
    return done.json


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("dense", ("--batch", "256")),
        ("cnn", ("--batch", "64")),
        pytest.param("resnet50", ("--batch", "8"), marks=pytest.mark.slow),
        pytest.param("efficientnet", ("--batch", "8"), marks=pytest.mark.slow),
        ("lstm", ("--batch", "32")),
        pytest.param("transformer", ("--batch", "8", "--tokens", "64"), marks=pytest.mark.slow),
        ("dense", ("--batch", "64", "--amp", "fp16", "--optimizer", "sgd:momentum=0.9", "--ema")),
        ("cnn", ("--batch", "16", "--amp", "bf16", "--accumulate", "2", "--clip", "1.0")),
    ],
)
def test_the_peaks_are_those_of_the_plain_script(tmp_path, name, words):
    if name == "transformer" and importlib.util.find_spec("keras_hub") is None:
        pytest.skip("needs keras_hub")
    script = tmp_path / "train.py"
    forecast = predict(name, *words, "--steps", "4", "--save-script", str(script), **KEPT)
    assert forecast["workload"]["training"].endswith("on torch")
    peak = forecast["peak"]
    assert printed(script) == {word: peak[word] for word in ("requested", "active", "allocated", "reserved")}
    assert sum(forecast["roles_at_peak"].values()) == peak["allocated"]
    assert len(forecast["steps"]) == 4
    # Watching changed nothing: the run without a recording had the same peaks.
    assert not any("without a recording" in note for note in forecast["notes"])


def test_garbage_moves_the_peak_by_some_inputs_at_most():
    words = ("dense", "--batch", "256", "--steps", "8")
    kept, collected = predict(*words, **KEPT)["peak"], predict(*words)["peak"]
    inputs = 4 * 256 * 1000
    # With the collector off, the input of each of the 8 batches is still there.
    assert 4 * inputs < kept["allocated"] - collected["allocated"] + 4 * inputs <= 12 * inputs


def test_optimizers_layers_and_states_are_known_by_keras_own_names():
    done = run_peakmem("run", "--json", "-", EXAMPLES / "keras_dense.py", **TORCH)
    assert done.code == 0, done.err
    forecast = done.json
    assert len(forecast["steps"]) >= 3
    # Weights and biases of 1000-100-100-100-100-10: 131,410 numbers, in blocks of 512 bytes.
    parameters = 4 * 131_410
    roles = forecast["roles_at_peak"]
    assert parameters <= roles["parameter"] < parameters + 10 * 512
    # Adam: two states for each parameter, the iteration and the learning rate.
    assert 2 * parameters <= roles["optimizer_state"] < 2 * parameters + 24 * 512
    assert parameters <= roles["gradient"] < parameters + 10 * 512
    names = {holder["name"] for holder in forecast["holders_at_peak"]}
    assert any("sequential/dense/kernel" in (name or "") for name in names)
    assert any((name or "").startswith("momentum of sequential/dense") for name in names)
    assert forecast["peak"]["phase"] == "optimizer"


def test_what_is_not_trained_is_a_buffer():
    roles = predict("cnn", "--batch", "8", "--steps", "3")["roles_at_peak"]
    assert 0 < roles["buffer"] <= 16 * 512  # moving averages, a seed, metrics


def test_options_of_the_model_are_taken_unless_others_are_given():
    words = ("--batch", "8", "--steps", "2")
    assert predict("cnn", *words)["workload"]["training"].startswith("SGD, float32")
    changed = predict("cnn", *words, "--optimizer", "lion", "--loss", "mse")["workload"]
    assert changed["training"].startswith("Lion, ")
    assert changed["loss"] == "mean_squared_error"


def test_a_model_that_was_never_compiled():
    workload = predict("uncompiled", "--batch", "8", "--steps", "2")["workload"]
    assert workload["loss"] == "mean_squared_error"
    assert workload["training"].startswith("Adam, ")


def test_named_inputs_and_outputs():
    workload = predict("two_ends", "--batch", "8", "--steps", "2")["workload"]
    assert workload["batch"] == "inputs a 8 x 16 float32, b 8 x 8 float32; targets kind 8 int64, size 8 x 1 float32"


def test_data_of_ones_own():
    forecast = predict("with_data", "--batch", "256", "--steps", "2")
    assert forecast["workload"]["batch"] == "inputs 256 x 1000 float32; targets 256 int64"


def test_arrays_stay_on_the_host():
    few, many = (
        predict("with_data", "--batch", "256", "--steps", "3", ROWS=rows)["peak"] for rows in ("1024", "16384")
    )
    batch = 4 * 256 * 1000
    # 60 batches more; what garbage holds of them is a few.
    assert abs(many["allocated"] - few["allocated"]) <= 8 * batch


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("no_model", "--batch", "8"), "int where a keras.Model was expected"),
        (("dense",), "how many samples are in a batch?"),
        (("dense", "--batch", "8", "--lora", "4"), "--lora is nothing that model.fit knows"),
        (("dense", "--batch", "8", "--optimizer", "adan"), "did you mean adam?"),
        (("nothing", "--batch", "8"), "defines no 'nothing'"),
    ],
)
def test_mistakes_are_explained(words, text):
    name, *options = words
    done = run_peakmem("predict", f"keras:{MODELS}:{name}", *options, "--steps", "2", **TORCH)
    assert done.code in (2, 3)
    assert text in " ".join((done.out + done.err).split())


SAVING = """
import sys
import keras
sys.path.insert(0, {folder!r})
import keras_models
keras_models.cnn().save("good.keras")
keras_models.cnn().save("good.h5")
bad = keras.Sequential([keras.Input((4,)), keras.layers.Lambda(lambda x: x * 2), keras.layers.Dense(2)])
bad.save("bad.keras")
bad.save("bad.h5")
"""


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> Path:
    """A folder with saved models."""
    folder = tmp_path_factory.mktemp("saved")
    subprocess.run(
        [sys.executable, "-c", SAVING.format(folder=str(MODELS.parent))],
        env={**os.environ, **TORCH, "KERAS_TORCH_DEVICE": "cpu"},
        cwd=folder,
        check=True,
        capture_output=True,
        timeout=120,
    )
    return folder


@pytest.mark.parametrize("name", ["good.keras", "good.h5"])
def test_saved_models(saved, tmp_path, name):
    script = tmp_path / "train.py"
    done = run_peakmem(
        "predict", saved / name, "--batch", "16", "--steps", "3", "--no-range", "--save-script", script, "--json", "-",
        **TORCH,
    )  # fmt: skip
    assert done.code == 0, done.err
    assert done.json["workload"]["parameters"] == "42,698, of which 42,570 are trained"
    assert done.json["workload"]["loss"] == "categorical_crossentropy"
    inputs = 4 * 16 * 32 * 32 * 3
    assert abs(printed(script)["allocated"] - done.json["peak"]["allocated"]) <= 4 * inputs


@pytest.mark.parametrize("name", ["bad.keras", "bad.h5"])
def test_code_in_a_saved_model_is_not_executed(saved, name):
    done = run_peakmem("predict", saved / name, "--batch", "16", **TORCH)
    assert done.code == 2
    assert "contains code (Lambda lambda, __lambda__), which is not executed" in done.err


LIVE = """
import sys
sys.path.insert(0, {folder!r})
import keras_models, peakmem
model = keras_models.cnn()
forecast = peakmem.predict(model, batch=16, steps=3, with_range=False)
print("peaks", forecast.peak.allocated, forecast.peak.reserved)
"""


def test_a_live_model():
    live = subprocess.run(
        [sys.executable, "-c", LIVE.format(folder=str(MODELS.parent))],
        env={**os.environ, **TORCH, **KEPT, "KERAS_TORCH_DEVICE": "cpu"},
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    peak = predict("cnn", "--batch", "16", "--steps", "3")["peak"]
    (allocated,) = re.findall(r"^peaks (\d+) \d+$", live.stdout, re.MULTILINE)
    assert abs(int(allocated) - peak["allocated"]) <= 4 * 4 * 16 * 32 * 32 * 3
