"""`peakmem conf`: is PYTORCH_CUDA_ALLOC_CONF read, what does it do, does it help?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from peakmem.errors import ExitCode

if TYPE_CHECKING:
    from peakmem.allocator.settings.installed import InstalledTorch

_EPILOG = "Exit codes: 0 accepted, 2 refused. Warnings do not change it, unless --strict is given."
_VERSION = click.option(
    "--torch", "torch", metavar="VERSION", help="PyTorch version to judge by. [the one `python` would import]"
)
_JSON = click.option("--json", "json_target", metavar="FILE", help="Write JSON; - is standard output.")
_STRICT = click.option("--strict", is_flag=True, help="Exit with 2 for what is inert or harmful, too.")
_PASSED_ON = {"allow_interspersed_args": False, "ignore_unknown_options": False}


@click.group()
def command() -> None:
    """Check, explain and find the allocator's settings (PYTORCH_CUDA_ALLOC_CONF).

    \b
    peakmem conf check max_split_size_mb:128
    peakmem conf check TF_FORCE_GPU_ALLOW_GROWTH=true
    peakmem conf explain expandable_segments:True,roundup_power2_divisions:8
    peakmem conf lint train.py
    peakmem conf show -- torchrun train.py
    """


@command.command(epilog=_EPILOG)
@_VERSION
@_JSON
@_STRICT
@click.argument("string", metavar="STR")
def check(string: str, torch: str | None, json_target: str | None, strict: bool) -> None:
    """Would PyTorch take this string, and would it do anything?"""
    _judge(string, torch, json_target, strict=strict, at_length=False)


@command.command(epilog=_EPILOG)
@_VERSION
@_JSON
@_STRICT
@click.argument("string", metavar="STR")
def explain(string: str, torch: str | None, json_target: str | None, strict: bool) -> None:
    """What does each option of this string do to me?"""
    _judge(string, torch, json_target, strict=strict, at_length=True)


def _judge(string: str, version: str | None, json_target: str | None, *, strict: bool, at_length: bool) -> None:
    from peakmem.allocator.settings.findings import Kind, examine
    from peakmem.allocator.settings.parse import parse
    from peakmem.cli import conf_text
    from peakmem.cli.conf_frameworks import judge_framework
    from peakmem.cli.plain import text_console
    from peakmem.files import write_json

    if judge_framework(string, json_target):
        return
    variable, value = conf_text.split_assignment(string)
    torch = _torch(version)
    result = parse(value, version=torch.version)
    findings = examine(result, torch.platform)
    if json_target is not None:
        write_json(conf_text.as_json(result, findings, command="explain" if at_length else "check"), json_target)
    if json_target != "-":
        conf_text.print_verdict(text_console(), result, findings, torch, variable=variable, at_length=at_length)
    doubtful = any(finding.kind is not Kind.NOTE for finding in findings)
    if not result.accepted or (strict and doubtful):
        raise SystemExit(ExitCode.BAD_INPUT)


@command.command(epilog="Exit codes: 0 nothing wrong, 2 errors (with --strict: or warnings).")
@_VERSION
@_JSON
@_STRICT
@click.argument("files", nargs=-1, required=True, metavar="SCRIPT.py|NOTEBOOK.ipynb...", type=click.Path())
def lint(files: tuple[str, ...], torch: str | None, json_target: str | None, strict: bool) -> None:
    """Do these scripts or notebooks set the variable well, and in time?"""
    from peakmem.allocator.settings.lint import Level, lint_file
    from peakmem.cli import conf_text
    from peakmem.cli.plain import text_console
    from peakmem.files import write_json

    installed = _torch(torch)
    remarks = [
        remark
        for file in files
        for remark in lint_file(Path(file), version=installed.version, platform=installed.platform)
    ]
    if json_target is not None:
        write_json(conf_text.lint_json(remarks, installed), json_target)
    if json_target != "-":
        conf_text.print_remarks(text_console(), remarks, files, installed)
    fatal = (Level.ERROR, Level.WARNING) if strict else (Level.ERROR,)
    if any(remark.level in fatal for remark in remarks):
        raise SystemExit(ExitCode.BAD_INPUT)


@command.command(context_settings=_PASSED_ON, epilog=_EPILOG)
@_JSON
@_STRICT
@click.argument("words", nargs=-1, required=True, type=click.UNPROCESSED, metavar="[--] COMMAND [ARGUMENTS]...")
def show(words: tuple[str, ...], json_target: str | None, strict: bool) -> None:
    """What is in force in the processes of this command?

    The command is started and stopped again before its script does anything.
    """
    from peakmem.allocator.settings.findings import Kind
    from peakmem.allocator.settings.in_force import settings_in_force
    from peakmem.cli import conf_text
    from peakmem.cli.plain import text_console
    from peakmem.files import write_json

    seen = settings_in_force(words)
    if json_target is not None:
        write_json(conf_text.show_json(seen), json_target)
    if json_target != "-":
        conf_text.print_in_force(text_console(), seen)
    refused = any(process.result is not None and not process.result.accepted for process in seen)
    doubtful = any(finding.kind is not Kind.NOTE for process in seen for finding in process.findings)
    if refused or (strict and doubtful):
        raise SystemExit(ExitCode.BAD_INPUT)


def _torch(version: str | None) -> InstalledTorch:
    from peakmem.allocator.settings.findings import Platform
    from peakmem.allocator.settings.installed import InstalledTorch, interpreter_of, torch_of
    from peakmem.allocator.settings.version import TorchVersion

    if version is not None:
        return InstalledTorch(
            version=TorchVersion.parse(version), platform=Platform(), found=True, where="the command line"
        )
    return torch_of(interpreter_of(("python3",)))
