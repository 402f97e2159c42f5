"""Which changes make a plan, on runs whose figures are known."""

import io

import pytest
from rich.console import Console

from peakmem.advise.advising import Advising
from peakmem.advise.knobs import KNOBS
from peakmem.advise.trials import Trial
from peakmem.errors import PeakmemError
from peakmem.forecast.model import Forecast, Gpu, Peak
from peakmem.report.advising import print_advised

GIB = 2**30
CONTEXT = GIB // 2


def forecast(need, usable, *, limited):
    return Forecast(
        peakmem="0",
        torch="2",
        command=(),
        verdict="does_not_fit" if limited and need > usable else "fits",
        gpu=Gpu(name="card", total=usable + CONTEXT, compute_capability="8.0", usable=usable),
        alloc_conf="",
        peak=Peak(
            requested=need,
            allocated=need,
            active=need,
            reserved=need,
            context=CONTEXT,
            context_error=0,
            used=need + CONTEXT,
        ),
        steps=(),
        steady=True,
        stopped="enough",
        floor=None,
        segments=1,
        retries=0,
        ooms=0,
        oom=None,
        error=None,
        convolution_range=None,
    )


class Card:
    """Stands for the trials: each change saves a known share of what is left."""

    def __init__(self, usable, need, factors):
        self._usable, self._need, self._factors = usable, need, factors
        self.count = 0

    def usable(self):
        return self._usable

    def forecasts(self, trials):
        return [self._one(trial) for trial in trials]

    def _one(self, trial):
        self.count += 1
        need = self._need
        for key in trial.command:
            need *= self._factors.get(key, 1)
        return forecast(int(need), self._usable, limited=trial.limited)


def advised(usable, need, factors, *, even_if_it_fits=False):
    def trial_of(knobs):
        missing = [knob.key for knob in knobs if knob.key not in factors]
        return "not tried" if missing else Trial(command=tuple(knob.key for knob in knobs))

    card = Card(usable, need, factors)
    gpu = Gpu(name="card", total=usable + CONTEXT, compute_capability="8.0", usable=usable)
    search = Advising("train.py", gpu, trial_of, card, lambda text: None, alloc_conf="")
    search.run(even_if_it_fits=even_if_it_fits)
    return search.result()


def test_what_fits_needs_no_change():
    found = advised(10 * GIB, 8 * GIB, {"amp": 0.5})
    assert found.fits_already and found.plan is None and found.advices == () and found.runs == 2


def test_one_change_that_keeps_the_mathematics_is_enough():
    found = advised(10 * GIB, 12 * GIB, {"checkpoint": 0.8, "amp": 0.5, "zero_grad=end": 1.0})
    assert found.plan.keys == ("checkpoint",)
    assert found.plan.saving == 12 * GIB - int(12 * GIB * 0.8)
    assert len(found.advices) == len(KNOBS)


def test_several_that_keep_the_mathematics_go_before_one_that_does_not():
    found = advised(10 * GIB, 20 * GIB, {"zero_grad=end": 0.7, "checkpoint": 0.6, "amp": 0.4})
    assert found.plan.keys == ("zero_grad=end", "checkpoint")
    assert found.plan.keeps_mathematics and found.plan.fits


def test_what_is_not_needed_is_left_out_of_a_plan():
    found = advised(10 * GIB, 20 * GIB, {"expandable_segments": 0.97, "zero_grad=end": 0.7, "checkpoint": 0.6})
    assert found.plan.keys == ("zero_grad=end", "checkpoint")


def test_the_mathematics_is_changed_where_nothing_else_is_enough():
    found = advised(10 * GIB, 20 * GIB, {"zero_grad=end": 0.9, "amp": 0.6, "batch/2": 0.5})
    assert found.plan.keys == ("amp", "batch/2") or found.plan.keys == ("batch/2",)
    assert not found.plan.keeps_mathematics and found.plan.fits


def test_nothing_is_enough():
    found = advised(10 * GIB, 90 * GIB, {"zero_grad=end": 0.9, "amp": 0.6})
    assert found.plan is None and found.best.keys == ("zero_grad=end", "amp")
    out = io.StringIO()
    print_advised(found, Console(file=out, width=80))
    assert "nothing that was tried makes it fit" in out.getvalue()


def test_a_smaller_batch_than_needed_is_not_tried():
    found = advised(10 * GIB, 18 * GIB, {"accumulate=2": 0.5, "accumulate=4": 0.25, "accumulate=8": 0.1})
    tried = [advice.keys[0] for advice in found.advices if advice.used is not None]
    assert "accumulate=8" not in tried and found.plan.keys == ("accumulate=2",)


def test_a_script_that_fails_is_an_error():
    class Failing(Card):
        def _one(self, trial):
            return PeakmemError("the script ended without using the GPU")

    gpu = Gpu(name="card", total=GIB, compute_capability="8.0", usable=GIB)
    search = Advising("x", gpu, lambda knobs: Trial(command=()), Failing(1, 1, {}), lambda t: None, alloc_conf="")
    with pytest.raises(PeakmemError, match="without using the GPU"):
        search.run(even_if_it_fits=False)
    assert search.result() is None


def test_the_plan_is_printed_with_the_lines_to_change():
    out = io.StringIO()
    print_advised(advised(10 * GIB, 12 * GIB, {"expandable_segments": 0.8}), Console(file=out, width=100))
    text = out.getvalue()
    assert "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True" in text
    assert "plan: 10.10 GiB instead of 12.50 GiB; the same mathematics; run on the card" in text
