"""From a path to a `Checkpoint`."""

from __future__ import annotations

import json
from pathlib import Path

from peakmem.errors import PeakmemError
from peakmem.workload.checkpoints.gguf import read_gguf
from peakmem.workload.checkpoints.model import Checkpoint, StoredTensor
from peakmem.workload.checkpoints.onnx import read_onnx
from peakmem.workload.checkpoints.safetensors import read_safetensors
from peakmem.workload.checkpoints.torch_file import read_torch_file

TORCH = (".pt", ".pth", ".bin", ".ckpt")


def read_checkpoint(path: Path) -> Checkpoint:
    """Read the names, shapes and types in a checkpoint.

    Args:
        path: a file, the index of its shards, or a folder with one of these.

    Raises:
        PeakmemError: there is none, or it can't be read.
    """
    files = _files(path)
    tensors: list[StoredTensor] = []
    classes: set[str] = set()
    for file in files:
        try:
            found, named = _read(file)
        except OSError as error:
            raise PeakmemError(f"{file} can't be read: {error.strerror or error}") from error
        tensors += found if len(files) == 1 else [_in_file(tensor, file) for tensor in found]
        classes |= named
    if not tensors:
        raise PeakmemError(f"{path} holds no tensors")
    return Checkpoint(
        path=path,
        format=_format(files),
        files=files,
        file_size=sum(file.stat().st_size for file in files),
        tensors=tuple(tensors),
        notes=_notes(classes),
    )


def _in_file(tensor: StoredTensor, file: Path) -> StoredTensor:
    if tensor.storage is None:
        return tensor
    from dataclasses import replace

    return replace(tensor, storage=f"{file.name} {tensor.storage}")


def _read(file: Path) -> tuple[list[StoredTensor], set[str]]:
    if file.suffix == ".safetensors":
        return read_safetensors(file), set()
    if file.suffix == ".gguf":
        return read_gguf(file), set()
    if file.suffix == ".onnx":
        return read_onnx(file), set()
    return read_torch_file(file)


def _files(path: Path) -> tuple[Path, ...]:
    if path.is_dir():
        for pattern in ("*.safetensors.index.json", "*.index.json"):
            for index in sorted(path.glob(pattern)):
                return _shards(index)
        for suffixes in ((".safetensors",), TORCH, (".gguf",), (".onnx",)):
            found = sorted(entry for entry in path.iterdir() if entry.suffix in suffixes)
            if found:
                return tuple(found)
        raise PeakmemError(f"the folder {path} holds no checkpoint")
    if not path.is_file():
        raise PeakmemError(f"there is no file {path}")
    return _shards(path) if path.name.endswith(".index.json") else (path,)


def _shards(index: Path) -> tuple[Path, ...]:
    try:
        names = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise PeakmemError(f"{index} is no index of a checkpoint's shards: {error}") from error
    shards = tuple(index.parent / Path(name).name for name in names)
    missing = [shard.name for shard in shards if not shard.is_file()]
    if missing:
        raise PeakmemError(
            f"{len(missing)} of {len(shards)} shards are missing beside {index}, such as {missing[0]}",
            hint="download the whole folder",
        )
    return shards


def _format(files: tuple[Path, ...]) -> str:
    kind = {".safetensors": "safetensors", ".gguf": "GGUF", ".onnx": "ONNX"}.get(files[0].suffix, "torch.save")
    return kind if len(files) == 1 else f"{kind}, {len(files)} files"


def _notes(classes: set[str]) -> tuple[str, ...]:
    own = sorted(name for name in classes if not name.startswith(("torch.", "numpy.", "_codecs.", "copyreg.")))
    if not own:
        return ()
    more = f" and {len(own) - 3} more" if len(own) > 3 else ""
    return (
        f"the file names classes ({', '.join(own[:3])}{more}); they were not loaded, and torch.load would run them",
    )
