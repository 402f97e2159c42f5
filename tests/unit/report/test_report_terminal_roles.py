"""Golden texts at 80 columns. To renew them after looking at the change: PEAKMEM_RENEW=1 pytest."""

from __future__ import annotations

import os
from io import StringIO
from pathlib import Path

from rich.console import Console

from peakmem.forecast.explain import Explanation, HandCount, Line
from peakmem.forecast.model import Forecast, Gpu, Holder, Peak, StepPeak, Unneeded
from peakmem.report.explain import print_explanation
from peakmem.report.roles import bar
from peakmem.report.terminal import print_forecast

GOLDEN = Path(__file__).parent / "golden"
MIB = 1 << 20


def check(name: str, text: str) -> None:
    """Compare with the golden text."""
    text = "\n".join(line.rstrip() for line in text.splitlines()) + "\n"
    path = GOLDEN / f"{name}.txt"
    if os.environ.get("PEAKMEM_RENEW"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")
    assert max(map(len, text.splitlines())) <= 80


def console() -> Console:
    return Console(file=StringIO(), width=80, highlight=False, color_system=None)


def said(screen: Console) -> str:
    assert isinstance(screen.file, StringIO)
    return screen.file.getvalue()


def holder(role: str, name: str, size: int, **fields: object) -> Holder:
    values = {"module": None, "op": None, "line": None, "shape": (), "dtype": "float32", "step": 1, "phase": "forward"}
    return Holder(role=role, name=name, bytes=size, **{"count": 1, **values, **fields})  # type: ignore[arg-type]


def forecast() -> Forecast:
    holders = (
        holder(
            "activation", "", 300 * MIB, count=24, module="model.layers.*.mlp.act_fn", op="aten::silu",
            line="/home/me/project/train.py:41",
        ),
        holder("parameter", "model.layers.*.mlp.down_proj.weight", 200 * MIB, count=24, line="/home/me/train.py:9"),
        holder(
            "optimizer_state", "exp_avg of model.layers.*.mlp.down_proj.weight", 200 * MIB, count=24,
            line="/home/me/train.py:44",
        ),
        holder("temporary", "", 128 * MIB, module="lm_head", op="LogSoftmaxBackward0", phase="backward"),
        holder("workspace", "scratch of aten::cudnn_convolution", 60 * MIB, module="conv1", op="aten::conv2d"),
        *(holder("buffer", f"norm.{name}", MIB) for name in ("a", "b", "c", "d")),
    )  # fmt: skip
    return Forecast(
        peakmem="0",
        torch="2.14.1+cu130",
        command=("python", "train.py"),
        verdict="fits",
        gpu=Gpu(name="NVIDIA A100-SXM4-80GB", total=85_094_039_552, compute_capability="8.0", usable=84_616_069_120),
        alloc_conf="",
        peak=Peak(
            requested=890 * MIB, allocated=892 * MIB, active=892 * MIB, reserved=1000 * MIB, context=455 * MIB,
            context_error=62 * MIB, used=1455 * MIB, step=1, phase="backward", op="LogSoftmaxBackward0",
            module="lm_head", line="/home/me/train.py:42",
        ),
        steps=tuple(
            StepPeak(
                index=index, requested=890 * MIB, allocated=892 * MIB, active=892 * MIB, reserved=1000 * MIB,
                backwards=1, optimizers=1,
            )
            for index in range(3)
        ),
        steady=True,
        stopped="enough",
        floor=None,
        segments=40,
        retries=0,
        ooms=0,
        oom=None,
        error=None,
        convolution_range=None,
        roles_at_peak={
            "parameter": 200 * MIB, "buffer": 4 * MIB, "gradient": 0, "optimizer_state": 200 * MIB,
            "activation": 300 * MIB, "workspace": 60 * MIB, "temporary": 128 * MIB, "unattributed": 0,
        },
        holders_at_peak=holders,
        unneeded_at_peak=(
            Unneeded(
                what="gradients of the step before",
                bytes=200 * MIB,
                count=24,
                examples=(
                    holder("gradient", "model.layers.0.mlp.down_proj.weight", 8 * MIB),
                    holder("gradient", "model.layers.1.mlp.down_proj.weight", 8 * MIB),
                ),
                remedy="optimizer.zero_grad(set_to_none=True) right after optimizer.step()",
            ),
        ),
        seconds=12.3,
    )  # fmt: skip


def test_a_forecast_with_its_holders():
    screen = console()
    print_forecast(forecast(), screen)
    check("forecast_with_holders", said(screen))


def test_an_explanation():
    count = HandCount(
        batch=256, layers=5, input_elements=256_000, input_bytes=1_024_000, output_elements=104_960,
        output_bytes=419_840, parameters=131_410, parameter_bytes=525_640,
    )  # fmt: skip
    lines = (
        Line(what="input", by_hand=1_024_000, most=2_050_048, at_peak=2_050_048),
        Line(what="outputs of layers, forward", by_hand=419_840, most=700_352, at_peak=0),
        Line(what="their gradients, backward", by_hand=419_840, most=205_824, at_peak=0),
        Line(what="other temporary tensors", by_hand=None, most=528_896, at_peak=512),
        Line(what="weights and biases", by_hand=525_640, most=528_384, at_peak=528_384),
        Line(what="gradients of these", by_hand=None, most=528_384, at_peak=528_384),
        Line(what="optimizer state", by_hand=None, most=1_056_768, at_peak=1_056_768),
        Line(what="workspaces", by_hand=None, most=17_039_360, at_peak=17_039_360),
        Line(what="not attributed", by_hand=None, most=0, at_peak=0),
    )
    explained = Explanation(
        count=count, lines=lines, requested=21_191_972, allocated=21_203_456, workspaces={8_519_680: 2}, scratch={},
        reserved=27_262_976, segments={2 * MIB: 3, 20 * MIB: 1},
    )  # fmt: skip
    peak = Peak(
        requested=21_191_972, allocated=21_203_456, active=21_203_456, reserved=27_262_976, context=477_970_432,
        context_error=62 * MIB, used=505_233_408,
    )  # fmt: skip
    from dataclasses import replace

    screen = console()
    print_explanation(explained, replace(forecast(), peak=peak), screen)
    check("explanation", said(screen))


def test_bars_are_as_long_as_their_share():
    assert bar(0, 10) == ""
    assert bar(1, 10) == "█" * 10
    assert bar(0.55, 10) == "█████▌"
