"""Runs a command of peakmem for a notebook, in a process of its own, and shows there what it says."""

from __future__ import annotations

import contextlib
import itertools
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from peakmem.errors import ExitCode, PeakmemError

if TYPE_CHECKING:
    from peakmem.forecast.model import Forecast

FORECASTING = ("run", "predict")
"""Commands whose result is one `Forecast`."""
_OTHER_RESULTS = ("--json", "--help", "-h", "--print-script", "--explain", "--measure", "--format")
"""Options with which these commands give something else than a `Forecast` alone."""
_TICK = 0.5


class Screen(Protocol):
    """The cell's output."""

    def busy(self, text: str, /) -> None:
        """Show what is being done, in place of what was shown so before."""

    def text(self, text: str, /) -> None:
        """Show text."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Done:
    """What a command gave: its exit code and its forecast, if it makes one."""

    code: int
    forecast: Forecast | None


def run_command(words: list[str], screen: Screen) -> Done:
    """Run `peakmem WORDS`, and show what it says unless it gives a forecast.

    Args:
        words: the command and its arguments, as on the command line.
        screen: the cell's output.

    Raises:
        PeakmemError: the command failed; what it said of that is the message.
    """
    pictured = words[:1] and words[0] in FORECASTING and not _wants_text(words)
    with tempfile.TemporaryDirectory(prefix="peakmem-notebook-") as folder:
        target = Path(folder, "forecast.json")
        asked = [words[0], "--json", str(target), *words[1:]] if pictured else words
        code, said, complaints = _call(asked, screen)
        forecast = _read(target) if target.is_file() else None
    if forecast is None and said:
        screen.text(said)
    if forecast is None and code not in (ExitCode.FITS, ExitCode.DOES_NOT_FIT):
        raise PeakmemError(complaints.strip().removeprefix("peakmem: ") or f"peakmem ended with exit code {code}")
    if complaints:
        screen.text(complaints)
    return Done(code=code, forecast=forecast)


def _wants_text(words: list[str]) -> bool:
    own = words[: words.index("--")] if "--" in words else words
    if "--device=cpu" in own or ("--device", "cpu") in itertools.pairwise(own):
        return True
    return any(word.split("=")[0] in _OTHER_RESULTS for word in own)


def _call(words: list[str], screen: Screen) -> tuple[int, str, str]:
    started = time.monotonic()
    name = f"peakmem {words[0]}" if words else "peakmem"
    process = subprocess.Popen(
        [sys.executable, "-m", "peakmem", *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        env=_plain(os.environ),
    )
    collected: dict[str, str] = {}
    readers = [
        threading.Thread(target=lambda name=name, stream=stream: collected.update({name: stream.read()}), daemon=True)
        for name, stream in (("out", process.stdout), ("err", process.stderr))
    ]
    for reader in readers:
        reader.start()
    with _ended(process):
        while process.poll() is None:
            screen.busy(f"{name}: {time.monotonic() - started:.0f} s")
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_TICK)
    for reader in readers:
        reader.join()
    screen.busy(f"{name}: done in {time.monotonic() - started:.0f} s")
    return process.returncode, collected["out"], collected["err"]


def _plain(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment without what a kernel sets so that its children write colours."""
    return {name: value for name, value in environment.items() if name not in ("FORCE_COLOR", "CLICOLOR_FORCE")}


@contextlib.contextmanager
def _ended(process: subprocess.Popen[str]) -> Iterator[None]:
    """Ends the process when the cell is interrupted: it then ends what it started."""
    try:
        yield
    except BaseException:
        process.terminate()
        process.wait()
        raise


def _read(path: Path) -> Forecast:
    import msgspec

    from peakmem.forecast.model import Forecast as Kind

    return msgspec.json.decode(path.read_bytes(), type=Kind)
