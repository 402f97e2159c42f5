"""`peakmem run --measure` as a command: what is printed where, and how it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from peakmem.host.measurement import SCHEMA


def peakmem(*words: str, **options: object) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    return subprocess.run(
        [sys.executable, "-m", "peakmem", *words], capture_output=True, text=True, env=env, stdin=subprocess.DEVNULL,
        check=False, timeout=120,
    )  # fmt: skip


def test_the_command_is_heard_and_measured(tmp_path: Path) -> None:
    target = tmp_path / "measured.json"
    done = peakmem("run", "--measure", "--json", str(target), "--", sys.executable, "-c", "print('heard')")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("heard\n")
    assert "largest process" in done.stdout
    assert json.loads(target.read_text())["schema"] == SCHEMA


def test_the_output_can_be_hidden_or_kept(tmp_path: Path) -> None:
    words = ("--", sys.executable, "-c", "print('hea' + 'rd')")
    assert "heard" not in peakmem("run", "--measure", "--output", "hide", *words).stdout
    kept = tmp_path / "log"
    assert "heard" not in peakmem("run", "--measure", "--output", str(kept), *words).stdout
    assert kept.read_text() == "heard\n"
    again = peakmem("run", "--measure", "--output", str(kept), *words)
    assert again.returncode == 2 and "--force" in again.stderr
    assert peakmem("run", "--measure", "--force", "--output", str(kept), *words).returncode == 0


def test_json_on_standard_output_is_all_that_is_there() -> None:
    words = ("--measure", "--output", "hide", "--json", "-")
    done = peakmem("run", *words, "--", sys.executable, "-c", "print('heard')")
    assert json.loads(done.stdout)["ending"] == "ended"
    assert "largest process" in done.stderr


def test_a_failing_command_ends_with_3() -> None:
    done = peakmem("run", "--measure", "--", sys.executable, "-c", "raise SystemExit(7)")
    assert done.returncode == 3
    assert "the command failed with exit code 7" in done.stdout


def test_ctrl_c_ends_with_130_and_tells_what_was_seen() -> None:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    code = "import time; print('ready', flush=True); time.sleep(60)"
    process = subprocess.Popen(
        [sys.executable, "-m", "peakmem", "run", "--measure", "--", sys.executable, "-c", code],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True, env=env,
        start_new_session=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "interrupted: this is what was seen until then" in out
    assert "largest process" in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--measure", "--gpu", "4090", "--", "true"), "--measure runs the command for real, so --gpu has nothing"),
        (("--measure", "--set", "amp=bf16", "--", "true"), "so --set has nothing to act on"),
        (("--measure", "--format", "slurm", "--", "true"), "so --format has nothing to act on"),
        (("--against", "f.json", "--", "true"), "--against needs a real run beside it"),
        (("--measure", "--against", "/no/such.json", "--", "true"), "/no/such.json can't be read"),
        (("--measure", "--", "/no/such/program"), "there is no program '/no/such/program'"),
        (("--margin", "10%", "--", "true"), "--margin is for a request"),
        (("--format", "lsf", "--margin", "lots", "--", "true"), "'lots' is not a size"),
        (("--format", "docker", "--json", "-", "--", "true"), "both write to standard output"),
    ],
)
def test_what_makes_no_sense_is_told_before_anything_runs(words: tuple[str, ...], message: str) -> None:
    done = peakmem("run", *words)
    assert done.returncode == 2
    assert message in done.stderr


def test_a_forecast_is_put_beside(tmp_path: Path) -> None:
    forecast = tmp_path / "f.json"
    forecast.write_text(json.dumps({"schema": "peakmem/cpu-forecast/1", "host": {"peak_rss": 1 << 30}}))
    done = peakmem("run", "--measure", "--against", str(forecast), "--", "true")
    assert done.returncode == 0, done.stderr
    assert "host memory, largest process   1.00 GiB" in done.stdout
