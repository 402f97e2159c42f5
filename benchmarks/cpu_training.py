"""How true forecasts of training on the CPU are: trains for real, forecasts without training, puts both side by side.

    python benchmarks/cpu_training.py                       all jobs of cpu_training.toml, with this Python
    python benchmarks/cpu_training.py --jobs FILE.toml --only NAME --python /path/to/python

Truths are the median of three runs in fresh processes (VmHWM, as the kernel gives it with the end of a process) and are
kept in a file, so that a second run of the benchmark only forecasts. Figures are MiB, times seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shlex
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

try:
    import tomllib
except ModuleNotFoundError:
    import tomli as tomllib  # type: ignore[no-redef]

HERE = Path(__file__).resolve().parent
RUNS = 3
PREDICT = (sys.executable, "-m", "peakmem", "run", "--device", "cpu", "--json", "-", "--")
MIB = 2**20
TMP = Path(tempfile.gettempdir()) / "peakmem-cpu-training"


class JobError(Exception):
    """A job can't be trained here, since a package is missing, say."""


def words(text: str) -> list[str]:
    """The words of a command of a jobs file."""
    return shlex.split(text.format(here=HERE, tmp=TMP))


def train(python: str, case: dict[str, Any]) -> tuple[int, float, float, int]:
    """Run a job for real: VmHWM of its process, seconds (wall, CPU), highest PSS of its tree (0 unless asked for)."""
    started = time.monotonic()
    process = subprocess.Popen(
        [python, *words(case["command"])], env={**os.environ, **case.get("env", {})}, stdout=subprocess.DEVNULL
    )
    tree = [0]
    if case.get("tree"):
        threading.Thread(target=watch_tree, args=(process.pid, tree), daemon=True).start()
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise JobError
    return usage.ru_maxrss * 1024, time.monotonic() - started, usage.ru_utime + usage.ru_stime, tree[0]


def watch_tree(pid: int, highest: list[int]) -> None:
    """Sum the PSS of a process and its children until it ends."""
    while True:
        try:
            pids = [pid, *map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]
            total = 0
            for one in pids:
                text = Path(f"/proc/{one}/smaps_rollup").read_text()
                total += next(int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:")) * 1024
            highest[0] = max(highest[0], total)
        except (OSError, StopIteration):
            if not Path(f"/proc/{pid}").exists():
                return
        time.sleep(0.02)


def forecast(python: str, case: dict[str, Any]) -> tuple[dict[str, Any], float, float]:
    """Forecast a job: the JSON, and seconds of wall and of CPU time."""
    started, cpu = time.monotonic(), cpu_of_children()
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "peakmem",
            "run",
            "--device",
            "cpu",
            "--json",
            "-",
            "--",
            python,
            *words(case["command"]),
        ],
        env={**os.environ, **case.get("env", {})},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode not in (0, 1):
        raise SystemExit(f"{case['name']} can't be forecast: {done.stderr[-2000:]}")
    return json.loads(done.stdout), time.monotonic() - started, cpu_of_children() - cpu


def cpu_of_children() -> float:
    """CPU seconds of all that has ended below this process."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def key_of(python: str, case: dict[str, Any]) -> str:
    """What a job's truth is kept under."""
    return f"{python} {case['command']} {case.get('env', {})}"


def truth(python: str, case: dict[str, Any], kept: dict[str, Any], file: Path) -> dict[str, Any]:
    """The truth of a job, from the file if it is there."""
    key = key_of(python, case)
    if key not in kept:
        if "before" in case:
            subprocess.run([python, *words(case["before"])], check=True, stdout=subprocess.DEVNULL)
        runs = [train(python, case) for _ in range(RUNS)]
        kept[key] = {
            "peaks": [peak for peak, *_ in runs],
            "seconds": min(seconds for _, seconds, *_ in runs),
            "cpu": min(cpu for _, _, cpu, _ in runs),
            "tree": [tree for *_, tree in runs],
        }
        file.write_text(json.dumps(kept, indent=1))
    found: dict[str, Any] = kept[key]
    return found


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--jobs", type=Path, default=HERE / "cpu_training.toml")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--only", default="")
    parser.add_argument("--truths", type=Path, default=TMP / "truths.json")
    parser.add_argument("--truths-only", action="store_true")
    parser.add_argument("--known-only", action="store_true", help="leave out jobs that were not trained before")
    chosen = parser.parse_args()
    TMP.mkdir(exist_ok=True)
    cases = [case for case in tomllib.loads(chosen.jobs.read_text())["case"] if chosen.only in case["name"]]
    kept = json.loads(chosen.truths.read_text()) if chosen.truths.exists() else {}
    rows = []
    print(
        f"{'job':28} {'truth':>7} {'scatter':>8} {'forecast':>9} {'error':>7} {'real s':>7} {'fc. s':>6} "
        f"{'real CPU':>9} {'fc. CPU':>8} {'own':>6}"
    )
    for case in cases:
        if chosen.known_only and key_of(chosen.python, case) not in kept:
            continue
        try:
            real = truth(chosen.python, case, kept, chosen.truths)
        except JobError:
            print(f"{case['name']:28} can't be trained here")
            continue
        if chosen.truths_only:
            print(case["name"], [peak // MIB for peak in real["peaks"]], real["seconds"], flush=True)
            continue
        said, seconds, cpu = forecast(chosen.python, case)
        peak = statistics.median(real["peaks"])
        error = said["host"]["peak_rss"] / peak - 1
        scatter = (max(real["peaks"]) - min(real["peaks"])) / peak
        rows.append((peak, error, real["seconds"], seconds, said["own_peak"], cpu / real["cpu"]))
        print(
            f"{case['name']:28} {peak / MIB:7.0f} {scatter:8.1%} {said['host']['peak_rss'] / MIB:9.0f} {error:+7.1%} "
            f"{real['seconds']:7.1f} {seconds:6.1f} {real['cpu']:9.1f} {cpu:8.1f} {said['own_peak'] / MIB:6.0f}",
            flush=True,
        )
        if case.get("tree"):
            tree = statistics.median(real["tree"])
            forecast_tree = said["host"]["tree_rss"] or 0
            error = forecast_tree / tree - 1
            print(f"{'  its tree':28} {tree / MIB:7.0f} {'':8} {forecast_tree / MIB:9.0f} {error:+7.1%}")
    if rows:
        errors = [abs(row[1]) for row in rows]
        large = [abs(row[1]) for row in rows if row[0] > 500 * MIB]
        slow = [row for row in rows if row[2] > 10]
        print(f"\nmedian error {statistics.median(errors):.1%}, worst above 500 MiB {max(large, default=0):.1%}")
        if slow:
            wall, cpu = max(row[3] / row[2] for row in slow), max(row[5] for row in slow)
            print(
                f"time of the forecast of jobs over 10 s: at most {wall:.2f} of the real one, {cpu:.2f} of its CPU time"
            )
        print(f"largest forecasting process {max(row[4] for row in rows) / MIB:.0f} MiB")


if __name__ == "__main__":
    main()
