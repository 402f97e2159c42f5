"""`peakmem exec`: start a real run with allocator settings that are in time, and worth it."""

from __future__ import annotations

import os

import click

from peakmem.errors import PeakmemError


@click.command(
    context_settings={"allow_interspersed_args": False},
    epilog="Exit code: the command's own; 2 if the settings are refused.",
)
@click.option("--alloc-conf", required=True, metavar="STR", help="The settings.")
@click.option("--torch", "torch", metavar="VERSION", help="PyTorch version. [the one the command would import]")
@click.option("--force", is_flag=True, help="Start even with settings that do nothing, do harm or are refused.")
@click.argument("words", nargs=-1, required=True, type=click.UNPROCESSED, metavar="[--] COMMAND [ARGUMENTS]...")
def command(alloc_conf: str, torch: str | None, force: bool, words: tuple[str, ...]) -> None:
    """Start a command with allocator settings in its environment.

    \b
    peakmem exec --alloc-conf expandable_segments:True -- python train.py

    The variable is set before anything starts, so it can't be too late; settings that would be refused, do nothing or
    do harm are not started unless --force is given. The command then takes the place of peakmem.
    """
    from peakmem.allocator.settings import variables
    from peakmem.allocator.settings.installed import interpreter_of, torch_of
    from peakmem.allocator.settings.version import TorchVersion
    from peakmem.cli.conf_text import split_assignment

    _, value = split_assignment(alloc_conf)
    installed = torch_of(interpreter_of(words))
    version = TorchVersion.parse(torch) if torch is not None else installed.version
    if torch is None and not installed.found:
        click.echo(f"peakmem: {installed.where}; judging by PyTorch {version} (--torch says otherwise)", err=True)
    _refuse_useless(value, version, installed.platform, force=force)

    name = variables.preferred(version, platform=installed.platform.runtime)
    environment = dict(os.environ)
    for other in variables.ALL:
        previous = environment.pop(other, None)
        if previous is not None and previous != value:
            click.echo(f"peakmem: {other}={previous} is replaced", err=True)
    environment[name] = value
    if variables.NO_CACHING in environment:
        click.echo(f"peakmem: {variables.NO_CACHING} is set, so the allocator's settings do nothing", err=True)
    try:
        os.execvpe(words[0], list(words), environment)
    except OSError as error:
        raise PeakmemError(f"{words[0]!r} can't be started: {error.strerror}", hint="check the command") from None


def _refuse_useless(value: str, version: object, platform: object, *, force: bool) -> None:
    from peakmem.allocator.settings.findings import Kind, Platform, examine
    from peakmem.allocator.settings.parse import parse
    from peakmem.allocator.settings.version import TorchVersion

    assert isinstance(version, TorchVersion)
    assert isinstance(platform, Platform)
    result = parse(value, version=version)
    if not force:
        result.require()
    for finding in examine(result, platform):
        if finding.kind is Kind.NOTE:
            continue
        if not force:
            hints = [finding.suggestion, "--force starts it all the same"]
            raise PeakmemError(
                f"{value!r} is {finding.kind.value}: {finding.text}", hint="; ".join(hint for hint in hints if hint)
            )
        click.echo(f"peakmem: {finding.kind.value}: {finding.text}", err=True)
