"""Keeps what transformers finds in its own files from one run to the next.

Whenever it is imported, transformers 5 reads all files of its models, 3,345 in 5.24, to see what each gives: 0.3 of the
1.4 s of its import. That hangs on the files alone, so it is found out once and kept as long as no file changes.
"""

import contextlib
import functools
import hashlib
import marshal
import os
import sys
import zlib

_FUNCTION = "create_import_structure_from_path"


def keep(module, folder):
    """Keep what is found.

    Args:
        module: `transformers.utils.import_utils`, which looks through the files, right after its import.
        folder: where; it is made when there is something to keep.
    """
    look = getattr(module, _FUNCTION, None)
    if look is None:  # of transformers 4
        return
    models = os.path.join(os.path.dirname(os.path.dirname(module.__file__)), "models")

    @functools.wraps(look)
    def looked_at(path):
        if os.fspath(path) != models:
            return look(path)
        return _kept(models, (models, module.__file__), look, folder)

    setattr(module, _FUNCTION, looked_at)


def _kept(models, sources, look, folder):
    name = f"{hashlib.blake2b(os.fsencode(models), digest_size=8).hexdigest()}-{sys.implementation.cache_tag}"
    path = os.path.join(folder, name)
    state = _state(sources)
    found = _read(path)
    if found is None or found[0] != state:
        found = state, look(models)
        _write(path, found)
    return found[1]


def _state(sources):
    """A digest of the names, sizes and times of all files that the result hangs on."""
    digest = hashlib.blake2b(digest_size=16)
    waiting = list(sources)
    while waiting:
        path = waiting.pop()
        if os.path.isdir(path):
            with os.scandir(path) as entries:
                for entry in sorted(entries, key=lambda each: each.name):
                    if entry.name == "__pycache__":
                        continue
                    if entry.is_dir():
                        waiting.append(entry.path)
                    else:
                        digest.update(_line(entry.path, entry.stat()))
        else:
            digest.update(_line(path, os.stat(path)))
    return digest.digest()


def _line(path, stat):
    return b"%s\0%d %d\n" % (os.fsencode(path), stat.st_size, stat.st_mtime_ns)


def _read(path):
    try:
        with open(path, "rb") as file:
            content = file.read()
        if zlib.crc32(content[4:]) != int.from_bytes(content[:4], "little"):
            return None
        return marshal.loads(content[4:])
    except (OSError, ValueError, EOFError, TypeError):
        return None


def _write(path, found):
    beside = f"{path}.{os.getpid()}"
    try:
        content = marshal.dumps(found)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(beside, "wb") as file:
            file.write(zlib.crc32(content).to_bytes(4, "little") + content)
        os.replace(beside, path)
    except (OSError, ValueError):  # a full disk, or things that can't be kept: it is found out again
        with contextlib.suppress(OSError):
            os.unlink(beside)
