"""Control groups of both versions as containers, systemd and schedulers make them: small copies of /proc and /sys."""

from __future__ import annotations

from pathlib import Path

import pytest

from peakmem.host.cgroups import groups_of
from peakmem.host.limits import limits_of

GIB = 2**30
V1_NONE = 9223372036854771712


class Machine:
    """A /proc and the mounts that it tells of, below a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.proc = folder / "proc"
        self._self = self.proc / "self"
        self._self.mkdir(parents=True)
        self._mounts: list[str] = []
        (self.proc / "meminfo").write_text("MemTotal: 16777216 kB\nMemAvailable: 8388608 kB\nSwapTotal: 0 kB\n")

    def mount(self, kind: str, root: str = "/", options: str = "rw") -> Path:
        point = self.folder / f"sys-{kind}"
        point.mkdir()
        self._mounts.append(f"31 24 0:26 {root} {point} rw,nosuid shared:9 - {kind} {kind} {options}")
        (self._self / "mountinfo").write_text("\n".join(self._mounts) + "\n")
        return point

    def member(self, *lines: str) -> None:
        (self._self / "cgroup").write_text("\n".join(lines) + "\n")


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def group(folder: Path, **files: object) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, value in files.items():
        (folder / name.replace("__", ".")).write_text(f"{value}\n")
    return folder


def test_version_2_with_every_parent(machine: Machine) -> None:
    point = machine.mount("cgroup2")
    group(point / "user.slice", memory__max=8 * GIB, memory__current=3 * GIB)
    inner = group(
        point / "user.slice" / "job.scope",
        memory__max="max",
        memory__high=2 * GIB,
        memory__current=GIB,
        memory__peak=GIB + 4096,
        memory__swap__max=0,
        memory__events="low 0\nhigh 3\nmax 0\noom 1\noom_kill 2",
    )
    machine.member("0::/user.slice/job.scope")
    found = groups_of(proc=machine.proc)
    assert [one.path for one in found] == [inner, inner.parent]
    assert [one.limit() for one in found] == [None, 8 * GIB]
    first = found[0]
    assert (first.throttle(), first.swap(), first.current(), first.peak(), first.kills()) == (
        2 * GIB, 0, GIB, GIB + 4096, 2
    )  # fmt: skip


def test_version_1_with_the_largest_number_as_no_limit(machine: Machine) -> None:
    point = machine.mount("cgroup", options="rw,memory")
    group(point, memory__limit_in_bytes=V1_NONE, memory__usage_in_bytes=9)
    group(
        point / "slurm" / "job_7",
        memory__limit_in_bytes=4 * GIB,
        memory__usage_in_bytes=GIB,
        memory__max_usage_in_bytes=2 * GIB,
        memory__oom_control="oom_kill_disable 0\nunder_oom 0\noom_kill 1",
        memory__stat="total_inactive_file 100\ntotal_active_file 23",
    )
    machine.member("7:cpu,cpuacct:/x", "4:memory:/slurm/job_7", "1:name=systemd:/")
    found = groups_of(proc=machine.proc)
    assert [one.limit() for one in found] == [4 * GIB, None]
    assert (found[0].peak(), found[0].kills(), found[0].file_cache()) == (2 * GIB, 1, 123)


def test_a_hybrid_system_counts_memory_by_version_1(machine: Machine) -> None:
    machine.mount("cgroup2")
    group(machine.mount("cgroup", options="rw,memory"), memory__limit_in_bytes=GIB, memory__usage_in_bytes=1)
    machine.member("4:memory:/", "0::/init.scope")
    assert [one.version for one in groups_of(proc=machine.proc)] == [1]


def test_a_container_without_a_namespace_sees_its_group_at_the_mount(machine: Machine) -> None:
    point = machine.mount("cgroup", root="/docker/abc", options="rw,memory")
    group(point, memory__limit_in_bytes=GIB, memory__usage_in_bytes=1)
    machine.member("4:memory:/docker/abc")
    assert [one.path for one in groups_of(proc=machine.proc)] == [point]


def test_a_group_outside_of_the_own_namespace_falls_back_to_what_can_be_seen(machine: Machine) -> None:
    point = machine.mount("cgroup2")
    group(point, memory__max=2 * GIB, memory__current=5)
    machine.member("0::/../../kubepods/pod1")
    assert [one.limit() for one in groups_of(proc=machine.proc)] == [2 * GIB]


def test_without_groups_there_are_none(machine: Machine) -> None:
    assert groups_of(proc=machine.proc) == ()


def test_all_limits_the_tightest_first(machine: Machine, tmp_path: Path) -> None:
    point = machine.mount("cgroup2")
    group(
        point / "pod", memory__max=6 * GIB, memory__current=5 * GIB, memory__stat=f"inactive_file {GIB}\nactive_file 0"
    )
    group(point / "pod" / "main", memory__max=8 * GIB, memory__current=GIB)
    machine.member("0::/pod/main")
    (machine.proc / "self" / "limits").write_text(
        "Limit                     Soft Limit           Hard Limit           Units\n"
        "Max address space         10737418240          unlimited            bytes\n"
        "Max data size             unlimited            unlimited            bytes\n"
        "Max resident set          1024                 unlimited            bytes\n"
    )
    found = limits_of(proc=machine.proc, shm=tmp_path / "no-shm")
    assert [(limit.kind, limit.bytes, limit.free) for limit in found] == [
        ("cgroup", 6 * GIB, 2 * GIB),  # page cache can be dropped
        ("cgroup", 8 * GIB, 7 * GIB),
        ("address_space", 10 * GIB, None),
        ("physical", 16 * GIB, 8 * GIB),
    ]
    assert found[0].name == f"memory.max of {point / 'pod'}"
    assert found[2].name == "ulimit -v"


def test_this_very_machine_has_limits() -> None:
    kinds = [limit.kind for limit in limits_of()]
    assert "physical" in kinds
