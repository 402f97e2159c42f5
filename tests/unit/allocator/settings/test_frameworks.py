"""Variables and calls that steer the memory of TensorFlow and JAX: judged, and looked for in scripts."""

from __future__ import annotations

import pytest

from peakmem.allocator.settings.frameworks import VARIABLES, check, meant
from peakmem.allocator.settings.lint import Level, lint_source


def remarks(source: str) -> list[tuple[int, Level, str]]:
    return [(remark.line, remark.level, remark.text) for remark in lint_source(source)]


@pytest.mark.parametrize(
    ("name", "value", "accepted"),
    [
        ("TF_FORCE_GPU_ALLOW_GROWTH", "true", True),
        ("TF_FORCE_GPU_ALLOW_GROWTH", "false", True),
        # TensorFlow 2.21.0 logs "could not be parsed" for these two, tried on the virtual GPU.
        ("TF_FORCE_GPU_ALLOW_GROWTH", "True", False),
        ("TF_FORCE_GPU_ALLOW_GROWTH", "1", False),
        ("TF_GPU_ALLOCATOR", "cuda_malloc_async", True),
        ("TF_GPU_ALLOCATOR", "cudaMallocAsync", False),
        ("TF_GPU_HOST_MEM_LIMIT_IN_MB", "4096", True),
        ("TF_GPU_HOST_MEM_LIMIT_IN_MB", "4GB", False),
        ("TF_ENABLE_GPU_GARBAGE_COLLECTION", "false", True),
        ("XLA_PYTHON_CLIENT_PREALLOCATE", "false", True),
        ("XLA_PYTHON_CLIENT_PREALLOCATE", "off", False),
        ("XLA_CLIENT_MEM_FRACTION", ".5", True),
        ("XLA_PYTHON_CLIENT_MEM_FRACTION", "75", False),
        ("XLA_PYTHON_CLIENT_MEM_FRACTION", "half", False),
        ("XLA_PYTHON_CLIENT_ALLOCATOR", "Platform", True),
        ("XLA_PYTHON_CLIENT_ALLOCATOR", "cuda_malloc_async", False),
    ],
)
def test_values(name, value, accepted):
    verdict = check(name, value)
    assert verdict is not None
    assert verdict.accepted is accepted
    assert bool(verdict.suggestion) is not accepted


def test_a_variable_of_nobody_is_not_judged():
    assert check("TF_CPP_MIN_LOG_LEVEL", "3") is None
    assert all(variable.judge("").text for variable in VARIABLES.values())


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("TF_FORCE_GPU_ALLOW_GROWHT", "TF_FORCE_GPU_ALLOW_GROWTH"),
        ("XLA_PYTHON_CLIENT_PREALLOC", "XLA_PYTHON_CLIENT_PREALLOCATE"),
        ("TF_CPP_MIN_LOG_LEVEL", None),
        ("TF_FORCE_GPU_ALLOW_GROWTH", None),
        ("PATH", None),
    ],
)
def test_misspelt_names(name, near):
    assert meant(name) == near


def test_growth_in_time_is_fine():
    source = (
        "import os\nos.environ['TF_FORCE_GPU_ALLOW_GROWTH'] = 'true'\nimport tensorflow as tf\n"
        "for gpu in tf.config.list_physical_devices('GPU'):\n"
        "    tf.config.experimental.set_memory_growth(gpu, True)\nx = tf.constant(1.0)\n"
    )
    assert remarks(source) == []


def test_after_the_import_is_in_time_after_an_operation_is_not():
    late = "import os\nimport tensorflow as tf\n{}os.environ['TF_GPU_ALLOCATOR'] = 'cuda_malloc_async'\n"
    assert remarks(late.format("")) == []
    ((line, level, text),) = remarks(late.format("x = tf.zeros((2, 2))\n"))
    assert (line, level) == (4, Level.ERROR)
    assert text.startswith("Too late: TF_GPU_ALLOCATOR is read when TensorFlow sets up the GPU")
    assert "tf.zeros comes before, on line 3" in text


def test_set_memory_growth_after_an_operation():
    ((line, level, text),) = remarks(
        "import tensorflow as tf\nmodel = tf.keras.Sequential([])\n"
        "tf.config.experimental.set_memory_growth(gpus[0], True)\n"
    )
    assert (line, level) == (3, Level.ERROR)
    assert "RuntimeError" in text


def test_growth_and_a_limit():
    growth = "tf.config.experimental.set_memory_growth(gpu, True)\n"
    limit = "tf.config.set_logical_device_configuration(gpu, [limit])\n"
    ((line, _, text),) = remarks("import tensorflow as tf\n" + limit + growth)
    assert line == 3
    assert "ValueError" in text
    assert remarks("import tensorflow as tf\n" + growth + limit) == []


def test_options_of_version_1():
    found = remarks(
        "import tensorflow as tf\nconfig = tf.compat.v1.ConfigProto()\n"
        "config.gpu_options.allow_growth = True\n"
        "options = tf.compat.v1.GPUOptions(per_process_gpu_memory_fraction=1.5)\n"
    )
    assert [line for line, _, _ in found] == [3, 4, 4]
    assert all(level is Level.WARNING for _, level, _ in found)
    assert "managed memory" in found[1][2]


def test_jax():
    found = remarks(
        "import os, jax\nimport jax.numpy as jnp\nx = jnp.ones(3)\n"
        "os.environ['XLA_PYTHON_CLIENT_PREALLOCATE'] = 'no'\n"
        "os.environ['XLA_PYTHON_CLIENT_MEM_FRACTION'] = '.5'\nos.environ['XLA_CLIENT_MEM_FRACTION'] = '.5'\n"
    )
    texts = [(line, text) for line, _, text in found]
    assert [line for line, _ in texts] == [4, 4, 5, 6, 6]
    assert "'no' counts as true" in texts[1][1]
    assert "ValueError" in texts[4][1]


def test_a_shell_of_its_own_and_a_misspelt_name():
    found = remarks(
        "import os\nos.system('export TF_FORCE_GPU_ALLOW_GROWTH=true')\n"
        "os.environ['TF_FORCE_GPU_ALLOW_GROWT'] = 'true'\n"
    )
    assert "a shell that ends at once" in found[0][2]
    assert found[1][2] == "nothing reads TF_FORCE_GPU_ALLOW_GROWT."


def test_pytorch_is_judged_as_before():
    ((line, _, text),) = remarks(
        "import torch, os\nx = torch.ones(1).cuda()\nos.environ['PYTORCH_CUDA_ALLOC_CONF'] = 'max_split_size_mb:64'\n"
    )
    assert line == 3
    assert text.startswith("Too late: CUDA is used before")
