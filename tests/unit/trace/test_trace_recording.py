"""From recordings to traces, on small programs made by hand."""

from __future__ import annotations

import pytest
from recorded_samples import Program

from peakmem.trace.model import Trace
from peakmem.trace.operators import operations
from peakmem.trace.recording import read_recording
from peakmem.trace.recording_log import Log
from peakmem.trace.replay import Replay
from peakmem.trace.roles import ContextKind, Role


@pytest.fixture
def program() -> Program:
    return Program()


def trace_of(program: Program) -> Trace:
    trace = read_recording(program.recording(), capacity=1 << 30, context=100)
    assert trace is not None
    return trace


def roles_of(program: Program, moment: int | None = None) -> dict[str, str]:
    """Name (or role) of each owner alive at the end or after so many rows of the trace, with its role."""
    trace = trace_of(program)
    replay = Replay(trace)
    at = len(trace.events) if moment is None else moment
    rows = replay.owner_rows(at)
    return {
        trace.strings[int(trace.owners.name[rows[number]])]: Role(int(trace.owners.role[rows[number]])).word
        for number in replay.alive(at)
    }


def one_role(program: Program) -> tuple[Role, str]:
    """Role and name of the first allocation at its birth."""
    owners = trace_of(program).owners
    return Role(int(owners.role[0])), trace_of(program).strings[int(owners.name[0])]


def test_block_sizes_and_books_are_those_of_the_log(program):
    program.take("a", 1000)
    program.take("b", 3000)
    program.give("a")
    trace = trace_of(program)
    replay = Replay(trace)
    peak = replay.peak()
    assert (peak.requested, peak.allocated, peak.reserved, peak.used) == (4000, 1024 + 3072, 1 << 24, (1 << 24) + 100)
    assert replay.at(len(trace.events)).allocated == 3072
    assert trace.meta.notes == ()
    assert (trace.meta.source, trace.meta.devices[0].capacity) == ("recording", 1 << 30)


def test_without_a_history_there_is_no_trace(program):
    assert read_recording({**program.recording(), "snapshot": None}) is None


def test_histories_that_do_not_agree_are_told(program):
    program.take("a")
    recording = program.recording()
    recording["snapshot"]["device_traces"][0][-1]["addr"] += 512
    trace = read_recording(recording)
    assert trace is not None
    assert any("don't agree" in note for note in trace.meta.notes)


def test_the_users_line_is_kept_and_our_frames_are_not(program):
    program.take("a", line=12)
    trace = trace_of(program)
    frames = [trace.frame(index) for index in range(len(trace.frames))]
    assert [(frame.filename, frame.line) for frame in frames] == [("/home/me/train.py", 12)]


@pytest.mark.parametrize(
    ("roles", "wins"),
    [
        (["activation", "parameter"], Role.PARAMETER),
        (["input", "parameter"], Role.PARAMETER),
        (["activation", "buffer"], Role.BUFFER),
        (["output", "activation"], Role.ACTIVATION),
        (["activation", "input"], Role.INPUT),
        (["activation", "gradient"], Role.GRADIENT),
        (["activation", "autocast_copy"], Role.AUTOCAST_COPY),
        (["output"], Role.TEMPORARY),
    ],
)
def test_of_several_notes_the_one_that_lasts_wins(program, roles, wins):
    program.take("a")
    for role in roles:
        program.note("a", role, role, "Model")
    assert one_role(program)[0] is wins


def test_a_note_is_of_the_block_that_was_there_then(program):
    program.take("first")
    program.note("first", "gradient", "weight", "Model")
    program.give("first")
    program.take("second")  # at the same address
    program.begin("aten::add")
    program.end()
    trace = trace_of(program)
    assert [Role(role) for role in trace.owners.role.tolist()] == [Role.GRADIENT, Role.TEMPORARY]


def test_what_a_module_makes_is_no_input_of_another(program):
    before = program.module("Generator")
    program.take("fake")
    program.context = before
    program.note("fake", "input", "x", "Critic")
    assert one_role(program)[0] is Role.TEMPORARY


def test_what_is_copied_from_the_host_and_saved_is_an_input(program):
    program.take("labels")
    program.use("labels", 3)
    program.note("labels", "activation", "NllLossBackward0.target")
    assert one_role(program) == (Role.INPUT, "copied from the host")


def test_a_leaf_without_a_name_that_is_passed_to_a_model_is_an_input(program):
    program.take("x")
    program.note("x", "input", "x", "Model")
    program.note("x", "parameter")
    assert one_role(program) == (Role.INPUT, "x of Model")


def test_saved_tensors_that_outlive_the_backward_pass_change_their_role(program):
    program.take("logits")
    program.mark("backward", retained=False)
    program.note("logits", "activation", "Loss.self")
    program.take("gradient")
    program.mark("backward_end")
    during = len(trace_of(program).events)
    program.take("later")
    assert roles_of(program, during)["Loss.self"] == "activation"
    assert roles_of(program)["kept after the backward pass: Loss.self"] == "temporary"


def test_a_graph_that_is_retained_keeps_its_activations(program):
    program.take("saved")
    program.mark("backward", retained=True)
    program.note("saved", "activation", "Loss.self")
    program.take("gradient")
    program.mark("backward_end")
    assert roles_of(program)["Loss.self"] == "activation"


def test_what_an_operator_gives_back_before_it_ends_is_its_workspace(program):
    program.begin("aten::sort")
    program.begin("aten::empty")
    program.take("scratch")
    program.end()
    program.begin("aten::empty")
    program.take("result")
    program.end()
    program.give("scratch")
    program.end()
    trace = trace_of(program)
    assert [Role(role) for role in trace.owners.role.tolist()] == [Role.WORKSPACE, Role.TEMPORARY]
    assert trace.strings[int(trace.owners.name[0])] == "scratch of aten::sort"


def test_what_a_part_of_an_operator_gives_is_temporary_and_no_workspace(program):
    program.begin("aten::linear")
    program.begin("aten::clone")
    program.take("copy")
    program.end()
    program.begin("aten::addmm")
    program.take("result")
    program.end()
    program.give("copy")
    program.end()
    assert one_role(program)[0] is Role.TEMPORARY


def test_workspaces_that_libraries_are_given(program):
    program.take("workspace")
    program.use("workspace", 1)
    assert one_role(program) == (Role.WORKSPACE, "cuBLAS workspace")


def test_what_goes_with_the_autocast_cache_is_a_copy_of_a_weight(program):
    program.take("bias")
    first = program.now
    program.give("bias")
    program.autocast.append((first, program.now))
    assert one_role(program)[0] is Role.AUTOCAST_COPY


def test_what_stays_for_no_known_reason_is_unattributed_once_its_step_is_over(program):
    program.take("kept")
    program.step()
    at_the_end_of_the_step = len(trace_of(program).events)
    program.take("later")
    program.note("later", "parameter", "weight", "Model")
    program.step()
    assert set(roles_of(program, at_the_end_of_the_step).values()) == {"temporary"}
    assert roles_of(program) == {"": "unattributed", "weight": "parameter"}


def test_parameters_in_one_block_share_a_name(program):
    program.take("flat")
    for name in ("lstm.weight_ih_l0", "lstm.weight_hh_l0", "lstm.bias_ih_l0"):
        program.note("flat", "parameter", name, "Model")
    assert one_role(program) == (Role.PARAMETER, "lstm.* (3 in one block)")


def test_a_state_dict_that_is_loaded(program):
    program.take("copy")
    program.note("copy", "loaded", "head.weight", "Model")
    assert one_role(program) == (Role.TEMPORARY, "state dict being loaded: head.weight")


def test_contexts_say_step_phase_module_and_operator(program):
    before = program.module("layers.0")
    program.begin("aten::linear")
    program.take("y")
    program.end()
    program.context = before
    program.mark("backward", retained=False)
    program.begin("autograd::engine::evaluate_function: AddmmBackward0")
    program.begin("AddmmBackward0")
    program.begin("aten::mm")
    program.take("g")
    program.end()
    program.end()
    program.end()
    program.mark("backward_end")
    program.mark("optimizer", optimizer="SGD")
    program.begin("aten::_foreach_add_")
    program.take("t")
    program.end()
    program.mark("optimizer_end")
    program.step()
    program.take("next")
    trace = trace_of(program)
    rows = trace.events.context[trace.events.action == 0].tolist()
    told = [
        (
            trace.context_step(row),
            trace.context_name(row, ContextKind.PHASE),
            trace.context_name(row, ContextKind.MODULE),
            trace.context_name(row, ContextKind.OP),
        )
        for row in rows
    ]
    assert told == [
        (0, "forward", "layers.0", "aten::linear"),
        (0, "backward", "", "AddmmBackward0"),
        (0, "optimizer", "", "aten::_foreach_add_"),
        (1, "other", "", ""),
    ]
    spans = [(trace.strings[n], i) for n, i in zip(trace.spans.name, trace.spans.number, strict=True)]
    assert spans == [("step", 0), ("forward", 0), ("backward", 0), ("optimizer", 0)]


def test_a_step_inside_an_optimizers_closure(program):
    program.mark("optimizer", optimizer="LBFGS")
    before = program.module("model")
    program.take("y")
    program.context = before
    program.mark("backward", retained=False)
    program.take("g")
    program.mark("backward_end")
    program.take("state")
    program.mark("optimizer_end")
    trace = trace_of(program)
    rows = trace.events.context[trace.events.action == 0].tolist()
    assert [trace.context_name(row, ContextKind.PHASE) for row in rows] == ["forward", "backward", "optimizer"]


def test_operators_are_those_of_the_same_thread(program):
    program.begin("aten::mul")
    program.take("mine")
    program.thread = 1
    program.take("other")
    program.thread = 0
    program.end()
    ran = operations(Log(program.recording()))
    assert [operation.outer for operation in ran] == ["aten::mul", ""]


def test_a_mode_written_in_python_is_no_operator(program):
    program.begin("PythonDispatchMode")
    program.begin("aten::mul")
    program.take("y")
    program.end()
    program.end()
    (ran,) = operations(Log(program.recording()))
    assert (ran.outer, ran.inner, ran.node) == ("aten::mul", "aten::mul", "")


def test_what_is_given_to_nccl_is_a_communication_buffer_unless_it_is_more(program):
    program.take("bucket")
    program.use("bucket", 4)
    program.take("gradient")
    program.use("gradient", 4)
    program.note("gradient", "gradient", "weight", "Model")
    owners = trace_of(program).owners
    assert [Role(role) for role in owners.role.tolist()] == [Role.COMMUNICATION, Role.GRADIENT]
