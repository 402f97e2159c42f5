"""The session's process handling, on commands that need no torch."""

import os
import signal
import sys
import threading
import time

import pytest

from peakmem.errors import PeakmemError
from peakmem.session.running import Question, run_session


def run(*code: str, **options):
    return run_session(
        (sys.executable, "-c", "\n".join(code)), question=Question(), environment=dict(os.environ), **options
    )


def test_the_command_sees_the_session_and_its_output_is_kept():
    lines: list[str] = []
    ended = run("import os", "print(os.environ['PEAKMEM_SESSION'])", "print('two')", on_line=lines.append)
    assert ended.exit_code == 0
    assert lines[1] == "two" and ended.last_lines == tuple(lines)
    assert not os.path.exists(lines[0])


def test_the_exit_code_is_the_commands():
    assert run("raise SystemExit(7)").exit_code == 7


def test_a_signal_is_told():
    assert run("import os, signal; os.kill(os.getpid(), signal.SIGKILL)").exit_code == -signal.SIGKILL


def test_a_command_that_takes_too_long_is_stopped():
    ended = run("import time; time.sleep(100)", timeout=0.5)
    assert ended.timed_out and ended.seconds < 20


def test_ctrl_c_ends_the_command_as_ctrl_c_does():
    threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT)).start()
    ended = run("import time", "try: time.sleep(100)", "except KeyboardInterrupt: print('clean')")
    assert ended.interrupted and ended.last_lines == ("clean",)


def test_what_the_command_leaves_running_does_not_hold_the_session():
    started = time.monotonic()
    ended = run("import subprocess, sys", "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])")
    assert ended.exit_code == 0 and time.monotonic() - started < 20


def test_a_command_that_can_not_be_started_is_named():
    with pytest.raises(PeakmemError, match="can't be started"):
        run_session(("/nowhere/at/all",), question=Question(), environment={})


def test_a_sitecustomize_of_the_users_still_runs(tmp_path):
    (tmp_path / "sitecustomize.py").write_text("print('mine')")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    ended = run_session((sys.executable, "-c", "pass"), question=Question(), environment=environment)
    assert ended.last_lines == ("mine",)
