"""Who holds the memory at the peak, on traces made by hand."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "trace"))

from recorded_samples import Program

from peakmem.forecast.explain import explain, hand_count
from peakmem.forecast.holders import AtPeak, at_peak
from peakmem.trace.recording import read_recording


@pytest.fixture
def program() -> Program:
    return Program()


def peak_of(program: Program, *, accumulates: bool = False) -> AtPeak:
    trace = read_recording(program.recording())
    assert trace is not None
    return at_peak(trace, accumulates=accumulates)


def weights(program: Program, count: int = 2) -> None:
    for number in range(count):
        program.take(f"w{number}", 2048, line=3)
        program.note(f"w{number}", "parameter", f"layers.{number}.weight", "Model", (8, 64))


def test_roles_add_up_to_what_is_allocated(program):
    weights(program)
    program.take("other", 700)
    peak = peak_of(program)
    assert peak.allocated == 2 * 2048 + 1024
    assert sum(peak.roles.values()) == peak.allocated
    assert (peak.roles["parameter"], peak.roles["temporary"], peak.roles["unattributed"]) == (4096, 1024, 0)
    assert list(peak.roles)[-1] == "unattributed"


def test_layers_that_differ_in_their_number_alone_are_one_holder(program):
    weights(program, 3)
    program.take("x", 512)
    program.note("x", "parameter", "head.weight", "Model", (2,))
    first, second = peak_of(program).holders
    assert (first.name, first.count, first.bytes, first.shape) == ("layers.*.weight", 3, 6144, (8, 64))
    assert first.line == "/home/me/train.py:3"
    assert (second.name, second.count, second.line) == ("head.weight", 1, None)


def test_one_layer_keeps_its_number(program):
    weights(program, 1)
    assert peak_of(program).holders[0].name == "layers.0.weight"


def test_gradients_of_the_step_before_need_not_be_alive(program):
    weights(program)
    program.mark("backward", retained=False)
    program.take("g", 2048)
    program.mark("backward_end")
    program.note("g", "gradient", "layers.0.weight", "Model")
    program.step()
    program.take("y", 4096)
    (found,) = peak_of(program).unneeded
    assert (found.bytes, found.count, found.examples[0].name) == (2048, 1, "layers.0.weight")
    assert "zero_grad" in found.remedy
    assert peak_of(program, accumulates=True).unneeded == ()


def test_what_belongs_to_this_step_is_needed(program):
    weights(program)
    program.step()
    program.take("g", 2048)
    program.note("g", "gradient", "layers.0.weight", "Model")
    program.take("x", 2048)
    program.note("x", "activation", "Loss.self")
    assert peak_of(program).unneeded == ()


def test_an_old_batch_counts_only_beside_a_new_one(program):
    program.take("old", 4096)
    program.note("old", "input", "x", "Model")
    program.step()
    assert peak_of(program).unneeded == ()
    program.take("new", 4096)
    program.note("new", "input", "x", "Model")
    (found,) = peak_of(program).unneeded
    assert found.what.startswith("inputs of an earlier step")


def test_trifles_are_not_told(program):
    program.take("tiny", 512)
    program.note("tiny", "output", "loss")
    program.step()
    program.take("huge", 1 << 21)
    assert peak_of(program).unneeded == ()


def test_the_place_of_the_peak(program):
    before = program.module("layers.1")
    program.begin("aten::linear")
    program.take("y", line=7)
    program.end()
    program.context = before
    program.step()
    peak = peak_of(program)
    assert (peak.step, peak.phase, peak.op, peak.module) == (0, "forward", "aten::linear", "layers.1")
    assert peak.line == "/home/me/train.py:7"


def test_a_peak_after_the_last_step_is_in_no_step(program):
    program.take("y")
    program.step()
    program.take("z")
    assert peak_of(program).step is None


MODEL = {
    "parameters": 1010,
    "parameter_bytes": 4040,
    "inputs": [("0", (4, 100), 4, True), ("mask", (4,), 4, True)],
    "layers": [("Model.0", "Linear", (4, 10), 4)],
}


def test_the_count_by_hand():
    count = hand_count({"model": MODEL})
    assert count is not None
    assert (count.batch, count.layers, count.parameters) == (4, 1, 1010)
    assert count.elements == 400 + 2 * 40
    assert count.bytes == 4 * count.elements


def test_token_numbers_count_when_there_is_nothing_else():
    tokens = [("input_ids", (2, 8), 8, False), ("attention_mask", (2, 8), 8, False)]
    count = hand_count({"model": {**MODEL, "inputs": tokens}})
    assert count is not None
    assert (count.batch, count.input_elements, count.input_bytes) == (2, 16, 128)


def test_nothing_to_count():
    assert hand_count({"model": {**MODEL, "layers": []}}) is None


def test_the_lines_of_an_explanation_add_up(program):
    weights(program)
    program.take("cublas", 4096)
    program.use("cublas", 1)
    program.begin("aten::sort")
    program.take("scratch")
    program.take("result")
    program.give("scratch")
    program.end()
    recording = {**program.recording(), "model": MODEL}
    trace = read_recording(recording)
    assert trace is not None
    explained = explain(recording, trace)
    assert explained is not None
    assert sum(line.at_peak for line in explained.lines) == explained.allocated
    assert explained.workspaces == {4096: 1}
    assert explained.scratch == {"scratch of aten::sort": 1024}
    assert explained.segments == {1 << 24: 1}


def test_in_a_backward_pass_the_line_is_the_one_that_called_the_module(program):
    before = program.module("layers.0")
    program.take("y", line=9)
    inside = program.context
    program.context = before
    program.mark("backward", retained=False)
    program.context = inside
    program.take("g", 4096)
    program.mark("backward_end")
    first, second = peak_of(program).holders
    assert (first.phase, first.line) == ("backward", "/home/me/train.py:9")
    assert second.phase == "forward"
