"""`peakmem conf`, `exec` and `explain`: what is printed, piped and 80 columns wide, as JSON, and the exit codes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from peakmem.cli import conf, exec_, explain
from peakmem.errors import PeakmemError

GOLDEN = Path(__file__).parent / "golden"
FRAGMENTED = (
    "[rank0]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 35.60 GiB. GPU 0 has a "
    "total capacity of 79.33 "
    "GiB of which 26.16 GiB is free. Process 12 has 53.16 GiB memory in use. Of the allocated memory "
    "11.97 GiB is allocated "
    "by PyTorch, and 40.69 GiB is reserved by PyTorch but unallocated."
)
FULL = (
    "CUDA out of memory. Tried to allocate 90.00 MiB. GPU 0 has a total capacity of 8.00 GiB of "
    "which 0 bytes is free. Of "
    "the allocated memory 7.13 GiB is allocated by PyTorch, and 127.09 MiB is reserved by PyTorch but unallocated."
)


def conf_command(*arguments: str) -> Result:
    return CliRunner().invoke(conf.command, list(arguments), catch_exceptions=True)


def compare_with_golden(name: str, printed: str) -> None:
    """Texts are kept as files; PEAKMEM_UPDATE_GOLDEN=1 writes them anew."""
    path = GOLDEN / f"{name}.txt"
    if os.environ.get("PEAKMEM_UPDATE_GOLDEN"):
        path.write_text(printed, encoding="utf-8")
    assert printed == path.read_text(encoding="utf-8")
    assert all(len(line) <= 80 for line in printed.splitlines())
    assert not any(line.endswith(" ") for line in printed.splitlines())


@pytest.mark.parametrize(
    ("name", "arguments", "code"),
    [
        ("check_accepted", ["check", "expandable_segments:True"], 0),
        ("check_inert", ["check", "garbage_collection_threshold:0.8"], 0),
        ("check_refused", ["check", "max_split_size_mb:64,max_split_mb:128"], 2),
        ("check_aborts", ["check", "expandable_segments=True"], 2),
        ("check_old", ["check", "--torch", "2.0", "expandable_segments:True"], 2),
        (
            "explain_list",
            [
                "explain",
                "roundup_power2_divisions:[256:1,512:2,1024:4,>:8],max_split_size_mb:256,expandable_segments:True",
            ],
            0,
        ),
        ("explain_empty", ["explain", ""], 0),
    ],
)
def test_texts(name: str, arguments: list[str], code: int) -> None:
    if "--torch" not in arguments:
        arguments = [arguments[0], "--torch", "2.14.1", *arguments[1:]]
    result = conf_command(*arguments)
    assert result.exit_code == code
    compare_with_golden(f"conf_{name}", result.output)


def test_strict_counts_what_is_inert() -> None:
    arguments = ["--torch", "2.14.1", "garbage_collection_threshold:0.8"]
    assert conf_command("check", *arguments).exit_code == 0
    assert conf_command("check", "--strict", *arguments).exit_code == 2
    assert conf_command("check", "--strict", "--torch", "2.14.1", "expandable_segments:True").exit_code == 0


def test_a_pasted_assignment_is_understood() -> None:
    result = conf_command("check", "--torch", "2.9", 'export PYTORCH_ALLOC_CONF="expandable_segments:True"')
    assert result.exit_code == 0
    assert "PyTorch 2.9.0 does not read PYTORCH_ALLOC_CONF." in result.output


def test_json_of_check() -> None:
    result = conf_command("check", "--torch", "2.14.1", "--json", "-", "max_split_size_mb:64,foo:1")
    told = json.loads(result.output)
    assert result.exit_code == 2
    assert told["schema"] == "peakmem/conf-check/1"
    assert told["verdict"] == "refused"
    assert told["refusal"]["start"] == 21
    assert told["refusal"]["exception"] == "ValueError"
    accepted = json.loads(conf_command("explain", "--torch", "2.14.1", "--json", "-", "max_split_size_mb:64").output)
    assert accepted["settings"]["max_split_size"] == 64 * 2**20
    assert accepted["options"][0]["effect"].startswith("Cached blocks of 64 MiB")


def test_a_version_that_is_none_is_an_error() -> None:
    result = conf_command("check", "--torch", "new", "")
    assert isinstance(result.exception, PeakmemError)
    assert "not a PyTorch version" in result.exception.message


def test_lint_prints_places_and_fails_on_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("late.py").write_text(
        'import os, torch\nx = torch.ones(1).cuda()\nos.environ["PYTORCH_CUDA_ALLOC_CONF"] = "max_split_mb:64"\n'
    )
    Path("good.py").write_text(
        'import os\nos.environ["PYTORCH_CUDA_ALLOC_CONF"] = "max_split_size_mb:64"\nimport torch\n'
    )
    result = conf_command("lint", "--torch", "2.14.1", "late.py", "good.py")
    assert result.exit_code == 2
    compare_with_golden("conf_lint", result.output)
    assert conf_command("lint", "--torch", "2.14.1", "good.py").exit_code == 0
    told = json.loads(conf_command("lint", "--torch", "2.14.1", "--json", "-", "late.py").output)
    assert [remark["line"] for remark in told["results"]] == [3, 3]


SHOW = """
import sys
from peakmem.cli.conf import command
command(sys.argv[1:])
"""


def shown(arguments: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTORCH_")}
    return subprocess.run(
        [sys.executable, "-c", SHOW, "show", *arguments],
        env={**kept, **environment},
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_show_tells_what_a_process_would_find_and_runs_none_of_it(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    wrapper = tmp_path / "run.sh"
    wrapper.write_text(
        f"#!/bin/sh\nexport PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:64\nexec {sys.executable} {script}\n"
    )
    wrapper.chmod(0o755)
    done = shown(["--json", "-", "--", str(wrapper)], {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"})
    assert done.returncode == 0, done.stderr
    (process,) = json.loads(done.stdout)["results"]
    assert process["environment"]["PYTORCH_CUDA_ALLOC_CONF"] == "max_split_size_mb:64"
    assert process["settings"]["max_split_size"] == 64 * 2**20
    assert process["settings"]["expandable_segments"] is False
    assert process["command"][-1] == str(script)
    assert not (tmp_path / "ran").exists()


def test_show_sees_a_sitecustomize_of_the_users_own(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text('import os\nos.environ["PYTORCH_CUDA_ALLOC_CONF"] = "foo:1"\n')
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    done = shown(["--json", "-", "--", sys.executable, "-c", "pass"], {"PYTHONPATH": path})
    assert done.returncode == 2, done.stderr
    (process,) = json.loads(done.stdout)["results"]
    assert process["refusal"]["reason"] == "there is no option foo in PyTorch " + process_version(process)


def process_version(process: dict[str, object]) -> str:
    return str(process["torch"] or "2.14.1")


def test_show_says_that_caching_is_off() -> None:
    done = shown(["--", sys.executable, "-c", "pass"], {"PYTORCH_NO_CUDA_MEMORY_CACHING": "0"})
    assert "turns the caching allocator off; any value" in " ".join(done.stdout.split())


def test_show_of_what_starts_no_python() -> None:
    result = conf_command("show", "--", "true")
    assert isinstance(result.exception, PeakmemError)
    assert "started no Python process" in result.exception.message
    missing = conf_command("show", "--", "no-such-program")
    assert isinstance(missing.exception, PeakmemError)


EXEC = """
import sys
from peakmem.cli.exec_ import command
from peakmem.cli.main import report_error
from peakmem.errors import PeakmemError
try:
    command(sys.argv[1:])
except PeakmemError as error:
    report_error(error)
    sys.exit(error.exit_code)
"""


def executed(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTORCH_")}
    command = [sys.executable, "-c", EXEC, "--torch", "2.14.1", *arguments]
    return subprocess.run(command, env={**kept, **environment}, capture_output=True, text=True, timeout=60)


PRINT = [sys.executable, "-c", "import os, sys; print(os.environ.get('PYTORCH_CUDA_ALLOC_CONF')); sys.exit(7)"]


def test_exec_sets_the_variable_and_passes_the_exit_code_on() -> None:
    done = executed("--alloc-conf", "expandable_segments:True", "--", *PRINT, PYTORCH_ALLOC_CONF="max_split_size_mb:64")
    assert (done.returncode, done.stdout) == (7, "expandable_segments:True\n")
    assert "PYTORCH_ALLOC_CONF=max_split_size_mb:64 is replaced" in done.stderr


@pytest.mark.parametrize(
    ("string", "reason"),
    [
        ("max_split_mb:64", "there is no option max_split_mb"),
        ("garbage_collection_threshold:0.8", "is inert"),
        ("expandable_segments:True,max_split_size_mb:64", "is harmful"),
    ],
)
def test_exec_refuses_what_is_no_use_unless_forced(string: str, reason: str) -> None:
    refused = executed("--alloc-conf", string, "--", *PRINT)
    assert refused.returncode == 2
    assert refused.stdout == ""
    assert reason in refused.stderr
    forced = executed("--alloc-conf", string, "--force", "--", *PRINT)
    assert (forced.returncode, forced.stdout) == (7, f"{string}\n")


def test_exec_of_a_program_that_is_not_there() -> None:
    result = CliRunner().invoke(exec_.command, ["--alloc-conf", "", "--", "no-such-program"])
    assert isinstance(result.exception, PeakmemError)
    assert "there is no program 'no-such-program'" in result.exception.message


def explained(*arguments: str, typed: str | None = None) -> Result:
    return CliRunner().invoke(explain.command, list(arguments), input=typed)


@pytest.mark.parametrize(("name", "text"), [("fragmented", FRAGMENTED), ("full", FULL)])
def test_explain_texts(name: str, text: str) -> None:
    result = explained(text)
    assert result.exit_code == 0
    compare_with_golden(f"explain_{name}", result.output)


def test_explain_reads_arguments_files_and_standard_input(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text(f"step 1\nstep 2\n{FRAGMENTED}\n")
    expected = explained(FRAGMENTED).output
    assert explained(str(log)).output == expected
    assert explained("-", typed=log.read_text()).output == expected
    assert explained(typed=log.read_text()).output == expected


def test_explain_json() -> None:
    told = json.loads(explained("--json", "-", FRAGMENTED).output)
    assert told["schema"] == "peakmem/explain/1"
    (result,) = told["results"]
    assert result["verdict"] == "fragmentation"
    assert result["option_helps"] is True
    assert result["alloc_conf"] == "expandable_segments:True"
    assert result["figures"]["capacity"] == int(79.33 * 2**30)
    assert result["rank"] == 0


@pytest.mark.parametrize(
    ("arguments", "typed", "message"),
    [
        (["all is well"], None, "no out-of-memory message was found in the message"),
        (["-"], "", "standard input is empty"),
        (["logs/missing.log"], None, "there is no file logs/missing.log"),
        (["."], None, "is a folder"),
    ],
)
def test_explain_says_what_it_was_not_given(arguments: list[str], typed: str | None, message: str) -> None:
    result = explained(*arguments, typed=typed)
    assert isinstance(result.exception, PeakmemError)
    assert message in result.exception.message


def test_explain_counts_what_it_does_not_show() -> None:
    messages = "\n".join(FULL.replace("90.00 MiB", f"{size}.00 MiB") for size in range(60, 66))
    assert "3 more messages" in explained(messages).output


def test_no_command_imports_torch() -> None:
    code = "import sys; from peakmem.cli import conf, exec_, explain; import peakmem.allocator.messages, "
    code += "peakmem.allocator.settings.lint; assert not {'torch', 'numpy'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
