"""What a forecast of TensorFlow says beside the figures."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from peakmem.forecast.model import Forecast, Gpu, Holder, Peak, StepPeak
from peakmem.forecast.tensorflow import with_tensorflow

MIB = 2**20


def forecast(**fields: Any) -> Forecast:
    return replace(
        Forecast(
            peakmem="0", torch="", command=("python", "t.py"), verdict="fits",
            gpu=Gpu(name="card", total=1000 * MIB, compute_capability="8.0", usable=900 * MIB), alloc_conf="",
            peak=Peak(
                requested=90 * MIB, allocated=100 * MIB, active=100 * MIB, reserved=128 * MIB, context=MIB,
                context_error=0, used=129 * MIB,
            ),
            steps=tuple(
                StepPeak(
                    index=i, requested=None, allocated=size * MIB, active=None, reserved=128 * MIB, backwards=0,
                    optimizers=1,
                )
                for i, size in enumerate((100, 40, 40))
            ),
            steady=True, stopped="end", floor=None, segments=1, retries=0, ooms=0, oom=None, error=None,
            convolution_range=None, framework="TensorFlow 2.21.0",
        ),
        **fields,
    )  # fmt: skip


def told(*, growth: bool = True, reserved: int = 128, allocated: int = 100, **roles: int) -> dict[str, Any]:
    peak = {"reserved": reserved * MIB, "allocated": allocated * MIB}
    return {"tensorflow": {"growth": growth, "roles": roles}, "devices": [{"peak": peak}]}


def holder(name: str, size: int) -> Holder:
    return Holder(
        role="workspace", name=name, module="conv", op="Conv2D", line=None, shape=(), dtype="", step=0, phase="forward",
        count=1, bytes=size,
    )  # fmt: skip


def test_by_default_it_takes_the_card_and_the_rest_is_with_growth() -> None:
    made = with_tensorflow(forecast(), first=told(growth=False, reserved=800, allocated=90), need=told())
    assert made.notes == (
        "by default TensorFlow takes 800.00 MiB of this card at its start, whatever it needs; reserved and used are "
        "with TF_FORCE_GPU_ALLOW_GROWTH=true",
        "as the script is, 94,371,840 bytes are in use at the peak: larger chunks are split otherwise",
    )


def test_a_script_with_growth_has_nothing_to_be_told() -> None:
    assert with_tensorflow(forecast(), first=told(), need=told()).notes == ()


def test_without_a_history_roles_come_from_the_variables_and_add_up() -> None:
    made = with_tensorflow(forecast(), first=told(), need=told(parameter=30 * MIB, optimizer_state=90 * MIB, buffer=1))
    assert made.roles_at_peak == {
        "parameter": 30 * MIB,
        "buffer": 1,
        "gradient": 0,
        "optimizer_state": 70 * MIB - 1,
        "unattributed": 0,
    }


def test_roles_of_the_history_stay() -> None:
    roles = {"parameter": 100 * MIB}
    made = with_tensorflow(forecast(roles_at_peak=roles), first=told(), need=told(parameter=7))
    assert made.roles_at_peak == roles


def test_plans_that_make_the_peak_are_told_with_what_later_steps_take() -> None:
    holders = (holder("plans tried out by Conv2D", 60 * MIB), holder("scratch of Conv2D", 30 * MIB))
    (note,) = with_tensorflow(forecast(holders_at_peak=holders), first=told(), need=told()).notes
    assert note.startswith("60.00 MiB of the peak are workspaces of convolution plans")
    assert "later steps take 40.00 MiB" in note
    small = (holder("plans tried out by Conv2D", 9 * MIB),)
    assert with_tensorflow(forecast(holders_at_peak=small), first=told(), need=told()).notes == ()


def test_kernels_that_xla_tries_out_in_the_first_step_are_told() -> None:
    made = forecast(holders_at_peak=(holder("in a function compiled by XLA", 90 * MIB),))
    first = replace(made, peak=replace(made.peak, step=0))
    (note,) = with_tensorflow(first, first=told(), need=told()).notes
    assert note.startswith(
        "the peak is one of the first step, in which XLA tries out kernels; later steps take 40.00 MiB"
    )
    later = replace(made, peak=replace(made.peak, step=1))
    assert with_tensorflow(later, first=told(), need=told()).notes == ()
