"""Where a training step ends, and when enough was seen. The watching side is loaded the way a session loads it."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

import peakmem


def load_inside(name: str) -> ModuleType:
    path = Path(peakmem.__file__).parent / "session" / "inside" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"inside_{name}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


steps = load_inside("steps")


def feed(clock, peaks, optimizer=1):
    for number, (allocated, reserved) in enumerate(peaks, 1):
        clock.backward_done()
        clock.optimizer_stepped(optimizer, number * 10, allocated, reserved)
        yield clock.enough()


def test_two_like_steps_after_the_first_are_enough():
    clock = steps.StepClock("auto", 20)
    assert list(feed(clock, [(5, 10), (8, 12), (8, 12)])) == [False, False, True]


def test_the_first_step_never_counts_since_it_lacks_the_optimizer_state():
    clock = steps.StepClock("auto", 20)
    assert list(feed(clock, [(8, 12), (8, 12), (9, 12), (9, 12)])) == [False, False, False, True]


def test_peaks_that_alternate_are_steady_once_four_steps_bring_nothing_new():
    clock = steps.StepClock("auto", 20)
    peaks = [(5, 10)] + [(8, 12), (7, 12)] * 4
    assert list(feed(clock, peaks)).index(True) == 5


def test_growing_peaks_end_at_the_most_steps():
    clock = steps.StepClock("auto", 6)
    assert list(feed(clock, [(i, i) for i in range(1, 7)])) == [False] * 5 + [True]


def test_a_number_of_steps_is_kept():
    clock = steps.StepClock("2", 20)
    assert list(feed(clock, [(1, 1), (2, 2)])) == [False, True]


def test_all_steps_never_ends_the_script():
    clock = steps.StepClock("all", 2)
    assert not any(feed(clock, [(1, 1)] * 30))


def test_two_optimizers_in_one_iteration_are_one_step():
    clock = steps.StepClock("auto", 20)
    for iteration in range(3):
        clock.backward_done()
        clock.optimizer_stepped("discriminator", iteration * 20 + 10, 6, 9)
        assert not clock.enough()
        clock.backward_done()
        clock.optimizer_stepped("generator", iteration * 20 + 20, 8, 9)
    assert [(s.end, s.allocated, s.optimizers, s.backwards) for s in clock.steps] == [
        (20, 8, 2, 2),
        (40, 8, 2, 2),
        (60, 8, 2, 2),
    ]
    assert clock.enough()


def test_an_optimizer_that_has_not_stepped_yet_is_waited_for():
    clock = steps.StepClock("auto", 20)
    clock.optimizer_made("rare")
    assert not any(feed(clock, [(8, 12)] * 10))
    clock.optimizer_gone("rare")
    assert list(feed(clock, [(8, 12)])) == [True]


def test_accumulated_gradients_show_as_backward_passes():
    clock = steps.StepClock("all", 20)
    for _ in range(4):
        clock.backward_done()
    clock.optimizer_stepped(1, 10, 1, 1)
    assert clock.steps[0].backwards == 4


@pytest.mark.parametrize(
    ("peaks", "steady"),
    [([], False), ([(1, 1)], False), ([(1, 1), (1, 1)], True), ([(1, 1), (1, 2)], False), ([(9, 9)] * 2, True)],
)
def test_is_steady(peaks, steady):
    assert steps.is_steady(peaks) is steady


@pytest.mark.parametrize(
    ("peaks", "enough"),
    [
        ((2937, 3047, 3047, 3064, 3484), False),
        ((2937, 3047, 3047, 3064, 3484, 3511, 3511, 3511, 3511), False),  # the fifth and the sixth step brought more
        ((2937, 3047, 3047, 3064, 3484, 3511, 3511, 3511, 3511, 3511), True),
        ((700, 700, 700, 700, 700), False),
        ((700, 720, 720, 720, 720, 720), True),
        ((720, 720), False),
    ],
)
def test_tensorflow_on_the_cpu_has_settled_after_four_steps_without_more(peaks, enough) -> None:
    assert steps.has_settled(list(peaks)) is enough
