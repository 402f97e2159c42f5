"""Which TensorFlow is there, and which framework a script means."""

from __future__ import annotations

from pathlib import Path

import pytest

from peakmem.errors import PeakmemError
from peakmem.session.framework import framework_of
from peakmem.vgpu.tensorflow import read_tensorflow


def found(tmp_path: Path, **changes):
    cudnn = tmp_path / "nvidia" / "cudnn" / "lib"
    cudnn.mkdir(parents=True)
    (cudnn / "libcudnn.so.9").touch()
    return {
        "python": "3.11.2",
        "machine": "x86_64",
        "system": "Linux",
        "tensorflow": "/site/tensorflow",
        "nvidia": str(tmp_path / "nvidia"),
        "version": "2.21.0",
        "build": {"is_cuda_build": "True", "cuda_version": "12.5.1"},
        "cudnn": "9.28.0.42",
        **changes,
    }


def test_a_gpu_build(tmp_path):
    facts = read_tensorflow(found(tmp_path), python=Path("/usr/bin/python3"))
    assert facts is not None
    assert (facts.version, facts.cuda_number, facts.cudnn) == ("2.21.0", 12050, "9.28.0.42")
    assert facts.cudnn_folder == tmp_path / "nvidia" / "cudnn" / "lib"


def test_none(tmp_path):
    assert read_tensorflow(found(tmp_path, tensorflow=None), python=Path("python")) is None


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"build": {"is_cuda_build": "False"}}, "is a CPU-only build"),
        ({"nvidia": "/nowhere"}, "lacks cuDNN 9"),
        ({"machine": "aarch64"}, "on x86-64 Linux only"),
    ],
)
def test_what_can_not_use_a_gpu_is_explained(tmp_path, changes, text):
    with pytest.raises(PeakmemError, match=text):
        read_tensorflow(found(tmp_path, **changes), python=Path("python"))


@pytest.mark.parametrize(
    ("text", "variables", "framework"),
    [
        ("import torch", {}, "torch"),
        ("import tensorflow as tf", {}, "tensorflow"),
        ("from tensorflow.keras import layers", {}, "tensorflow"),
        ("import keras", {}, "tensorflow"),
        ("import keras", {"KERAS_BACKEND": "torch"}, "torch"),
        ('os.environ["KERAS_BACKEND"] = "torch"\nimport keras', {"KERAS_BACKEND": "jax"}, "torch"),
        ("os.environ.setdefault('KERAS_BACKEND', 'tensorflow')\nimport keras", {}, "tensorflow"),
        ("import torch\nimport keras", {}, "torch"),
        ("import my_package", {}, None),
    ],
)
def test_the_framework_of_a_script(text, variables, framework):
    assert framework_of(text, variables) == framework
