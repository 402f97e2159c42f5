"""What is read of processes: their memory, and which belong to a command."""

from __future__ import annotations

import mmap
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from peakmem.host import tree as tree_module
from peakmem.host.procfs import command_line, last_pid, resident, rss, stat, thread_group, usage
from peakmem.host.tree import ProcessTree

MIB = 2**20


@pytest.fixture
def touched() -> Iterator[bytearray]:
    yield bytearray(b"x") * (64 * MIB)


def test_the_kinds_of_memory_of_this_process(touched: bytearray) -> None:
    pid = os.getpid()
    kinds, pages = resident(pid), usage(pid)
    assert kinds is not None
    assert pages is not None
    assert kinds.anonymous > 64 * MIB
    assert kinds.peak >= kinds.rss > kinds.anonymous
    assert pages.rss >= pages.pss >= pages.uss >= pages.dirty > 64 * MIB
    assert abs(rss(pid) - kinds.rss) < 4 * MIB


def test_shared_memory_is_told_from_other_memory() -> None:
    before = resident(os.getpid())
    block = mmap.mmap(-1, 16 * MIB)  # shared, of no file
    block[:] = b"x" * (16 * MIB)
    after = resident(os.getpid())
    assert before is not None
    assert after is not None
    assert after.shared - before.shared == 16 * MIB


def test_a_process_that_is_gone_has_nothing() -> None:
    process = subprocess.Popen(["true"])
    process.wait()
    assert usage(process.pid) is None
    assert resident(process.pid) is None
    assert stat(process.pid) is None
    assert rss(process.pid) == 0
    assert command_line(process.pid) == ()


def test_a_name_with_brackets_is_no_trouble(tmp_path) -> None:
    program = tmp_path / "a) R (b"
    program.symlink_to("/bin/sleep")
    process = subprocess.Popen([str(program), "5"])
    try:
        _until(lambda: command_line(process.pid)[:1] == (str(program),))
        found = stat(process.pid)
        assert found is not None
        assert found.parent == os.getpid()
        assert not found.ended
    finally:
        process.kill()
        process.wait()


def test_threads_are_told_from_processes() -> None:
    seen = []
    thread = threading.Thread(target=lambda: seen.append(threading.get_native_id()))
    wait = threading.Event()
    other = threading.Thread(target=wait.wait)
    other.start()
    thread.start()
    thread.join()
    assert thread_group(other.native_id or 0) == os.getpid()
    wait.set()
    other.join()
    assert last_pid() is not None


CHILDREN = """
import subprocess, sys, threading, time
threading.Thread(target=time.sleep, args=(20,), daemon=True).start()
middle = subprocess.Popen([sys.executable, "-c", '''
import subprocess, sys
p = subprocess.Popen(["sleep", "20"])
print(p.pid, flush=True)
sys.stdin.read()
'''], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
print(middle.pid, middle.stdout.readline().decode().strip(), flush=True)
sys.stdin.readline()
middle.stdin.close()
middle.wait()
print("gone", flush=True)
sys.stdin.readline()
"""


@pytest.mark.parametrize("most_new", [0, 256])
def test_a_grandchild_stays_known_after_its_parent_has_ended(monkeypatch, most_new: int) -> None:
    monkeypatch.setattr(tree_module, "MOST_NEW", most_new)  # 0: all processes are listed each time
    root = subprocess.Popen(
        [sys.executable, "-c", CHILDREN], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    )
    assert root.stdin is not None
    assert root.stdout is not None
    try:
        tree = ProcessTree(root.pid)
        tree.look()
        middle, leaf = map(int, root.stdout.readline().split())
        assert {one.pid for one in tree.look()} == {root.pid, middle, leaf}
        root.stdin.write(b"\n")
        root.stdin.flush()
        root.stdout.readline()
        assert {one.pid for one in tree.look()} == {root.pid, leaf}
    finally:
        os.killpg(root.pid, signal.SIGKILL)
        root.wait()
        root.stdin.close()
        root.stdout.close()
    _until(lambda: tree.look() == ())


def test_a_number_that_was_given_to_another_process_is_another_process(monkeypatch) -> None:
    child = subprocess.Popen(["sleep", "20"])
    try:
        tree = ProcessTree(child.pid)
        assert [one.pid for one in tree.look()] == [child.pid]
        real = tree_module.stat

        def later(pid: int):
            found = real(pid)
            if found is None or pid != child.pid:
                return found
            return type(found)(pid=pid, parent=1, started=found.started + 1, ended=False)

        monkeypatch.setattr(tree_module, "stat", later)
        assert tree.look() == ()
    finally:
        child.kill()
        child.wait()


def _until(happened, seconds: float = 5.0) -> None:
    end = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < end
        time.sleep(0.01)
