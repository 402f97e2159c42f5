"""Scenario scripts are whole Python programs; lengths are read; changes are named."""

import ast

import pytest

from peakmem.advise.lengths import read_lengths
from peakmem.advise.scenarios import Asked, plain_script, scenario_scripts
from peakmem.errors import PeakmemError
from peakmem.session.inside.change_names import parse_change
from peakmem.workload.model import Request
from peakmem.workload.optimizers import Optimizer
from peakmem.workload.training import Training

REQUEST = Request(what="dense:100-200-10", batch=32)


@pytest.mark.parametrize(
    "training",
    [
        Training(),
        Training(optimizer=Optimizer.parse("muon"), precision="amp-fp16", accumulate=2),
        Training(optimizer_in_backward=True, checkpointing=True),
        Training(optimizer=Optimizer.parse("lbfgs"), precision="bf16"),
    ],
)
def test_every_scenario_is_a_whole_program(training, tmp_path):
    asked = Asked(eval_batch=64, last_batch=5)
    scripts = scenario_scripts(REQUEST, training, asked, tmp_path / "checkpoint.pt")
    keys = [script.key for script in scripts]
    assert keys == [
        "evaluation", "saving", "resume", "resume_cpu", "last_batch", "kept_graph", "cudnn_benchmark_on"
    ]  # fmt: skip
    for script in scripts:
        ast.parse(script.text)
        assert script.alone is ("max_memory_allocated" not in script.text)
    ast.parse(plain_script(REQUEST, training))


def test_what_was_not_asked_for_is_not_there(tmp_path):
    keys = {script.key for script in scenario_scripts(REQUEST, Training(), Asked(), tmp_path / "c.pt")}
    assert not keys & {"last_batch", "longest", "mixed_lengths"}


def test_a_normal_distribution_is_cut_off_and_the_same_each_time():
    lengths = read_lengths("normal:350,120:512")
    assert lengths == read_lengths("normal:350,120:512")
    assert lengths.longest == 512 and min(lengths.values) >= 1
    assert 340 < sum(lengths.values) / len(lengths.values) < 360
    batches = lengths.batches(8, 12)
    assert len(batches) == 12 and batches == lengths.batches(8, 12) and max(batches) <= 512


def test_a_file_of_lengths_may_have_a_header(tmp_path):
    path = tmp_path / "lengths.csv"
    path.write_text("tokens,name\n12,a\n7,b\n")
    assert read_lengths(str(path)).values == (12, 7)


@pytest.mark.parametrize("content", ["", "tokens\n", "12\nx\n", "0\n"])
def test_a_file_without_lengths_is_an_error(tmp_path, content):
    path = tmp_path / "lengths.csv"
    path.write_text(content)
    with pytest.raises(PeakmemError):
        read_lengths(str(path))


@pytest.mark.parametrize("text", ["normal:350", "nowhere.csv"])
def test_what_is_no_lengths_is_refused_with_an_example(text):
    with pytest.raises(PeakmemError) as caught:
        read_lengths(text)
    assert "normal:350,120:512" in caught.value.hint


@pytest.mark.parametrize("text", ["amp=bf16", "accumulate=4", "optimizer.foreach=false"])
def test_changes_are_read(text):
    assert "=".join(parse_change(text)) == text


@pytest.mark.parametrize("text", ["amp", "amp=int4", "accumulate=1", "accumulate=x", "lr=1"])
def test_other_changes_are_refused(text):
    with pytest.raises(ValueError, match=text.partition("=")[0]):
        parse_change(text)
