import os
import stat
import sys

import pytest

from peakmem.errors import PeakmemError
from peakmem.session.command import active_python, interpreter, resolve


def test_a_script_is_run_by_this_python(tmp_path):
    script = tmp_path / "train.py"
    script.write_text("")
    assert resolve((str(script), "--lr", "1")) == (sys.executable, str(script), "--lr", "1")


@pytest.fixture
def environment(tmp_path, monkeypatch):
    """Make an environment whose Python says that it has torch, or has not; gives its folder."""
    active_python.cache_clear()

    def make(name, *, torch):
        python = tmp_path / name / "bin" / "python"
        python.parent.mkdir(parents=True)
        python.write_text(f"#!/bin/sh\nexit {0 if torch else 1}\n")
        python.chmod(0o755)
        return python

    monkeypatch.setattr(sys, "argv", ["/somewhere/bin/peakmem", "run"])
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    yield make
    active_python.cache_clear()


@pytest.mark.parametrize("variable", ["VIRTUAL_ENV", "CONDA_PREFIX", "PATH"])
def test_the_python_of_the_active_environment_runs_a_script(environment, tmp_path, monkeypatch, capsys, variable):
    python = environment("other", torch=True)
    monkeypatch.setenv(variable, str(python.parent if variable == "PATH" else python.parent.parent))
    if variable == "PATH":  # of a peakmem that pipx installed
        monkeypatch.setattr("peakmem.session.command._has_framework", lambda found: found != sys.executable)
    (tmp_path / "train.py").write_text("")
    assert resolve((str(tmp_path / "train.py"),))[0] == str(python)
    assert resolve(("trainer.main",), module=True)[0] == str(python)
    assert capsys.readouterr().err == f"peakmem: using {python}, the Python of the active environment\n"


def test_an_environment_without_torch_is_passed_over(environment, monkeypatch):
    monkeypatch.setenv("VIRTUAL_ENV", str(environment("other", torch=False).parent.parent))
    assert active_python() == sys.executable


def test_peakmem_s_own_environment_comes_before_what_the_shell_would_find(environment, monkeypatch):
    monkeypatch.setattr("peakmem.session.command._has_framework", lambda found: True)
    monkeypatch.setenv("PATH", str(environment("other", torch=True).parent))
    assert active_python() == sys.executable


def test_a_python_that_was_named_to_start_peakmem_is_taken(environment, monkeypatch):
    monkeypatch.setenv("VIRTUAL_ENV", str(environment("other", torch=True).parent.parent))
    monkeypatch.setattr(sys, "argv", ["/site-packages/peakmem/__main__.py", "run"])
    monkeypatch.setattr("peakmem.session.command._has_framework", lambda python: True)
    assert active_python() == sys.executable


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
