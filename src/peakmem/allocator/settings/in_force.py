"""What is in force in a command's process: start the command, look, and stop before it does any work.

Every Python process below the command loads a `sitecustomize.py` of ours, which writes down the variables that are set
there and the torch that it would import (without importing it), and ends the process. Launchers that only start
other Python processes (torchrun and the like) go on, so that the workers are seen too.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import msgspec

from peakmem.allocator.settings import installed, variables
from peakmem.allocator.settings.findings import Finding, examine
from peakmem.allocator.settings.model import ParseResult
from peakmem.allocator.settings.parse import parse
from peakmem.errors import PeakmemError

_SITE = (
    """
import os, sys
_folder = os.path.dirname(os.path.abspath(__file__))
sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != _folder]
# The user's own sitecustomize may set variables too, so it runs first.
sys.modules.pop("sitecustomize", None)
try:
    import sitecustomize
except ImportError:
    pass
"""
    + installed.PROBE
    + """
_argv = list(getattr(sys, "orig_argv", sys.argv))
_words = {os.path.basename(word) for word in _argv[:4]}
_launchers = {"torchrun", "accelerate", "deepspeed", "composer", "ray",
              "torch.distributed.run", "torch.distributed.launch", "accelerate.commands.launch"}
found["argv"], found["pid"], found["launcher"] = _argv, os.getpid(), bool(_words & _launchers)
found["environment"] = {name: value for name, value in os.environ.items() if name.startswith("PYTORCH_")}
with open(os.path.join(_folder, "report-%d.json" % os.getpid()), "w", encoding="utf-8") as _file:
    json.dump(found, _file)
if not found["launcher"]:
    sys.stdout.flush()
    os._exit(0)
"""
)
_TIMEOUT = 120.0
"""Seconds after which the command is stopped: it only has to start."""


@dataclass(frozen=True, kw_only=True, slots=True)
class InForce:
    """The settings of one Python process of a command.

    Attributes:
        command: the process's command line.
        torch: the PyTorch that it would import.
        environment: the variables set there that begin with PYTORCH_.
        sources: which of them the allocator reads.
        result: the settings string of the common reader, parsed; None if no variable is read.
        findings: remarks about it.
        caching_off: whether PYTORCH_NO_CUDA_MEMORY_CACHING is set, to whatever value.
    """

    command: tuple[str, ...]
    torch: installed.InstalledTorch
    environment: dict[str, str]
    sources: variables.Sources
    result: ParseResult | None
    findings: tuple[Finding, ...]
    caching_off: bool


class _Report(msgspec.Struct):
    argv: list[str]
    launcher: bool
    environment: dict[str, str]


def settings_in_force(command: tuple[str, ...]) -> list[InForce]:
    """Start a command and say what each of its Python processes would find.

    Raises:
        PeakmemError: the command can't be started, or starts no Python.
    """
    with tempfile.TemporaryDirectory(prefix="peakmem-show-") as folder:
        Path(folder, "sitecustomize.py").write_text(_SITE, encoding="utf-8")
        path = os.pathsep.join(filter(None, (folder, os.environ.get("PYTHONPATH"))))
        try:
            subprocess.run(
                command,
                env={**os.environ, "PYTHONPATH": path},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_TIMEOUT,
                check=False,
            )
        except OSError as error:
            raise PeakmemError(
                f"{command[0]!r} can't be started: {error.strerror}", hint="check the spelling, or give its path"
            ) from None
        except subprocess.TimeoutExpired:
            pass
        reports = sorted(Path(folder).glob("report-*.json"), key=lambda report: report.stat().st_mtime_ns)
        seen = [_in_force(report.read_bytes()) for report in reports]
    if not seen:
        raise PeakmemError(
            f"{command[0]!r} started no Python process that could be asked",
            hint="give the command that runs your script; python -I and -S keep it from being asked",
        )
    return seen


def from_environment(command: tuple[str, ...], environment: dict[str, str], torch: installed.InstalledTorch) -> InForce:
    """Resolve the variables of a process."""
    sources = variables.sources(environment, torch.version, platform=torch.platform.runtime)
    result = _result(environment, sources, torch)
    return InForce(
        command=command,
        torch=torch,
        environment=environment,
        sources=sources,
        result=result,
        findings=examine(result, torch.platform) if result else (),
        caching_off=variables.NO_CACHING in environment,
    )


def _result(
    environment: dict[str, str], sources: variables.Sources, torch: installed.InstalledTorch
) -> ParseResult | None:
    if sources.common is None:
        return None
    common = environment[sources.common]
    if sources.cuda == sources.common:
        return parse(common, version=torch.version)
    # The two readers look at different variables: each takes its own keys from its own.
    before = None
    if sources.cuda is not None:
        own = parse(environment[sources.cuda], version=torch.version, readers=("cuda",))
        if not own.accepted:
            return own
        before = own.settings
    return parse(common, version=torch.version, readers=("common",), before=before)


def _in_force(data: bytes) -> InForce:
    report = msgspec.json.decode(data, type=_Report)
    torch = installed.from_probe(data, report.argv[0] if report.argv else "python")
    return from_environment(tuple(report.argv), report.environment, torch)
