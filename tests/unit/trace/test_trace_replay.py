from __future__ import annotations

import numpy as np
import pytest
from training_trace import CONTEXT, LAYERS, training_trace

from peakmem.trace.builder import Interner
from peakmem.trace.holders import BEFORE, Describer, alike, holders, module_of_name
from peakmem.trace.model import Frame, Trace
from peakmem.trace.replay import Replay
from peakmem.trace.roles import Action, Role
from peakmem.trace.tables import Blocks, Events, Owners
from peakmem.trace.where import explain_stack


def simple_sums(trace: Trace) -> dict[str, list[int]]:
    """Allocated and reserved, event by event, in the plainest way."""
    allocated, reserved = [0], [0]
    for action, size, block in zip(trace.events.action, trace.events.size, trace.events.block_size, strict=True):
        allocated.append(allocated[-1] + int({0: block, 1: -block}.get(int(action), 0)))
        reserved.append(reserved[-1] + int({3: size, 4: -size}.get(int(action), 0)))
    return {"allocated": allocated, "reserved": reserved}


def test_the_timeline_equals_a_plain_loop() -> None:
    trace = training_trace()
    replay, plain = Replay(trace), simple_sums(trace)
    assert replay.timeline.allocated.tolist() == plain["allocated"]
    assert replay.timeline.reserved.tolist() == plain["reserved"]
    assert replay.peak().allocated == max(plain["allocated"])
    assert replay.peak_moment() == int(np.argmax(plain["allocated"]))


def test_the_books_close_with_the_context() -> None:
    peak = Replay(training_trace()).peak()
    assert peak.requested + peak.rounding == peak.allocated
    assert peak.allocated + peak.pending == peak.active
    assert peak.active + peak.stranded == peak.reserved
    assert (peak.context, peak.used) == (CONTEXT, peak.reserved + CONTEXT)


def test_roles_add_up_to_allocated_at_every_moment() -> None:
    replay = Replay(training_trace())
    assert np.array_equal(replay.by_role().sum(axis=0), replay.timeline.allocated)


def test_roles_at_the_peak_are_those_of_the_model() -> None:
    replay = Replay(training_trace(steps=3))
    end = len(replay) - 1
    roles = replay.by_role()[:, end]
    rounded = -(-512 * 900 * 4 // 512) * 512
    assert roles[Role.PARAMETER] == len(LAYERS) * rounded
    assert roles[Role.ACTIVATION] == roles[Role.GRADIENT] == 0


def test_an_owner_that_changes_moves_the_bytes_to_its_new_role() -> None:
    events = Events.from_rows(
        [
            {"action": Action.ALLOC, "address": 512, "size": 100, "block_size": 512},
            {"action": Action.ALLOC, "address": 2048, "size": 600, "block_size": 1024},
            {"action": Action.FREE_REQUESTED, "address": 512, "size": 100, "block_size": 512},
        ]
    )
    owners = Owners.from_rows(
        [
            {"allocation": 0, "since": 0, "role": Role.TEMPORARY},
            {"allocation": 0, "since": 1, "role": Role.ACTIVATION},
            {"allocation": 1, "since": 1, "role": Role.GRADIENT},
        ]
    )
    replay = Replay(Trace(events=events, owners=owners))
    series = replay.by_role()
    assert series[Role.TEMPORARY].tolist() == [0, 512, 0, 0]
    assert series[Role.ACTIVATION].tolist() == [0, 0, 512, 0]
    assert series[Role.GRADIENT].tolist() == [0, 0, 1024, 1024]
    assert [int(role) for role in replay.roles(1)] == [Role.TEMPORARY, Role.GRADIENT]
    assert [int(role) for role in replay.roles(2)] == [Role.ACTIVATION, Role.GRADIENT]


def test_a_block_that_waits_at_the_start_is_active_and_not_allocated() -> None:
    initial = Blocks.from_rows([{"address": 512, "size": 512, "requested": 8, "pending": 1}])
    events = Events.from_rows([{"action": Action.FREE_COMPLETED, "address": 512, "size": 8, "block_size": 512}])
    replay = Replay(Trace(initial=initial, events=events))
    assert (replay.timeline.allocated.tolist(), replay.timeline.active.tolist()) == ([0, 0], [512, 0])
    assert replay.alive(0).tolist() == [] and replay.alive(0, include_pending=True).tolist() == [0]


def test_an_empty_trace_is_zero() -> None:
    replay = Replay(Trace())
    assert len(replay) == 1
    assert replay.peak().reserved == 0 and holders(replay, 0) == []


def test_holders_add_up_to_allocated_and_name_everything() -> None:
    replay = Replay(training_trace())
    peak = replay.peak()
    found = holders(replay, peak.index)
    assert sum(holder.size for holder in found) == peak.allocated
    assert sum(holder.requested for holder in found) == peak.requested
    weight = next(holder for holder in found if holder.name == "encoder.layers.2.mlp.weight")
    assert weight.role is Role.PARAMETER or weight.role is Role.GRADIENT
    assert (weight.shape, weight.dtype, weight.line) == ((512, 900), "float32", "train.py:12 build")
    assert {holder.module for holder in found if holder.role is Role.ACTIVATION} <= set(LAYERS)


def test_steps_and_phases_are_found_around_an_event() -> None:
    trace = training_trace()
    context = int(trace.events.context[-1])
    assert trace.context_step(context) == 2
    assert trace.context_step(0) == -1


def test_blocks_of_before_the_recording_are_called_that() -> None:
    replay = Replay(Trace(initial=Blocks.from_rows([{"address": 512, "size": 512, "requested": 8}])))
    assert Describer(replay, 0).line(0) == BEFORE


@pytest.mark.parametrize(
    ("frames", "short", "op", "node"),
    [
        (
            [
                ("??", 0, "at::_ops::addmm::call(at::Tensor const&)"),
                ("/v/site-packages/torch/nn/linear.py", 5, "forward"),
                ("/me/model.py", 7, "forward"),
                ("/me/train.py", 9, "<module>"),
            ],
            "model.py:7 forward",
            "aten::addmm",
            "",
        ),
        (
            [
                ("??", 0, "at::_ops::mm::redispatch()"),
                ("??", 0, "torch::autograd::generated::MmBackward0::apply(std::vector<>)"),
            ],
            "backward of Mm",
            "aten::mm",
            "MmBackward0",
        ),
        ([("/v/site-packages/torch/a.py", 1, "f"), ("/v/lib/python3.12/runpy.py", 2, "g")], "runpy.py:2 g", "", ""),
        (
            [("/v/site-packages/transformers/gpt.py", 3, "h"), ("/v/site-packages/torch/a.py", 1, "f")],
            "gpt.py:3 h",
            "",
            "",
        ),
        ([("<ipython-input-3-abc>", 4, "<module>")], "<ipython-input-3-abc>:4 <module>", "", ""),
        ([("torch/nn/modules/module.py", 3, "_call_impl"), ("train.py", 4, "main")], "train.py:4 main", "", ""),
        ([("/home/me/torch/train.py", 4, "main")], "train.py:4 main", "", ""),
        ([], "", "", ""),
    ],
)
def test_a_stack_names_the_users_line(frames: list[tuple[str, int, str]], short: str, op: str, node: str) -> None:
    where = explain_stack(tuple(Frame(*frame) for frame in frames))
    assert (where.short, where.op, where.node) == (short, op, node)


def test_the_interner_gives_equal_things_one_number() -> None:
    names = Interner()
    frame = names.frame("a.py", 1, "f")
    assert names.frame("a.py", 1, "f") == frame
    assert names.stack([frame, frame]) == names.stack([frame, frame]) == 1
    assert names.stack([]) == 0
    assert names.stacks[1].tolist() == [frame, frame]
    with pytest.raises(IndexError):
        names.stacks[2]


@pytest.mark.parametrize(
    ("role", "name", "module", "rest"),
    [
        (Role.PARAMETER, "encoder.layers.0.weight", "encoder.layers.0", "weight"),
        (Role.GRADIENT, "weight", "", "weight"),
        (Role.OPTIMIZER_STATE, "exp_avg of a.b.bias", "a.b", "exp_avg of bias"),
        (Role.OPTIMIZER_STATE, "exp_avg of wte.weight = lm_head.weight", "wte", "exp_avg of weight"),
        (Role.PARAMETER, "wte.weight = lm_head.weight", "wte", "weight"),
        (Role.ACTIVATION, "aten.pow", "", "aten.pow"),
    ],
)
def test_names_tell_their_module(role: Role, name: str, module: str, rest: str) -> None:
    assert module_of_name(role, name) == (module, rest)


def test_layers_are_put_together_and_the_sums_stay() -> None:
    replay = Replay(training_trace())
    found = holders(replay, replay.peak_moment())
    together = alike(found)
    assert sum(holder.size for holder in together) == sum(holder.size for holder in found)
    assert sum(holder.count for holder in together) == sum(holder.count for holder in found)
    weights = next(one for one in together if one.name == "encoder.layers.*.mlp.weight" and one.role is Role.PARAMETER)
    assert weights.count == 4 and len(together) < len(found)
    single = next(holder for holder in found if holder.role is Role.WORKSPACE)
    assert alike([single]) == [single]
