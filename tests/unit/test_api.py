"""`peakmem.predict` as type checkers and callers see it, without PyTorch."""

from __future__ import annotations

import inspect
import signal
import threading
import typing

import pytest

from peakmem import api
from peakmem.api_settings import Settings
from peakmem.cli import apart
from peakmem.cli.generated import Written
from peakmem.cli.planning import RunOptions
from peakmem.errors import PeakmemError
from peakmem.workload.model import Request
from peakmem.workload.resolving import workload_of
from peakmem.workload.training import Training


def test_the_settings_for_type_checkers_are_those_that_are_taken() -> None:
    taken = inspect.signature(api.predict).parameters
    assert list(Settings.__annotations__) == [name for name in taken if name not in ("what", "inputs", "device")]
    given = typing.get_type_hints(Settings)
    assert given["batch"] == int | None
    declared = {name: taken[name].annotation for name in Settings.__annotations__}
    assert declared == {name: hint.__forward_arg__ for name, hint in Settings.__annotations__.items()}


@pytest.fixture
def written() -> Written:
    return Written(
        what="dense:4-4",
        script="",
        workload=workload_of(Request(what="dense:4-4", batch=1)),
        training=Training(device="cpu"),
    )


@pytest.mark.parametrize("name", ["batch", "tokens", "accumulate"])
def test_counts_of_nothing_are_refused(name: str) -> None:
    with pytest.raises(PeakmemError, match=f"{name} is 0") as caught:
        api.predict("no-such-model", **{name: 0})  # type: ignore[call-overload]
    assert caught.value.hint == f"{name}=1 is the least"


def test_a_process_that_ends_without_an_answer_is_told(written: Written, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apart, "_START", "import sys; sys.exit('no room')")
    with pytest.raises(PeakmemError, match="ended with exit code 1") as caught:
        apart.forecast_on_cpu_apart(written, RunOptions(command=(), device="cpu"))
    assert caught.value.hint.strip() == "no room"


def test_an_interrupt_reaches_the_process_that_makes_the_forecast(
    written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = (
        "import pickle, sys, time\n"
        "sys.path[0] = sys.argv[1]\n"
        "from peakmem.errors import PeakmemError\n"
        "try:\n    time.sleep(30)\n"
        "except KeyboardInterrupt:\n    pickle.dump(PeakmemError('interrupted'), open(sys.argv[3], 'wb'))\n"
    )
    monkeypatch.setattr(apart, "_START", answer)
    threading.Timer(1, signal.pthread_kill, (threading.main_thread().ident, signal.SIGINT)).start()
    with pytest.raises(PeakmemError, match="interrupted"):
        apart.forecast_on_cpu_apart(written, RunOptions(command=(), device="cpu"))
