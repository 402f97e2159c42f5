"""Why a session left nothing to report on, in words for each device."""

from __future__ import annotations

from typing import Any

import pytest

from peakmem.errors import ExitCode
from peakmem.session.failing import FailedEarlyError, nothing_seen_on_cpu
from peakmem.session.printed import last_words
from peakmem.session.reading import Outcome
from peakmem.session.running import Ended

COMMAND = ("python", "train.py")


def ended(
    *,
    exit_code: int = 0,
    printed: tuple[str, ...] = (),
    timed_out: bool = False,
    interrupted: bool = False,
    **events: Any,
) -> Ended:
    return Ended(
        outcome=Outcome(recordings=(), progress=tuple({"event": name, **told} for name, told in events.items())),
        exit_code=exit_code,
        interrupted=interrupted,
        timed_out=timed_out,
        last_lines=printed,
        lines=len(printed),
        seconds=1.0,
    )


@pytest.mark.parametrize(
    ("how", "message", "hint", "code"),
    [
        ({"interrupted": True}, "interrupted before the script trained", "", ExitCode.INTERRUPTED),
        ({"timed_out": True}, "python train.py was stopped after 5 s and had not trained", "--timeout", 3),
        (
            {"exit_code": 2, "printed": ("usage: train.py DATA",)},
            "ended with exit code 2 before it could be",
            "usage: ",
            3,
        ),
        ({"exit_code": -9}, "was ended by signal 9 before it could be measured", "want of host memory", 3),
        ({"exit_code": -11, "torch": {}}, "was ended by signal 11 before it could be measured", "", 3),
        ({"unknown_operators": {"torch": "9.9"}}, "how torch 9.9 calls its operators is not known", "--measure", 2),
        ({"no_library": {"reason": "gone"}}, "the library that watches malloc is not in the process", "LD_PRELOAD", 2),
        ({}, "python train.py ended without importing PyTorch", "give the command that trains", 2),
    ],
)
def test_on_the_cpu_nothing_is_said_of_a_gpu(how: dict[str, Any], message: str, hint: str, code: int) -> None:
    error = nothing_seen_on_cpu(ended(**how), COMMAND, timeout=5)
    assert message in error.message
    assert hint in error.hint
    assert error.exit_code == code
    assert "GPU" not in error.message + error.hint
    assert "device" not in error.hint


def test_the_error_of_a_script_is_told_without_the_module_of_pythons_own() -> None:
    told = {"type": "builtins.ValueError", "message": "no such layer"}
    error = nothing_seen_on_cpu(ended(error=told), COMMAND, timeout=None)
    assert isinstance(error, FailedEarlyError)
    assert error.told == "ValueError: no such layer"
    assert error.message == "the script failed before it trained: ValueError: no such layer"


def test_frames_of_peakmems_own_are_left_out() -> None:
    from peakmem.session import inside

    printed = (
        "Traceback (most recent call last):",
        '  File "train.py", line 3, in <module>',
        "    model(x)",
        f'  File "{inside.__path__[0]}/values/aside.py", line 61, in call',
        "    return function(*args, **kwargs)",
        "           ^^^^^^^^^^^^^^^^^^^^^^^^^",
        "RuntimeError: shapes cannot be multiplied",
    )
    assert last_words(printed) == (*printed[:3], printed[-1])
    assert last_words(printed, most=1) == ("RuntimeError: shapes cannot be multiplied",)
