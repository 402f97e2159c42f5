"""Build peakmem's native libraries on first use, and keep them in the user's cache folder.

They are the virtual GPU's, and the one that watches malloc on the host (`host/library.py`).

One library serves every CUDA 12 and CUDA 13 build of PyTorch, so the cache is keyed by the sources and the flags alone.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import platform
import re
import shutil
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

from peakmem.errors import PeakmemError
from peakmem.vgpu.compiling import (
    COMPILE_FLAGS,
    LINK_FLAGS,
    LINK_LIBRARIES,
    Library,
    Progress,
    compile_library,
    compile_tensorflow_library,
    silent,
    source_files,
)
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

SOURCE_HASH = "source-hash"
"""File beside a prebuilt library: the `source_hash` of what it was built from."""

NATIVE = Path(__file__).parent / "native"
PREBUILT = Path(__file__).parent / "prebuilt"


def _names_for_tensorflow(result: Path, work: Path, prebuilt: Path | None) -> None:
    """Make the folder with the names under which TensorFlow opens the libraries of CUDA."""
    cudnn = result / TENSORFLOW / TENSORFLOW_CUDNN
    cudnn.parent.mkdir()
    if prebuilt is None:
        compile_tensorflow_library(cudnn, library=result / LIBRARY, sources=NATIVE / TENSORFLOW, work=work)
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


DAY = 24 * 60 * 60.0
"""Seconds; a build that was used since is never removed."""
UNUSED_FOR = 30 * DAY
MOST_KEPT = 4
_KEY = re.compile(r"[0-9a-f]{24}")


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
    say = progress or silent
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


def make_prebuilt(library: Library, folder: Path, *, progress: Progress) -> tuple[Path, ...]:
    """Build what is to come with the package, as `find_prebuilt` and `ensure_library` look for it.

    Args:
        library: which one.
        folder: where it is made; it is not there yet.
        progress: called with a line of text.

    Returns:
        the files that belong into the folder `library.prebuilt`, below the machine's name.

    Raises:
        PeakmemError: there is no compiler, or it refuses the sources.
        OSError: the disk is full or can't be written.
    """
    folder.mkdir(parents=True)
    made, recorded = [folder / library.name], folder / SOURCE_HASH
    compile_library(made[0], work=folder, progress=progress, library=library)
    if library is VGPU:
        made.append(folder / TENSORFLOW_CUDNN)
        compile_tensorflow_library(made[1], library=made[0], sources=NATIVE / TENSORFLOW, work=folder)
    recorded.write_text(source_hash(library.sources) + "\n")
    return *made, recorded


def find_prebuilt(folder: Path | None = None, *, library: Library = VGPU) -> Path | None:
    """The library that came with the package, if it was built from these very sources."""
    path = (folder or library.prebuilt) / platform.machine() / library.name
    try:
        recorded = (path.parent / SOURCE_HASH).read_text().strip()
    except OSError:
        return None
    return path if path.exists() and recorded == source_hash(library.sources) else None
