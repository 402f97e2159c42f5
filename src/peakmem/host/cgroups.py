"""Memory of control groups: limits, use and kills, for cgroup v1 and v2, nested, in containers and under systemd.

File names: Linux documentation, admin-guide/cgroup-v2.rst and admin-guide/cgroup-v1/memory.rst.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path, PurePosixPath

NO_LIMIT = 1 << 60
"""A limit of v1 that is none reads as the largest multiple of a page below 2^63."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Group:
    """A control group, or one of those that it lies in.

    Attributes:
        path: its folder.
        version: 1 or 2.
    """

    path: Path
    version: int

    def limit(self) -> int | None:
        """Bytes above which the kernel kills (memory.max, memory.limit_in_bytes); None: no limit."""
        return self._limit("memory.max", "memory.limit_in_bytes")

    def throttle(self) -> int | None:
        """Bytes above which the kernel slows the processes down and takes pages back (memory.high, v2 alone)."""
        return self._limit("memory.high", None)

    def swap(self) -> int | None:
        """Bytes of swap that it may use beside its memory (memory.swap.max, v2 alone); None: no limit."""
        return self._limit("memory.swap.max", None)

    def current(self) -> int | None:
        """Bytes charged now: processes, shared memory, page cache of files they read, kernel memory."""
        return self._number("memory.current", "memory.usage_in_bytes")

    def peak(self) -> int | None:
        """The highest `current` since the group was made (memory.peak since Linux 5.19); None if it is not kept."""
        return self._number("memory.peak", "memory.max_usage_in_bytes")

    def kills(self) -> int | None:
        """How many processes the kernel has killed here for want of memory; None if it is not counted."""
        fields = _pairs(_read(self.path / ("memory.events" if self.version == 2 else "memory.oom_control")))
        return fields.get("oom_kill")

    def file_cache(self) -> int | None:
        """Of `current`, page cache that the kernel can drop without loss: inactive and active file pages."""
        fields = _pairs(_read(self.path / "memory.stat"))
        prefix = "" if self.version == 2 else "total_"
        names = (f"{prefix}inactive_file", f"{prefix}active_file")
        return sum(fields[name] for name in names) if all(name in fields for name in names) else None

    def _limit(self, v2: str, v1: str | None) -> int | None:
        number = self._number(v2, v1)
        return None if number is None or number >= NO_LIMIT else number

    def _number(self, v2: str, v1: str | None) -> int | None:
        name = v2 if self.version == 2 else v1
        text = _read(self.path / name).strip() if name else ""
        return int(text) if text.isdecimal() else None


def groups_of(pid: int | str = "self", *, proc: Path = Path("/proc")) -> tuple[Group, ...]:
    """The control groups that count a process's memory, the innermost first; empty where there are none.

    Every one of them has a limit of its own, and the lowest holds: a job inside a container inside a slice.

    Args:
        pid: the process.
        proc: where /proc is.
    """
    memberships = _memberships(_read(proc / str(pid) / "cgroup"))
    mounts = _mounts(_read(proc / str(pid) / "mountinfo"))
    for version in (1, 2):  # a hybrid system has both, and memory is then counted by v1
        path = memberships.get(version)
        mount = mounts.get(version)
        if path is None or mount is None:
            continue
        root, point = mount
        found = _upwards(point, _below(root, path), version)
        if found:
            return found
    return ()


def _upwards(point: Path, inside: PurePosixPath, version: int) -> tuple[Group, ...]:
    folder = point / inside
    while not folder.is_dir() and folder != point:  # the group of another namespace: its nearest visible parent
        folder = folder.parent
    found = []
    while True:
        group = Group(path=folder, version=version)
        if group.current() is not None or group.limit() is not None:  # the root of v2 has no such files
            found.append(group)
        if folder == point or folder == folder.parent:
            return tuple(found)
        folder = folder.parent


def _below(root: PurePosixPath, path: PurePosixPath) -> PurePosixPath:
    """Where a group lies below what is mounted: in a container without its own namespace the mount starts deep."""
    try:
        return path.relative_to(root)
    except ValueError:
        return PurePosixPath(*(part for part in path.parts if part not in ("/", "..")))


def _memberships(text: str) -> dict[int, PurePosixPath]:
    """The group of each version, from `/proc/PID/cgroup`: lines "4:memory:/path" (v1) and "0::/path" (v2)."""
    found = {}
    for line in text.splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            found[2] = PurePosixPath(path)
        elif "memory" in controllers.split(","):
            found[1] = PurePosixPath(path)
    return found


def _mounts(text: str) -> dict[int, tuple[PurePosixPath, Path]]:
    """What of the groups is mounted (root in the hierarchy, mount point), from `/proc/PID/mountinfo`."""
    found: dict[int, tuple[PurePosixPath, Path]] = {}
    for line in text.splitlines():
        left, _, right = line.partition(" - ")
        fields, kind = left.split(), right.split()
        if len(fields) < 5 or len(kind) < 3:
            continue
        place = (PurePosixPath(_unescaped(fields[3])), Path(_unescaped(fields[4])))
        if kind[0] == "cgroup2":
            found.setdefault(2, place)
        elif kind[0] == "cgroup" and "memory" in kind[2].split(","):
            found.setdefault(1, place)
    return found


def _unescaped(text: str) -> str:
    for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(code, character)
    return text


def _pairs(text: str) -> dict[str, int]:
    """Lines "name 12"."""
    found = {}
    for line in text.splitlines():
        name, _, number = line.partition(" ")
        if number.strip().isdecimal():
            found[name] = int(number)
    return found


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
