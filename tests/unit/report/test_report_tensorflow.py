"""A forecast of TensorFlow as text. To renew it after looking at the change: PEAKMEM_RENEW=1 pytest."""

from __future__ import annotations

import os
from io import StringIO
from pathlib import Path

from rich.console import Console

from peakmem.forecast.host import Host, HostPart
from peakmem.forecast.model import Forecast, Gpu, Holder, Peak, StepPeak
from peakmem.forecast.tensorflow import with_tensorflow
from peakmem.report.terminal import print_forecast

GOLDEN = Path(__file__).parent / "golden" / "tensorflow.txt"
MIB = 1 << 20


def holder(role: str, name: str, size: int, *, module: str, op: str, count: int = 1) -> Holder:
    return Holder(
        role=role, name=name, module=module, op=op, line=None, shape=(), dtype="float32", step=0, phase="backward",
        count=count, bytes=size,
    )  # fmt: skip


def host() -> Host:
    parts = (
        HostPart(name="libraries", bytes=385 * MIB, source="measured", note="mapped files of Python and TensorFlow"),
        HostPart(name="interpreter", bytes=172 * MIB, source="measured", note="after import tensorflow"),
        HostPart(name="objects and tensors", bytes=150 * MIB, source="measured", note="models and data on the host"),
        HostPart(name="driver", bytes=114 * MIB, source="estimated", note="libcuda and its context"),
        HostPart(
            name="CUDA libraries", bytes=190 * MIB, source="measured",
            note="cuBLAS and others, which a GPU's process loads; measured beside it",
        ),
    )  # fmt: skip
    peak = sum(part.bytes for part in parts)
    return Host(
        peak_rss=peak,
        tree_rss=peak,
        parts=parts,
        driver=114 * MIB,
        driver_error=114 * MIB,
        per_rank=peak,
        node_peak=peak,
    )


def forecast() -> Forecast:
    roles = {
        "parameter": 20 * MIB, "gradient": 8 * MIB, "optimizer_state": 40 * MIB, "activation": 200 * MIB,
        "input": 12 * MIB, "workspace": 300 * MIB, "temporary": 60 * MIB,
    }  # fmt: skip
    made = Forecast(
        peakmem="0.1.0",
        torch="",
        command=("python", "train.py"),
        verdict="fits",
        gpu=Gpu(name="NVIDIA A100-SXM4-80GB", total=81_155 * MIB, compute_capability="8.0", usable=80_630 * MIB),
        alloc_conf="",
        peak=Peak(
            requested=600 * MIB, allocated=640 * MIB, active=640 * MIB, reserved=1024 * MIB, context=525 * MIB,
            context_error=131 * MIB, used=1549 * MIB, step=0, phase="backward", op="Conv2DBackpropInput",
            module="net/conv2d_1",
        ),
        steps=tuple(
            StepPeak(
                index=index, requested=None, allocated=size * MIB, active=None, reserved=1024 * MIB, backwards=0,
                optimizers=1,
            )
            for index, size in enumerate((640, 340, 340))
        ),
        steady=True, stopped="enough", floor=None, segments=7, retries=0, ooms=0, oom=None, error=None,
        convolution_range=None,
        roles_at_peak=roles,
        holders_at_peak=(
            holder("workspace", "plans tried out by Conv2DBackpropInput", 300 * MIB, module="net/conv2d_1",
                   op="Conv2DBackpropInput", count=3),
            holder("activation", "", 120 * MIB, module="net/conv2d_*", op="_FusedConv2D", count=2),
            holder(
                "optimizer_state", "velocity of net/dense/kernel", 20 * MIB, module="adam", op="AssignAddVariableOp"
            ),
            holder("gradient", "net/dense/kernel", 8 * MIB, module="net/dense", op="MatMul"),
        ),
        host=host(),
        seconds=16.0,
        framework="TensorFlow 2.21.0",
    )  # fmt: skip
    whole = {"reserved": 79_165 * MIB, "allocated": 610 * MIB}
    first = {"tensorflow": {"growth": False, "roles": {}}, "devices": [{"peak": whole}]}
    return with_tensorflow(made, first=first, need=first)


def test_a_forecast_of_tensorflow() -> None:
    screen = Console(file=StringIO(), width=80, highlight=False, color_system=None)
    print_forecast(forecast(), screen)
    assert isinstance(screen.file, StringIO)
    text = screen.file.getvalue()
    if os.environ.get("PEAKMEM_RENEW"):
        GOLDEN.write_text(text, encoding="utf-8")
    assert text == GOLDEN.read_text(encoding="utf-8")
    assert max(map(len, text.splitlines())) <= 80
