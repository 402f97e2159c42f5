"""The `peakmem` command: a group whose commands are loaded when they are called."""

from __future__ import annotations

import errno
import importlib
import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO

import click

from peakmem import __version__
from peakmem.errors import ExitCode, PeakmemError

BROKEN_PIPE = 141
"""As a shell tells of SIGPIPE (128 + 13)."""
FAULT = 70
"""EX_SOFTWARE of sysexits.h: peakmem itself failed."""
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EIO)
_COMMANDS = {
    "run": ("run", "Run a training script on a virtual GPU and say what it takes."),
    "predict": ("predict", "Say what training a model takes, from its name and a batch size."),
    "solve": ("solve", "Find the largest batch (or any number) that fits, or the smallest card."),
    "advise": ("advise", "Find changes that make a run fit, each verified by running it."),
    "scenarios": ("scenarios", "Compare first step, evaluation, saving, resuming, ... of a model."),
    "check": ("check", "Check a run against a memory budget and an accepted run, for CI."),
    "report": ("report", "Draw a trace as one HTML page."),
    "diff": ("diff", "Say what grew between two traces or forecasts."),
    "replay": ("replay", "Replay a trace or snapshot under other allocator settings, or on another card."),
    "tune": ("tune", "Find the allocator settings that make it fit, or say that none does."),
    "explain": ("explain", "Read an out-of-memory message and say what happened and what helps."),
    "conf": ("conf", "Check and explain PYTORCH_CUDA_ALLOC_CONF."),
    "exec": ("exec_", "Start a real run with allocator settings in place."),
    "import": ("import_", "Turn a PyTorch memory snapshot into a trace."),
    "export": ("export", "Write a trace as a PyTorch snapshot or for Perfetto."),
    "gpus": ("gpus", "List the cards that peakmem knows."),
    "doctor": ("doctor", "Show what was found here, and whether the virtual GPU works."),
}
"""Name on the command line -> (module in `peakmem.cli`, line of help)."""


class _LazyGroup(click.Group):
    """Loads the module of a command when it is called, so that `peakmem --help` stays fast."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module = importlib.import_module(f"peakmem.cli.{_COMMANDS[cmd_name][0]}")
        command: click.Command = module.command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0] if args else ""
        if name and not name.startswith("-") and name not in _COMMANDS:
            raise PeakmemError(f"there is no command {name!r}", hint=_suggest(name))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in _COMMANDS.items()])

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run, and end with the exit code of the command, whatever happened."""
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):  # no character that a terminal does not have is worth an error
                stream.reconfigure(errors="replace")
        try:
            with _warnings_as_text():
                code = super().main(*args, **{**kwargs, "standalone_mode": False})
        except PeakmemError as error:
            report_error(error)
            code = error.exit_code
        except click.Abort:
            click.echo("peakmem: interrupted", err=True)
            code = ExitCode.INTERRUPTED
        except click.ClickException as error:
            error.show()
            code = error.exit_code
        except Exception as error:
            # An exit code of 1 would say that a run does not fit.
            if os.environ.get("PEAKMEM_DEBUG"):
                raise
            if isinstance(error, OSError) and error.filename is None and error.errno in _NO_ROOM:
                _print_nothing_more()
                report_error(_unprinted(error))
                code = ExitCode.BAD_INPUT
            else:
                report_error(_fault(error))
                code = FAULT
        sys.exit(code)

    def invoke(self, ctx: click.Context) -> Any:
        """As click does, but a reader that went away is no verdict."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            _print_nothing_more()
            ctx.exit(BROKEN_PIPE)


def _print_nothing_more() -> None:
    """What is left in the buffer is flushed when Python ends; there it must not fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextmanager
def _warnings_as_text() -> Iterator[None]:
    """Say what peakmem warns of as it says all else: Python names a line of source."""
    import warnings

    before = warnings.showwarning

    def tell(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        if issubclass(category, RuntimeWarning):
            click.echo(f"peakmem: {message}", err=True)
        else:
            before(message, category, filename, lineno, file, line)

    warnings.showwarning = tell
    try:
        yield
    finally:
        warnings.showwarning = before


def _unprinted(error: OSError) -> PeakmemError:
    return PeakmemError(
        f"the output can't be written: {error.strerror}", hint="make room where standard output goes to"
    )


def _fault(error: Exception) -> PeakmemError:
    """An error that nobody foresaw, in the words for one."""
    import traceback

    if isinstance(error, OSError) and error.errno is not None:
        where = f" ({error.filename})" if error.filename is not None else ""
        return PeakmemError(f"{error.strerror}{where}", hint="PEAKMEM_DEBUG=1 shows where")
    last = traceback.extract_tb(error.__traceback__)[-1]
    return PeakmemError(
        f"a fault of peakmem's own, sorry: {type(error).__name__}: {error} ({last.filename}:{last.lineno})",
        hint="please report it; PEAKMEM_DEBUG=1 shows the traceback",
    )


def report_error(error: PeakmemError) -> None:
    """Print an error on standard error: what was found, then what to do."""
    click.echo(f"peakmem: {error.message}", err=True)
    for line in error.hint.splitlines():
        click.echo(f"         {line}", err=True)


def _suggest(name: str) -> str:
    import difflib

    if name.endswith(".py"):
        return f"to run a script: peakmem run {name}"
    near = difflib.get_close_matches(name, _COMMANDS, n=1)
    return f"did you mean peakmem {near[0]}?" if near else "peakmem --help lists the commands"


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "-V", "--version", message="peakmem %(version)s")
def peakmem() -> None:
    """How much CPU and GPU memory will a training run take, and why?

    peakmem runs your own script with your own PyTorch on a virtual GPU: everything that decides about memory is real,
    only the computing is left out. No GPU is needed, and a step takes milliseconds.

    \b
    peakmem run train.py                       on the default card
    peakmem run --gpu 4090 -- python train.py  will it fit on a 4090?
    """
