"""A command line or a model's name: which of the two the words are, and where a value goes."""

import click
import pytest
from click.testing import CliRunner

from peakmem.cli.subject import ModelSubject, ScriptSubject, SubjectCommand, subject_of
from peakmem.cli.subject_options import subject_options
from peakmem.errors import PeakmemError


def parsed(*words):
    found = {}

    @click.command(cls=SubjectCommand)
    @click.option("--vary")
    @subject_options
    def command(**options):
        found.update(options)

    result = CliRunner().invoke(command, list(words), standalone_mode=False)
    if result.exception:
        raise result.exception
    return found


def subject(tmp_path, *words):
    options = parsed(*words)
    return subject_of(
        options["words"], options["predicting"], module=options["module"], shared=options, folder=tmp_path
    )


def test_everything_after_a_program_belongs_to_it():
    options = parsed("--vary", "batch=1..4", "python", "train.py", "--batch", "{batch}", "--gpu", "x")
    assert options["words"] == ("python", "train.py", "--batch", "{batch}", "--gpu", "x")
    assert options["predicting"] is None and options["gpu"] is None


@pytest.mark.parametrize(
    "words",
    [
        ("--vary", "batch=1..4", "torchvision:resnet50", "--optimizer", "sgd", "--gpu", "t4"),
        ("torchvision:resnet50", "--gpu", "t4", "--optimizer", "sgd", "--vary", "batch=1..4"),
        ("--optimizer", "sgd", "--gpu", "t4", "--vary", "batch=1..4", "--", "torchvision:resnet50"),
    ],
)
def test_options_stand_anywhere_around_a_model(words, tmp_path):
    options = parsed(*words)
    assert (options["words"], options["vary"], options["gpu"]) == (("torchvision:resnet50",), "batch=1..4", "t4")
    found = subject(tmp_path, *words)
    assert isinstance(found, ModelSubject)
    assert (found.options.what, found.options.optimizer, found.options.gpu) == ("torchvision:resnet50", "sgd", "t4")


def test_training_on_the_cpu_is_no_question_about_cards(tmp_path):
    with pytest.raises(PeakmemError, match="this command asks about cards") as caught:
        subject(tmp_path, "--device", "cpu", "dense:10-10", "--batch", "4")
    assert "peakmem predict --device cpu dense:10-10" in caught.value.hint


def test_options_of_predict_are_no_options_of_a_command():
    with pytest.raises(click.NoSuchOption):
        parsed("--optimizer", "sgd", "python", "train.py")


def test_a_second_word_beside_a_model_is_an_error():
    with pytest.raises(PeakmemError, match="one word too much"):
        parsed("torchvision:resnet50", "train.py")


def test_a_value_goes_where_its_name_stands(tmp_path):
    (tmp_path / "train.py").write_text("")
    found = ScriptSubject(words=(str(tmp_path / "train.py"), "--size={side}x{side}", "{other}"))
    command = found.at({"side": 64}, variables={}).command
    assert command[2:] == ("--size=64x64", "{other}")


def test_a_command_without_the_name_is_shown_where_to_put_it():
    with pytest.raises(PeakmemError) as caught:
        ScriptSubject(words=("train.py", "--batch", "32")).check("batch", in_environment=False)
    assert "train.py --batch {batch}" in caught.value.hint


def test_a_model_takes_a_number_by_its_option_or_by_its_place(tmp_path):
    found = subject(tmp_path, "dense:100-{width}-10", "--input", "{width}")
    assert found.varied({"batch": 8}).batch == 8
    assert found.varied({"width": 64}).what == "dense:100-64-10" and found.varied({"width": 64}).shape == "64"
    with pytest.raises(PeakmemError, match="depth"):
        found.check("depth", in_environment=False)
