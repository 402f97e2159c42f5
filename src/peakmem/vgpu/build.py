"""Build peakmem's native libraries on first use, and keep them in the user's cache folder.

They are the virtual GPU's, and the one that watches malloc on the host (`host/library.py`).

One library serves every CUDA 12 and CUDA 13 build of PyTorch, so the cache is keyed by the sources and the flags alone.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.util
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from peakmem.errors import PeakmemError
from peakmem.vgpu.probe import TorchFacts

LIBRARY = "libpeakmem_vgpu.so"
ALIASES = ("libcuda.so.1", "libcuda.so", "libnvidia-ml.so.1")
"""Names under which programs look for the driver and for NVML; Triton up to 3.2 links with the one without a number."""

TENSORFLOW = "tensorflow"
"""Folder beside the library, with the names under which TensorFlow opens the libraries of CUDA."""
TENSORFLOW_ALIASES = (
    "libcudart.so.12", "libcublas.so.12", "libcublasLt.so.12", "libcufft.so.11", "libcusolver.so.11",
    "libcusparse.so.12", "libnccl.so.2", "libcupti.so.12",
)  # fmt: skip
TENSORFLOW_CUDNN = "libcudnn.so.9"

NATIVE = Path(__file__).parent / "native"
PREBUILT = Path(__file__).parent / "prebuilt"


@dataclass(frozen=True, kw_only=True, slots=True)
class Library:
    """A native library of peakmem's.

    Attributes:
        name: of the file.
        what: in words.
        sources: folder of the sources.
        prebuilt: folder of what came with the package.
        cache: name of its folder in the user's cache.
        aliases: names under which programs look for it.
        seconds: about how long the build takes.
        beside: makes what else goes into its folder, given that folder, one for what is on the way, and the library
            that came with the package, if it did.
    """

    name: str
    what: str
    sources: Path
    prebuilt: Path
    cache: str
    aliases: tuple[str, ...] = ()
    seconds: int = 15
    beside: Callable[[Path, Path, Path | None], None] | None = None


def _names_for_tensorflow(result: Path, work: Path, prebuilt: Path | None) -> None:
    """Make the folder with the names under which TensorFlow opens the libraries of CUDA."""
    cudnn = result / TENSORFLOW / TENSORFLOW_CUDNN
    cudnn.parent.mkdir()
    if prebuilt is None:
        compile_tensorflow_library(cudnn, library=result / LIBRARY, work=work)
    elif (prebuilt.parent / TENSORFLOW_CUDNN).exists():
        shutil.copyfile(prebuilt.parent / TENSORFLOW_CUDNN, cudnn)
    for alias in TENSORFLOW_ALIASES:
        os.link(result / LIBRARY, result / TENSORFLOW / alias)


VGPU = Library(
    name=LIBRARY,
    what="the virtual GPU",
    sources=NATIVE,
    prebuilt=PREBUILT,
    cache="vgpu",
    aliases=ALIASES,
    beside=_names_for_tensorflow,
)

COMPILE_FLAGS = (
    "-O1",
    "-g1",
    "-std=c++17",
    "-fPIC",
    "-fvisibility=hidden",
    "-fvisibility-inlines-hidden",
    "-pthread",
    "-w",
)
# The library is loaded in front of every program of a session: it brings its C++ runtime along, hidden, so that none of
# the machine's gets in the way of the one PyTorch comes with. Compilers without a static one get the shared one.
LINK_FLAGS = ("-static-libstdc++", "-static-libgcc", "-Wl,--exclude-libs,ALL")
LINK_LIBRARIES = ("-ldl", "-lpthread")

DAY = 24 * 60 * 60.0
"""Seconds; a build that was used since is never removed."""
UNUSED_FOR = 30 * DAY
MOST_KEPT = 4
_KEY = re.compile(r"[0-9a-f]{24}")

Progress = Callable[[str], None]


def _silent(_: str) -> None:
    pass


def source_files(folder: Path = NATIVE) -> tuple[Path, ...]:
    """The files that make up the library, by name."""
    return tuple(sorted(p for p in folder.iterdir() if p.suffix in (".cpp", ".h", ".def", ".map")))


def _hashed_files(folder: Path) -> tuple[Path, ...]:
    inner = folder / TENSORFLOW
    return (*source_files(folder), *(source_files(inner) if inner.is_dir() else ()))


def source_hash(folder: Path = NATIVE) -> str:
    """Identify the library by its sources, the flags and the machine's architecture."""
    digest = hashlib.sha256(repr((COMPILE_FLAGS, LINK_FLAGS, LINK_LIBRARIES, platform.machine())).encode())
    for path in _hashed_files(folder):
        content = path.read_bytes()
        digest.update(f"{path.name} {len(content)}\n".encode() + content)
    return digest.hexdigest()[:24]


def ensure_library(
    facts: TorchFacts | None = None, *, progress: Progress | None = None, library: Library = VGPU
) -> Path:
    """Give the path of the built library; builds it if it is not there yet.

    Args:
        facts: the PyTorch it is for; every supported one gets the same library.
        progress: called with a line of text while something takes time.
        library: which one.

    Raises:
        PeakmemError: there is no compiler, or it fails.
    """
    del facts
    say = progress or _silent
    key = source_hash(library.sources)
    failures: list[str] = []
    for folder in _cache_folders(library):
        target = folder / key
        if _is_complete(target, library):
            _note_use(target)
            return target / library.name
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with _locked(folder / f"{key}.lock", say, library):
                if not _is_complete(target, library):
                    _make(folder, target, say, library)
        except OSError as error:
            failures.append(f"{folder}: {error.strerror or error}")
            continue
        if failures:
            warnings.warn(
                f"{library.what} was built in {folder}, where it may be lost ({'; '.join(failures)}); "
                "set XDG_CACHE_HOME to a folder that can be written",
                RuntimeWarning,
                stacklevel=2,
            )
        return target / library.name
    raise PeakmemError(
        f"no folder can hold the library {library.name} ({'; '.join(failures)})",
        hint="make room, or set XDG_CACHE_HOME to a folder that can be written",
    )


def _cache_folders(library: Library = VGPU) -> Iterator[Path]:
    import platformdirs

    folders = [Path(platformdirs.user_cache_dir("peakmem", appauthor=False)) / library.cache]
    folders.append(Path(tempfile.gettempdir()) / f"peakmem-{os.getuid()}" / library.cache)
    # The loader splits its variables at colons and semicolons, and knows no quoting.
    yield from (folder for folder in folders if not any(c in str(folder) for c in ":;"))


def _is_complete(target: Path, library: Library) -> bool:
    return all((target / name).exists() for name in (library.name, *library.aliases)) and _is_ours(target)


def _is_ours(path: Path) -> bool:
    # A folder of somebody else's in the shared temporary folder must not put code into our processes.
    return path.stat().st_uid in (os.getuid(), 0)


@contextlib.contextmanager
def _locked(path: Path, say: Progress, library: Library) -> Iterator[None]:
    """Hold a lock among processes; it goes with the process. Where locks are not known, the rename alone is safe."""
    with path.open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"another process is building {library.what}, waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        except OSError:
            pass
        yield


def _make(folder: Path, target: Path, say: Progress, library: Library) -> None:
    for stale in folder.glob(f"{target.name}.building-*"):  # of a build that was killed: the lock is ours
        shutil.rmtree(stale, ignore_errors=True)
    work = Path(tempfile.mkdtemp(prefix=f"{target.name}.building-", dir=folder))
    try:
        result = work / "result"
        result.mkdir()
        prebuilt = find_prebuilt(library=library)
        if prebuilt is not None:
            shutil.copyfile(prebuilt, result / library.name)
        else:
            compile_library(result / library.name, work=work, progress=say, library=library)
        if library.beside is not None:
            library.beside(result, work, prebuilt)
        for alias in library.aliases:
            # The same file: the loader then knows them as one library.
            try:
                (result / alias).symlink_to(library.name)
            except OSError:
                os.link(result / library.name, result / alias)
        if target.exists():
            shutil.rmtree(target, ignore_errors=True)
        result.rename(target)
        _prune(folder, keep=target)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _note_use(target: Path) -> None:
    """Let the folder's time tell when it was last used, to the day."""
    with contextlib.suppress(OSError):
        if time.time() - target.stat().st_mtime > DAY:
            os.utime(target)


def _prune(folder: Path, *, keep: Path) -> None:
    """Remove builds of other versions that nothing has used for long; several versions may be in use side by side."""
    found = []
    for path in folder.iterdir():
        if _KEY.fullmatch(path.name) and path != keep and path.is_dir():
            with contextlib.suppress(OSError):
                found.append((time.time() - path.stat().st_mtime, path))
    for index, (age, path) in enumerate(sorted(found)):
        if age > UNUSED_FOR or (index >= MOST_KEPT and age > DAY):
            shutil.rmtree(path, ignore_errors=True)
            with contextlib.suppress(OSError):
                path.with_name(f"{path.name}.lock").unlink()


def find_prebuilt(folder: Path | None = None, *, library: Library = VGPU) -> Path | None:
    """The library that came with the package, if it was built from these very sources."""
    path = (folder or library.prebuilt) / platform.machine() / library.name
    try:
        recorded = (path.parent / "source-hash").read_text().strip()
    except OSError:
        return None
    return path if path.exists() and recorded == source_hash(library.sources) else None


def find_compiler() -> tuple[str, ...] | None:
    """The C++ compiler to use: `$CXX`, `c++`, `g++`, `clang++`, or the one of the `ziglang` wheel."""
    chosen = shlex.split(os.environ.get("CXX", ""))
    if chosen and shutil.which(chosen[0]):
        return tuple(chosen)
    for name in ("c++", "g++", "clang++"):
        path = shutil.which(name)
        if path:
            return (path,)
    if importlib.util.find_spec("ziglang") is not None:
        # For any glibc from 2.17 on, as manylinux2014 has it: the folder may be shared among machines.
        return (sys.executable, "-m", "ziglang", "c++", "-target", f"{platform.machine()}-linux-gnu.2.17")
    return None


def is_zig(compiler: Sequence[str] | None) -> bool:
    """Whether it is the `ziglang` wheel's compiler."""
    return compiler is not None and "ziglang" in compiler


def compile_library(
    output: Path,
    *,
    work: Path,
    progress: Progress | None = None,
    sources: Path | None = None,
    library: Library = VGPU,
) -> None:
    """Compile the sources into one shared library.

    Args:
        output: the library to write.
        work: a folder for what comes in between; the caller removes it.
        progress: called with a line of text.
        sources: the folder of the sources; None: the library's own.
        library: which one.

    Raises:
        PeakmemError: there is no compiler, or it refuses the sources.
        OSError: the disk is full or can't be written.
    """
    say = progress or _silent
    sources = sources or library.sources
    compiler = find_compiler()
    if compiler is None:
        raise PeakmemError(
            f"{library.what} has to be built once, and no C++ compiler was found (CXX, c++, g++, clang++)",
            hint="pip install 'peakmem[compiler]'",
        )
    units = [path for path in source_files(sources) if path.suffix == ".cpp"]
    objects = [work / f"{unit.stem}.o" for unit in units]
    duration = "some minutes" if is_zig(compiler) else f"about {library.seconds} s"
    say(f"building {library.what} (once, {duration}) with {' '.join(compiler)}")

    def compile_unit(unit: Path, result: Path) -> None:
        _run(
            [*compiler, *COMPILE_FLAGS, "-I", str(sources), "-c", str(unit), "-o", str(result)], work, what=library.what
        )

    with ThreadPoolExecutor(max_workers=min(4, os.cpu_count() or 1)) as pool:
        for _ in pool.map(compile_unit, units, objects):
            pass
    exports = f"-Wl,--version-script={sources / 'exports.map'}"
    link = [*compiler, "-shared", "-o", str(output), f"-Wl,-soname,{library.name}", exports, *map(str, objects)]
    try:
        _run([*link, *LINK_FLAGS, *LINK_LIBRARIES], work, what=library.what)
    except PeakmemError:
        _run([*link, *LINK_LIBRARIES], work, what=library.what)


def compile_tensorflow_library(output: Path, *, library: Path, work: Path, sources: Path = NATIVE / TENSORFLOW) -> None:
    """Compile what goes by the name of cuDNN in front of TensorFlow, which is linked with the library itself.

    Args:
        output: the library to write.
        library: what `compile_library` wrote.
        work: a folder for what comes in between.
        sources: the folder of the sources.

    Raises:
        PeakmemError: there is no compiler, or it refuses the sources.
    """
    compiler = find_compiler()
    if compiler is None or not sources.is_dir():
        return
    units = [str(path) for path in source_files(sources) if path.suffix == ".cpp"]
    link = ["-shared", "-o", str(output), *units, "-Wl,--no-as-needed", str(library), *LINK_LIBRARIES]
    _run([*compiler, *COMPILE_FLAGS, *link], work, what=VGPU.what)


def _run(command: Sequence[str], work: Path, *, what: str) -> None:
    environment = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}
    environment |= {"TMPDIR": str(work), "ZIG_LOCAL_CACHE_DIR": str(work / "zig"), "LC_ALL": "C"}
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", env=environment, check=False)
    if done.returncode == 0:
        return
    if "No space left on device" in done.stderr:
        raise OSError(28, "No space left on device")
    if done.returncode < 0:
        raise PeakmemError(
            f"the compiler {command[0]} was stopped by signal {-done.returncode}",
            hint="run the command again; it needs about 1 GiB of memory",
        )
    first = next((line for line in done.stderr.splitlines() if "error" in line.lower()), done.stderr.strip()[:500])
    raise PeakmemError(
        f"the compiler {command[0]} could not build {what}: {first}",
        hint="a C++17 compiler is needed: set CXX to one, or `pip install 'peakmem[compiler]'` and set "
        "CXX='python -m ziglang c++'",
    )
