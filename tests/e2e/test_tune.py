"""`peakmem tune`: on traces, on commands, on real snapshots; its end by Ctrl-C and by the clock."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from peakmem.trace.file import write_trace
from tests.replay_traces import GIB, MIB, Program, program, variable_length

from .conftest import EXAMPLES, run_peakmem

pytestmark = pytest.mark.torch

EXPAND = "expandable_segments:True"
ANY = ("--python", sys.executable)


def test_lengths_that_vary_are_cured_with_figures_and_what_to_paste(tmp_path: Path) -> None:
    path = write_trace(variable_length(60), tmp_path / "run.peakmem")
    done = run_peakmem("tune", *ANY, path)
    assert done.code == 0, done.err
    first = done.out.splitlines()[0]
    assert first.startswith("expandable_segments:True takes ")
    assert "reserved instead of" in done.out
    assert "Under default settings stranded memory grows: by" in done.out
    assert "expandable_segments:True stops that." in " ".join(done.out.split())
    assert "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True" in done.out
    assert 'ENV PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True"' in done.out
    assert 'os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"' in done.out


def test_json_has_every_setting_with_its_reserved_memory_and_floor(tmp_path: Path) -> None:
    path = write_trace(variable_length(15), tmp_path / "run.peakmem")
    document = run_peakmem("tune", *ANY, "--memory", "4GiB", "--json", "-", path).json
    assert document["schema"] == "peakmem/tune/1"
    assert document["left"] == 0
    baseline, *others = document["results"]
    assert baseline["baseline"]
    assert baseline["alloc_conf"] == ""
    assert len(others) > 10
    for result in document["results"]:
        assert result["peak"]["active"] <= result["floor"]
        assert result["with_capacity"]["capacity"] == document["capacity"]
    names = [result["alloc_conf"] for result in others]
    assert len(names) == len(set(names))


def test_a_true_shortage_is_told_plainly(tmp_path: Path) -> None:
    path = write_trace(program("a=900M b=800M c=2M").trace(), tmp_path / "run.peakmem")
    done = run_peakmem("tune", *ANY, "--memory", "1.5GiB", path)
    assert done.code == 1
    text = " ".join(done.out.split())
    assert text.startswith("You are ")
    assert "short; nothing here is fragmentation: 1.66 GiB are in use at one time" in text
    assert "No option can help; a smaller batch, checkpointing or a larger card can." in text
    assert "export " not in done.out


def fragmented() -> Program:
    """Blocks of 30 MiB with marks between them make way for one of 300 MiB: only pages can be put together."""
    made = Program()
    for number in range(20):
        made.take(f"large{number}", 18 * MIB)
        made.take(f"mark{number}", 2 * MIB)
    for number in range(20):
        made.give(f"large{number}")
    made.take("whole", 300 * MIB)
    return made


def test_settings_that_make_it_fit_are_found(tmp_path: Path) -> None:
    path = write_trace(fragmented().trace(), tmp_path / "run.peakmem")
    done = run_peakmem("tune", *ANY, "--memory", "1050MiB", path)
    assert done.code == 0, done.out
    assert "makes it fit" in done.out
    assert "no room" in done.out


def test_the_memory_of_a_recorded_error_is_the_room_there_is(tmp_path: Path) -> None:
    from peakmem.trace.roles import Action

    made = program("a=700M")
    made.event(Action.SEGMENT_ALLOC, address=1 << 50, size=700 * MIB)
    made.event(Action.OOM, address=100 * MIB, size=400 * MIB)
    path = write_trace(made.trace(), tmp_path / "run.peakmem")
    done = run_peakmem("tune", *ANY, path)
    assert done.code == 1
    assert done.out.startswith("You are 300.00 MiB short")
    assert "ran out of memory" in " ".join(done.out.split())


def test_the_clock_ends_a_search_and_says_so(tmp_path: Path) -> None:
    path = write_trace(variable_length(300), tmp_path / "run.peakmem")
    started = time.monotonic()
    done = run_peakmem("tune", *ANY, "--budget-seconds", "1", path)
    assert time.monotonic() - started < 60
    assert done.code == 0
    assert "the time was up" in done.out
    assert "default settings *" in done.out


def test_ctrl_c_ends_a_search_and_keeps_what_was_found(tmp_path: Path) -> None:
    # Far more than can be searched before the signal comes.
    path = write_trace(variable_length(6000), tmp_path / "run.peakmem")
    process = subprocess.Popen(
        [sys.executable, "-m", "peakmem", "tune", *ANY, "--budget-seconds", "500", path],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "COLUMNS": "100"},
    )  # fmt: skip
    time.sleep(8)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert "Traceback" not in err
    assert process.returncode == 130, err
    assert "stopped by you" in out or "interrupted before anything was found" in err


def test_nothing_to_tune_is_bad_input(tmp_path: Path) -> None:
    assert run_peakmem("tune").code == 2
    missing = run_peakmem("tune", *ANY, tmp_path / "gone.pickle")
    assert missing.code == 2
    assert "does not exist" in missing.err
    path = write_trace(program("a=3M").trace(), tmp_path / "run.peakmem")
    behind = run_peakmem("tune", path, "--memory", "3GiB")
    assert behind.code == 2
    assert f"peakmem tune --memory 3GiB {path}" in behind.err


@pytest.mark.slow
def test_a_variable_length_training_is_cured_and_the_cure_is_verified() -> None:
    """200 steps of sentences of 64 to 512 tokens: reserved memory grows, and the settings named stop it."""
    done = run_peakmem(
        "tune", "--steps", "all", "--budget-seconds", "45", "--json", "-", "--",
        sys.executable, EXAMPLES / "variable_length.py", "--width", "256", "--layers", "4", "--vocabulary", "32000",
        timeout=600,
    )  # fmt: skip
    document = done.json
    baseline = document["results"][0]
    assert document["outcome"] == "helps"
    assert document["best"] == EXPAND
    best = next(result for result in document["results"] if result["alloc_conf"] == EXPAND)
    assert baseline["peak"]["reserved"] > 2 * baseline["peak"]["active"]
    assert baseline["grew"] > GIB
    assert best["grew"] < 0.1 * best["peak"]["reserved"]
    assert best["peak"]["reserved"] < 1.4 * best["peak"]["active"]
    verified = document["verified"]
    assert verified["steps"] == 200
    assert verified["fits"]
    assert verified["reserved"] == pytest.approx(best["peak"]["reserved"], rel=0.01)


def real_snapshots() -> list[Path]:
    folder = os.environ.get("PEAKMEM_SNAPSHOTS")
    return sorted(Path(folder).glob("*.pickle")) if folder else []


@pytest.mark.slow
@pytest.mark.parametrize("path", real_snapshots(), ids=lambda path: path.stem)
def test_snapshots_of_real_cards_get_a_table_within_a_minute(path: Path) -> None:
    used = os.times()
    document = run_peakmem("tune", *ANY, "--json", "-", path).json
    now = os.times()
    spent = now.children_user + now.children_system - used.children_user - used.children_system
    assert spent < 60  # on one core; the search has two
    assert len(document["results"]) > 5
    assert all(result["peak"]["reserved"] for result in document["results"])
    if path.stem.startswith("transformer_fullstep"):
        assert document["best"] == EXPAND
        assert document["results"][0]["peak"]["reserved"] - document["results"][1]["peak"]["reserved"] > 5 * GIB
