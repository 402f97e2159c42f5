"""The measuring tape on real commands, small ones."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from peakmem.errors import PeakmemError
from peakmem.host import running
from peakmem.host.endings import Kills, ending_text, judge_ending, new_kills
from peakmem.host.measurement import Measurement
from peakmem.host.procfs import Usage, command_line
from peakmem.host.running import measure
from peakmem.host.tape import Tape

MIB = 2**20


def python(code: str, *, timeout: float | None = None) -> Measurement:
    return measure((sys.executable, "-c", code), output=subprocess.DEVNULL, timeout=timeout)


def with_our_path() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


def test_the_peak_of_one_process() -> None:
    found = python("import time; x = bytearray(b'x') * (100 << 20); time.sleep(0.3); del x; time.sleep(0.2)")
    assert 100 * MIB < found.peak.process < 140 * MIB
    assert 100 * MIB < found.peak.pss <= found.peak.rss
    assert max(found.points.rss) > 100 * MIB > found.points.rss[-1]
    assert list(found.points.seconds) == sorted(found.points.seconds)
    assert (found.ending, found.exit_code) == ("ended", 0)
    assert found.cost.samples >= 3
    assert found.cost.page_samples >= 1


UNSEEN = """
import subprocess, sys, time
from peakmem.host.running import measure
from peakmem.host.tape import Tape
Tape._look = lambda self: time.sleep(0.05)
print(measure((sys.executable, "-c", "x = bytearray(b'x') * (300 << 20)")).peak.process)
"""


def test_a_peak_between_two_looks_is_known_from_the_kernel() -> None:
    """In a process of its own: a child's peak begins with that of the process that made it."""
    done = subprocess.run(
        [sys.executable, "-c", UNSEEN], capture_output=True, text=True, check=True, env=with_our_path()
    )
    assert 300 * MIB < int(done.stdout) < 340 * MIB


FORKING = """
import mmap, os, time
block = mmap.mmap(-1, 128 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
for place in range(0, 128 << 20, 1 << 20):
    block[place : place + (1 << 20)] = b"x" * (1 << 20)
child = os.fork()
if child == 0:
    for place in range(0, 32 << 20, 1 << 20):
        block[place : place + (1 << 20)] = b"y" * (1 << 20)
    time.sleep(1)
    os._exit(0)
os.waitpid(child, 0)
"""


def test_what_is_shared_by_fork_counts_once_and_what_the_child_wrote_twice() -> None:
    found = python(FORKING)
    assert found.peak.rss > 256 * MIB
    # 128 of the parent, 32 that the child copied, the interpreter.
    assert 160 * MIB < found.peak.pss < 200 * MIB
    child = min(found.processes, key=lambda one: one.uss)
    assert 32 * MIB < child.uss < 48 * MIB
    assert child.parent == next(one.pid for one in found.processes if one is not child)


STARTING = """
import os, time
end = time.monotonic() + 1.5
while time.monotonic() < end:
    child = os.fork()
    if not child:
        time.sleep(0.05)  # a copy of its parent for a while, as under load
        os._exit(0)
    os.waitpid(child, 0)
"""


def test_a_process_that_is_still_the_copy_of_its_parent_is_not_counted(monkeypatch) -> None:
    # Whether the parent's pages were counted before or after the fork is chance: here each counts them all.
    pages = Usage(rss=MIB, pss=MIB, uss=MIB, dirty=MIB, anonymous=MIB, swap=0)
    monkeypatch.setattr("peakmem.host.tape.usage", lambda pid: pages if command_line(pid) else None)
    monkeypatch.setattr("peakmem.host.tape.NEW_AFTER", 60)
    child = subprocess.Popen([sys.executable, "-c", STARTING])
    tape = Tape(child.pid).start()
    child.wait()
    taped = tape.stop()
    assert len(taped.processes) > 3
    assert taped.highest is not None
    assert taped.highest.pss == MIB


@pytest.mark.skipif(not os.access("/dev/shm", os.W_OK), reason="no /dev/shm here")
def test_shared_memory_is_seen_where_it_lies() -> None:
    code = """
import os, time
path = "/dev/shm/peakmem-test-%d" % os.getpid()
with open(path, "wb") as file:
    file.write(b"x" * (24 << 20))
time.sleep(0.3)
os.unlink(path)
"""
    assert 24 * MIB <= python(code).peak.shm < 64 * MIB


@pytest.mark.parametrize(("code", "exit_code"), [("raise SystemExit(3)", 3), ("import nothing_of_the_kind", 1)])
def test_a_command_that_fails(code: str, exit_code: int) -> None:
    found = python(code)
    assert (found.ending, found.exit_code) == ("failed", exit_code)
    assert found.notes[0] == f"the command failed with exit code {exit_code}"


def test_a_command_that_ends_at_once() -> None:
    found = measure(("true",))
    assert (found.ending, found.exit_code) == ("ended", 0)


def test_a_command_that_is_not_there() -> None:
    with pytest.raises(PeakmemError, match="'/no/such/program' can't be started"):
        measure(("/no/such/program",))


def test_a_command_that_crashes() -> None:
    found = python("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)")
    assert (found.ending, found.exit_code) == ("failed", -signal.SIGSEGV)
    assert found.notes[0] == "the command was ended by SIGSEGV"


def test_a_kill_without_the_oom_killer_is_told_as_such(monkeypatch) -> None:
    monkeypatch.setattr(running, "kills", lambda groups: Kills(group=None, machine=4))
    found = python("import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    assert (found.ending, found.exit_code) == ("killed", -signal.SIGKILL)
    assert "no kill for want of memory was counted" in found.notes[0]


def test_a_kill_by_the_oom_killer_is_found_in_the_counters(monkeypatch) -> None:
    counts = iter([Kills(group=1, machine=7), Kills(group=2, machine=8)])
    monkeypatch.setattr(running, "kills", lambda groups: next(counts))
    found = python("import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    assert found.ending == "out_of_memory"
    assert found.notes[0].startswith("the kernel killed a process for want of host memory; the largest had ")


def test_after_the_time_allowed_it_is_interrupted() -> None:
    found = python("import time; time.sleep(60)", timeout=0.5)
    assert found.ending == "interrupted"
    assert found.seconds < 20


INTERRUPTED = """
import signal, subprocess, sys
from peakmem.host.running import measure
found = measure((sys.executable, "-c", {inner!r}))
print(found.ending, found.exit_code)
"""


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption_is_handed_on_and_what_was_seen_is_told(sign: int) -> None:
    inner = """
import time
try:
    print("ready", flush=True)
    time.sleep(60)
except KeyboardInterrupt:
    raise SystemExit(5)
"""
    process = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED.format(inner=inner)],
        stdout=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
        env=with_our_path(),
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(sign)
    told = process.communicate(timeout=30)[0]
    assert told == ("interrupted 5\n" if sign == signal.SIGINT else f"interrupted {-signal.SIGTERM}\n")


def test_the_environment_of_the_command_is_its_own_but_for_the_counters(tmp_path: Path) -> None:
    code = f"import os; open({str(tmp_path / 'seen')!r}, 'w').write(os.environ.get('LD_PRELOAD', '-'))"
    python(code)
    assert (tmp_path / "seen").read_text() == os.environ.get("LD_PRELOAD", "-")


def test_the_tape_keeps_to_its_share() -> None:
    """Beyond its first allowance: here there is none."""
    child = subprocess.Popen([sys.executable, "-c", "import time; x = bytearray(b'x') * (200 << 20); time.sleep(4)"])
    try:
        tape = Tape(child.pid, share=0.01)
        tape._pages.spent = tape._counters.spent = 1.0  # the allowance is used up
        tape.start()
        time.sleep(3)
        taped = tape.stop()
    finally:
        child.kill()
        child.wait()
    assert taped.cost.share < 0.05  # two clocks of 1 % each, and the first looks
    assert taped.rss > 200 * MIB


def test_a_process_that_is_not_looked_at_any_more_is_left_out() -> None:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(5)"])
    seen = threading.Event()

    def extra(pid: int) -> int | None:
        seen.set()
        return None

    try:
        tape = Tape(child.pid, extra=extra).start()
        assert seen.wait(5)
        time.sleep(0.1)
        taped = tape.stop()
    finally:
        child.kill()
        child.wait()
    assert taped.rss == 0
    assert taped.highest is None


def test_what_counts_beside_resident_memory_is_added_to_its_process() -> None:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(5)"])
    try:
        tape = Tape(child.pid, extra=lambda pid: 7 * MIB).start()
        time.sleep(0.5)
        taped = tape.stop()
    finally:
        child.kill()
        child.wait()
    assert taped.highest is not None
    assert taped.highest.extra == 7 * MIB
    assert taped.at_peaks[child.pid][1] == 7 * MIB


@pytest.mark.parametrize(
    ("exit_code", "interrupted", "killed", "ending"),
    [
        (0, False, 0, "ended"),
        (1, False, None, "failed"),
        (-9, False, 0, "killed"),
        (137, False, None, "killed"),
        (137, False, 1, "out_of_memory"),
        (1, False, 3, "out_of_memory"),  # a worker was killed, and the command noticed
        (0, True, 0, "interrupted"),
    ],
)
def test_endings(exit_code: int, interrupted: bool, killed: int | None, ending: str) -> None:
    assert judge_ending(exit_code, interrupted=interrupted, killed=killed) == ending


def test_kills_on_the_machine_count_where_the_group_does_not_tell() -> None:
    assert new_kills(Kills(group=None, machine=3), Kills(group=None, machine=5)) == 2
    assert new_kills(Kills(group=1, machine=3), Kills(group=1, machine=5)) == 0
    assert new_kills(Kills(group=None, machine=None), Kills(group=None, machine=None)) is None
    text = ending_text(1, "out_of_memory", killed=2, largest=3 * MIB)
    assert text == "the kernel killed 2 processes for want of host memory; the largest had 3.00 MiB"
