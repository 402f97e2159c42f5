"""What each chunk of a TensorFlow run is for, and that all sums close."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tensorflow_samples import CALL, Training, one_step

from peakmem.errors import PeakmemError
from peakmem.forecast.holders import at_peak
from peakmem.report.html_data import report_data
from peakmem.trace.file import read_trace, write_trace
from peakmem.trace.holders import Describer
from peakmem.trace.load import load_torch_trace
from peakmem.trace.model import Trace
from peakmem.trace.replay import Replay
from peakmem.trace.roles import ContextKind, Role
from peakmem.trace.tensorflow_log import XLA, plain_name, read_operator, read_shape
from peakmem.trace.tensorflow_recording import phases_between, read_tensorflow_recording

NONE: frozenset[str] = frozenset()


def trace_of(training: Training, **fields: Any) -> Trace:
    trace = read_tensorflow_recording(training.recording(**fields), capacity=2**30, context=2**20)
    assert trace is not None
    return trace


def roles_of(trace: Trace, moment: int | None = None) -> list[tuple[str, str]]:
    """(role, name) of each chunk, in the order in which they were taken."""
    replay = Replay(trace)
    describer = Describer(replay, len(replay) - 1 if moment is None else moment)
    return [(describer.role(n).word, describer.name(n)) for n in range(len(replay.allocations))]


# ------------------------------------------------------------------------- names


@pytest.mark.parametrize(
    ("name", "own", "called"),
    [
        ("StatefulPartitionedCall/adam/Sub_30", "adam/Sub_30", True),
        ("StatefulPartitionedCall_1/PartitionedCall/net/Relu", "net/Relu", True),
        ("while/body/_1/while/StatefulPartitionedCall/net/Relu", "net/Relu", True),
        ("net/Relu-0-1-TransposeNCHWToNHWC-LayoutOptimizer", "net/Relu", False),
        ("StatefulPartitionedCall/AddN_1-2-TransposeNHWCToNCHW-LayoutOptimizer", "AddN_1", True),
        ("IteratorGetNext/_2", "IteratorGetNext", False),
        ("MatMul", "MatMul", False),
        ("while", "while", False),
    ],
)
def test_names_lose_what_tensorflow_put_around_them(name: str, own: str, called: bool) -> None:
    assert plain_name(name) == (own, called)


@pytest.mark.parametrize(
    ("text", "phase", "module"),
    [
        ("StatefulPartitionedCall/net_1/dense_1/Relu:Relu", "forward", "net/dense"),
        ("StatefulPartitionedCall/net_1/dense_1_2/norm/mul/Mul:Mul", "forward", "net/dense_1"),
        ("StatefulPartitionedCall/gradient_tape/net_1/dense_1_2/MatMul/MatMul:MatMul", "backward", "net/dense_1"),
        ("StatefulPartitionedCall/other_1/conv_1/Relu:_FusedConv2D", "forward", "other_1/conv_1"),
        ("StatefulPartitionedCall/gradient_tape/other_1/conv_1/MatMul/MatMul_1:MatMul", "backward", "other_1/conv_1"),
        ("gradients/loss/Mul:Mul", "backward", "loss"),
        ("StatefulPartitionedCall/AddN:AddN", "backward", ""),
        ("StatefulPartitionedCall/adam/Sub_2:Sub", "optimizer", "adam"),
        ("ResourceApplyAdam:ResourceApplyAdam", "optimizer", ""),
        ("MatMul:MatMul", "", ""),
    ],
)
def test_operators_tell_phase_and_layer(text: str, phase: str, module: str) -> None:
    layers = {"net_1": "net", "net_1/dense_1": "net/dense", "net_1/dense_1_2": "net/dense_1"}
    found = read_operator(text, frozenset({"AddN"}), frozenset({"adam/Sub_2"}), layers)
    assert (found.phase, found.module) == (phase, module)
    assert not found.is_copy


def test_what_is_no_operator_is_a_copy_and_a_call_that_takes_chunks_is_compiled() -> None:
    assert read_operator("_EagerConst", NONE, NONE, {}).is_copy
    assert read_operator("IteratorGetNext/_2:_Recv", NONE, NONE, {}).is_copy
    assert not read_operator("", NONE, NONE, {}).is_copy
    assert read_operator("StatefulPartitionedCall:StatefulPartitionedCall", NONE, NONE, {}).type == XLA


@pytest.mark.parametrize(
    ("text", "shape"), [("[64,10]", (64, 10)), ("[7]", (7,)), ("[]", ()), ("", ()), ("[0]", ()), ("[?,3]", ())]
)
def test_shapes(text: str, shape: tuple[int, ...]) -> None:
    assert read_shape(text) == shape


# ------------------------------------------------------------------------- roles


def test_roles_of_a_step() -> None:
    assert roles_of(trace_of(one_step())) == [
        ("parameter", "net/dense/kernel"),
        ("input", "copied from the host"),
        ("activation", ""),
        ("temporary", ""),
        ("gradient", "net/dense/kernel"),
        ("workspace", "scratch of MatMul"),
        ("temporary", ""),
    ]


def test_a_gradient_whose_layer_has_two_weights_of_one_shape_keeps_the_operators_name() -> None:
    training = one_step()
    training.take("other", 4000, "Fill:Fill")
    training.note("other", "parameter", "net/dense/second", (100, 10))
    assert ("gradient", "gradient_tape/net_1/dense_1/MatMul/MatMul_1") in roles_of(trace_of(training))


def test_plans_that_are_tried_out_are_told_apart_from_the_workspace_of_the_chosen_one() -> None:
    training = Training()
    conv = f"{CALL}net/conv/Conv2D:Conv2D"
    for name, region in (("trial", 0), ("chosen", 2)):
        training.take(name, 2**20, conv, region=region)
        training.give(name, conv, running=True)
    assert [name for _, name in roles_of(trace_of(training))] == ["plans tried out by Conv2D", "scratch of Conv2D"]


def test_an_output_that_goes_while_another_operator_runs_is_no_workspace() -> None:
    training = Training()
    training.take("a", 256, f"{CALL}net/Relu:Relu")
    training.give("a", f"{CALL}net/Sum:Sum", running=True)
    training.step()
    assert roles_of(trace_of(training)) == [("temporary", "")]


def test_what_xla_takes_can_not_be_told_apart_but_variables_in_it_can() -> None:
    call = "StatefulPartitionedCall:StatefulPartitionedCall"
    training = Training()
    training.take("all", 2**20, call)
    training.take("weight", 4000, call)
    training.give("all", call, running=True)
    training.step()
    training.note("weight", "parameter", "kernel")
    assert roles_of(trace_of(training)) == [("temporary", "in a function compiled by XLA"), ("parameter", "kernel")]


def test_what_outlives_its_step_and_nobody_knows_is_unattributed_from_then_on() -> None:
    training = Training()
    training.take("kept", 256, f"{CALL}net/Relu:Relu")
    training.step()
    training.take("x", 256, f"{CALL}net/Relu:Relu")
    training.take("y", 256, f"{CALL}net/Relu:Relu")
    training.step()
    trace = trace_of(training)
    assert roles_of(trace, 1)[0] == ("temporary", "")
    assert roles_of(trace)[0] == ("unattributed", "")


def test_outside_of_functions_the_tape_holds_what_is_alive_when_gradients_are_taken() -> None:
    training = Training()
    training.contexts += [(0, "phase", "backward"), (0, "phase", "optimizer")]
    training.take("passing", 256, "Mul:Mul")
    training.give("passing", "z_retval_RetVal:_Retval")
    training.take("hidden", 512, "MatMul:MatMul")
    training.context = 1
    training.take("gradient", 768, "MatMul:MatMul")
    training.note("gradient", "gradient", "w")
    training.give("hidden", "z_retval_RetVal:_Retval")
    training.context = 2
    training.take("update", 768, "Sub:Sub")
    training.give("update", "AssignVariableOp:AssignVariableOp", running=True)
    training.step()
    assert [role for role, _ in roles_of(trace_of(training))] == ["temporary", "activation", "gradient", "temporary"]


def test_the_first_state_of_a_variable_is_its_own_too() -> None:
    training = Training()
    training.take("old", 4000, "Fill:Fill")
    training.note("old", "parameter", "w")
    training.take("new", 4000, f"{CALL}sgd/Sub:Sub")
    training.give("old", f"{CALL}AssignVariableOp:AssignVariableOp", running=True)
    training.step()
    training.note("new", "parameter", "w")
    assert roles_of(trace_of(training)) == [("parameter", "w"), ("parameter", "w")]


# ------------------------------------------------------------------- the whole trace


def test_sums_close_and_steps_and_phases_are_there(tmp_path: Any) -> None:
    training = one_step()
    training.region(2**21)
    training.region(-(2**21))
    trace = trace_of(training)
    held = at_peak(trace)
    assert sum(held.roles.values()) == held.allocated == Replay(trace).peak().allocated
    assert (held.step, held.phase, held.op) == (0, "backward", "MatMul")
    assert held.module == "net/dense"
    replay = Replay(trace)
    assert replay.timeline.reserved.max() == 2**22
    assert replay.timeline.reserved[-1] == 2**21
    spans = [
        (ContextKind(kind).name, trace.strings[name])
        for kind, name in zip(trace.spans.kind, trace.spans.name, strict=True)
    ]
    assert spans == [("STEP", "step"), ("PHASE", "forward"), ("PHASE", "backward"), ("PHASE", "optimizer")]
    path = write_trace(trace, tmp_path / "run.peakmem")
    again = read_trace(path)
    assert again == trace
    assert again.meta.framework == "TensorFlow 2.21.0"
    with pytest.raises(PeakmemError, match=r"peakmem replay works with PyTorch's allocator .* TensorFlow 2.21.0"):
        load_torch_trace(path, what="peakmem replay")


def test_without_a_history_there_is_no_trace() -> None:
    assert read_tensorflow_recording(one_step().recording(events=b"")) is None


def test_that_variables_could_not_be_looked_at_is_told() -> None:
    recording = one_step().recording()
    recording["tensorflow"]["failure"] = "AttributeError: path"
    trace = read_tensorflow_recording(recording)
    assert trace is not None
    assert trace.meta.notes == ("roles are incomplete, since looking at variables failed: AttributeError: path",)


def test_phases_lie_one_after_the_other_whatever_the_order_of_the_operators() -> None:
    order = ["", "forward", "backward", "optimizer", "forward", "backward", "optimizer", ""]
    assert phases_between(order, 0, len(order)) == [("forward", 1, 2), ("backward", 2, 6), ("optimizer", 6, 8)]
    assert phases_between(["forward", ""], 0, 2) == [("forward", 0, 2)]
    assert phases_between(["", ""], 0, 2) == []


_OPS = st.sampled_from(
    [
        f"{CALL}net/Relu:Relu", f"{CALL}gradient_tape/net/Relu/ReluGrad:ReluGrad", f"{CALL}adam/Sub:Sub", "_EagerConst",
        "StatefulPartitionedCall:StatefulPartitionedCall", "Mul:Mul", "",
    ]
)  # fmt: skip


@given(
    st.lists(
        st.tuples(st.integers(0, 9), st.integers(1, 5000), _OPS, st.integers(0, 4), st.booleans(), st.integers(0, 3)),
        min_size=1, max_size=60,
    )
)  # fmt: skip
def test_at_every_moment_roles_add_up_to_what_is_handed_out(actions: list[tuple[Any, ...]]) -> None:
    training = Training()
    live: list[str] = []
    for number, (which, size, op, region, running, what) in enumerate(actions):
        training.thread = which % 2
        if what == 3:
            training.step()
        elif what == 2 and live:
            training.give(live.pop(which % len(live)), op, running=running)
        else:
            live.append(f"chunk{number}")
            training.take(live[-1], size, op, region=region, running=running)
    recording = training.recording()
    trace = read_tensorflow_recording(recording)
    if not training.now:
        assert trace is None
        return
    assert trace is not None
    replay = Replay(trace)
    totals = np.frombuffer(recording["events"], dtype=[("a", "u8"), ("s", "i8"), ("total", "u8"), ("rest", "V16")])
    assert replay.timeline.allocated.max() == totals["total"].max()
    assert (replay.by_role().sum(axis=0) == replay.timeline.allocated).all()
    assert set(np.unique(trace.owners.role)) <= set(map(int, Role))


def test_the_html_report_names_the_framework_and_splits_keras_paths() -> None:
    data = report_data(trace_of(one_step()), title="run")
    assert data.framework == "TensorFlow 2.21.0"
    assert data.torch == ""
    parameters = next(part for part in data.tree.parts if part.name == "parameter")
    assert [part.name for part in parameters.parts] == ["net"]
    assert [part.name for part in parameters.parts[0].parts] == ["dense"]
