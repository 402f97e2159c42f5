from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from peakmem.cli import main
from peakmem.cli.main import peakmem

ROOT = Path(__file__).parents[3]
COMMANDS = peakmem.list_commands(click.Context(peakmem))


def all_commands() -> list[tuple[str, ...]]:
    """The words of every command, those of groups included."""
    found: list[tuple[str, ...]] = []
    for name in COMMANDS:
        command = peakmem.get_command(click.Context(peakmem), name)
        found.append((name,))
        if isinstance(command, click.Group):
            found += [(name, inner) for inner in command.commands]
    return found


@pytest.mark.parametrize("words", all_commands(), ids=" ".join)
def test_every_command_has_help_for_itself_and_each_option(words: tuple[str, ...]) -> None:
    command: click.Command = peakmem
    for word in words:
        assert isinstance(command, click.Group)
        inner = command.get_command(click.Context(command), word)
        assert inner is not None
        command = inner
    assert command.help
    unexplained = [p.name for p in command.params if isinstance(p, click.Option) and not p.hidden and not p.help]
    assert not unexplained


@pytest.mark.parametrize("words", [(), *all_commands()], ids=" ".join)
def test_help_fits_a_terminal_and_ends_with_exit_code_0(words: tuple[str, ...]) -> None:
    done = CliRunner(env={"COLUMNS": "80"}).invoke(peakmem, [*words, "--help"])
    assert done.exit_code == 0, done.output
    wide = [line for line in done.output.splitlines() if len(line) > 80 and not line.startswith("  peakmem ")]
    assert not wide  # a command that is to be copied stands on one line


@pytest.mark.parametrize("words", [w for w in all_commands() if w[0] != "conf" or len(w) == 2], ids=" ".join)
def test_help_states_the_exit_codes(words: tuple[str, ...]) -> None:
    assert "Exit code" in CliRunner().invoke(peakmem, [*words, "--help"]).output


def test_the_first_page_names_every_command() -> None:
    output = CliRunner(env={"COLUMNS": "80"}).invoke(peakmem, ["--help"]).output
    listed = [
        line.split()[0]
        for line in output.partition("Commands:\n")[2].splitlines()
        if line.startswith("  ") and line[2] != " "
    ]
    assert listed == COMMANDS


@pytest.mark.parametrize(
    ("typed", "hint"),
    [
        ("rnu", "did you mean peakmem run?"),
        ("doktor", "did you mean peakmem doctor?"),
        ("train.py", "to run a script: peakmem run train.py"),
        ("xyzzy", "peakmem --help lists the commands"),
    ],
)
def test_an_unknown_command_gets_a_suggestion(typed: str, hint: str) -> None:
    done = CliRunner().invoke(peakmem, [typed])
    assert done.exit_code == 2
    assert f"there is no command '{typed}'" in done.stderr
    assert hint in done.stderr
    assert "Traceback" not in done.output


def test_a_command_that_fails_says_what_to_do_on_standard_error() -> None:
    done = CliRunner().invoke(peakmem, ["gpus", "no-such-card"])
    assert done.exit_code == 2
    assert done.stdout == ""
    message, *hints = done.stderr.splitlines()
    assert message.startswith("peakmem: ")
    assert hints and all(line.startswith("         ") for line in hints)


def test_the_first_page_loads_nothing_that_is_slow() -> None:
    code = f"""
import sys
from {main.__name__} import peakmem
try:
    peakmem.main(["--help"])
finally:
    print(sorted({{name.partition(".")[0] for name in sys.modules}}))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(ast.literal_eval(done.stdout.splitlines()[-1]))
    assert "click" in loaded
    assert not loaded & {"torch", "numpy", "rich", "msgspec", "jinja2", "psutil"}


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))], ids=lambda page: page.name
)
def test_pages_name_only_commands_that_there_are(page: Path) -> None:
    named = re.findall(r"(?:^|`|\$ |^ {4})peakmem ([a-z]+)\b", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert set(named) <= set(COMMANDS)


def test_the_first_page_of_the_project_names_every_command_that_asks_something() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    set_aside = {"import", "export"}  # of the trace file's own page
    assert not [name for name in COMMANDS if f"peakmem {name}" not in readme and name not in set_aside]


def test_a_reader_that_goes_away_is_no_verdict() -> None:
    # Standard output is a pipe that nobody reads any more.
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "peakmem", "gpus"]
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True, check=False)
    os.close(write)
    assert done.returncode == main.BROKEN_PIPE
    assert done.stderr == ""


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a device that is always full is Linux's")
@pytest.mark.parametrize("words", [["gpus"], ["--help"], ["run", "--help"]])
def test_output_that_has_no_room_is_told_of(words: list[str]) -> None:
    command = [sys.executable, "-m", "peakmem", *words]
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("peakmem: the output can't be written: No space left on device\n")


def test_what_peakmem_warns_of_names_no_line_of_source() -> None:
    code = (
        "import warnings\n"
        "from peakmem.cli.main import peakmem\n"
        "import peakmem.cli.gpus as gpus\n"
        "gpus.command.callback = lambda **_: warnings.warn('built where it may be lost', RuntimeWarning)\n"
        "peakmem(['gpus'])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr == "peakmem: built where it may be lost\n"
