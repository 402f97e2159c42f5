import os
import stat
import sys

import pytest

from peakmem.errors import PeakmemError
from peakmem.session.command import interpreter, resolve


def test_a_script_is_run_by_this_python(tmp_path):
    script = tmp_path / "train.py"
    script.write_text("")
    assert resolve((str(script), "--lr", "1")) == (sys.executable, str(script), "--lr", "1")


def test_a_module_is_run_as_python_does():
    assert resolve(("trainer.main", "x"), module=True) == (sys.executable, "-m", "trainer.main", "x")


def test_a_program_stays_as_it_is():
    assert resolve(("sh", "-c", "true")) == ("sh", "-c", "true")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "there is no command to run"),
        (("no-such-program",), "there is no program 'no-such-program'"),
        (("model.ipynb",), "there is no file model.ipynb"),
    ],
)
def test_what_is_not_there_is_named(words, message):
    with pytest.raises(PeakmemError) as error:
        resolve(words)
    assert error.value.message == message
    assert error.value.hint


def test_a_misspelt_script_is_suggested(tmp_path):
    (tmp_path / "train.py").write_text("")
    with pytest.raises(PeakmemError) as error:
        resolve((str(tmp_path / "tran.py"),))
    assert error.value.hint == f"did you mean {tmp_path / 'train.py'}?"


def test_the_interpreter_of_a_console_script_is_read_from_its_first_line(tmp_path):
    program = tmp_path / "torchrun"
    program.write_text(f"#!{sys.executable}\nimport torch\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    assert interpreter((str(program), "train.py")) == sys.executable


def test_another_program_means_the_python_in_the_path(tmp_path, monkeypatch):
    python = tmp_path / "python"
    os.symlink(sys.executable, python)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert interpreter(("sh", "-c", "python train.py")) == str(python)
