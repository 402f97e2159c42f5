"""Files of `torch.save`, read without running anything in them: in the place of every class stands an inert one.

Both forms are read: a zip archive with `data.pkl` (since PyTorch 1.6), and a row of pickles before it
(torch/serialization.py of PyTorch 2.14.1, `_load` and `_legacy_load`).
"""

from __future__ import annotations

import io
import pickle
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from peakmem.errors import PeakmemError
from peakmem.workload.checkpoints.model import WIDTHS, StoredTensor

_LARGEST_PICKLE = 2**31
_LEGACY_MAGIC = 0x1950A86A20F9469CFC6C
_STORAGES = {
    "DoubleStorage": "float64", "FloatStorage": "float32", "HalfStorage": "float16", "BFloat16Storage": "bfloat16",
    "LongStorage": "int64", "IntStorage": "int32", "ShortStorage": "int16", "CharStorage": "int8",
    "ByteStorage": "uint8", "BoolStorage": "bool", "UntypedStorage": "uint8", "ComplexFloatStorage": "complex64",
    "ComplexDoubleStorage": "complex128",
}  # fmt: skip
_PASSED_OVER = {"_parameters", "_buffers", "_modules", "__state__"}


@dataclass(frozen=True, slots=True)
class _Storage:
    key: str
    dtype: str
    size: int


@dataclass(frozen=True, slots=True)
class _Dtype:
    name: str


@dataclass(slots=True)
class _Tensor:
    dtype: str
    shape: tuple[int, ...]
    storage: _Storage | None
    parameter: bool | None = None


class _Dict(dict[Any, Any]):
    """Stands for dict, OrderedDict and the like, which may carry attributes."""


class _Inert:
    """Stands for an object of any other class: it keeps what it is given and does nothing."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.parts: list[Any] = [*args, *kwargs.values()]

    def __new__(cls, *args: Any, **kwargs: Any) -> _Inert:
        made = object.__new__(cls)
        made.parts = [*args, *kwargs.values()]
        return made

    def __setstate__(self, state: Any) -> None:
        self.parts.append(state)

    def __setitem__(self, key: Any, value: Any) -> None:
        self.parts.append({key: value} if isinstance(key, str | int) else value)

    def append(self, value: Any) -> None:
        self.parts.append(value)

    def extend(self, values: Any) -> None:
        self.parts.extend(values)

    def add(self, value: Any) -> None:
        self.parts.append(value)

    def __hash__(self) -> int:
        return id(self)

    def __eq__(self, other: object) -> bool:
        return self is other


def _tensor(storage: Any, offset: Any = 0, size: Any = (), *rest: Any) -> Any:
    if not isinstance(storage, _Storage):
        return _Inert(storage, size, *rest)
    dtype = next((part.name for part in rest if isinstance(part, _Dtype)), storage.dtype)
    return _Tensor(dtype, tuple(int(length) for length in size), storage)


def _without_storage(*args: Any) -> Any:
    sizes = next((part for part in args if isinstance(part, tuple) and all(isinstance(n, int) for n in part)), ())
    dtype = next((part.name for part in args if isinstance(part, _Dtype)), "float32")
    return _Tensor(dtype, sizes, None)


def _parameter(data: Any = None, *rest: Any) -> Any:
    if isinstance(data, _Tensor):
        return _Tensor(data.dtype, data.shape, data.storage, True)
    return data


def _dict(*args: Any) -> Any:
    pairs = args[0] if args and isinstance(args[0], list | tuple) else ()
    return _Dict({pair[0]: pair[1] for pair in pairs if isinstance(pair, list | tuple) and len(pair) == 2})


def _tuple(value: Any = (), *rest: Any) -> Any:
    return tuple(value) if isinstance(value, list | tuple) else ()


def _list(value: Any = (), *rest: Any) -> Any:
    return list(value) if isinstance(value, list | tuple) else []


_KNOWN: dict[tuple[str, str], Any] = {
    ("torch._utils", "_rebuild_tensor"): _tensor,
    ("torch._utils", "_rebuild_tensor_v2"): _tensor,
    ("torch._utils", "_rebuild_tensor_v3"): _tensor,
    ("torch._utils", "_rebuild_qtensor"): _tensor,
    ("torch._utils", "_rebuild_meta_tensor_no_storage"): _without_storage,
    ("torch._utils", "_rebuild_parameter"): _parameter,
    ("torch._utils", "_rebuild_parameter_with_state"): _parameter,
    ("torch._tensor", "_rebuild_from_type_v2"): lambda function=None, kind=None, args=(), *rest: (
        function(*args) if function in (_tensor, _parameter, _without_storage) else _Inert(args, *rest)
    ),
    ("torch.nn.parameter", "Parameter"): _parameter,
    ("torch", "Size"): _tuple,
    ("collections", "OrderedDict"): _Dict,
    ("collections", "defaultdict"): _dict,
    ("collections", "Counter"): _dict,
    ("builtins", "dict"): _Dict,
    ("builtins", "list"): _list,
    ("builtins", "tuple"): _tuple,
    ("builtins", "set"): _list,
    ("builtins", "frozenset"): _list,
    ("__builtin__", "set"): _list,
    ("torch.serialization", "_get_layout"): _Inert,
}


class _Unpickler(pickle.Unpickler):
    """Gives a stand-in for whatever a file names; `seen` collects the names of those that are not plain data."""

    def __init__(self, file: IO[bytes], seen: set[str]) -> None:
        super().__init__(file, encoding="latin1")
        self._seen = seen

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _KNOWN:
            return _KNOWN[module, name]
        if module in ("torch", "torch.storage", "torch.cuda") and name in _STORAGES:
            return _Dtype(_STORAGES[name])
        if module == "torch" and name in WIDTHS:
            return _Dtype(name)
        self._seen.add(f"{module}.{name}")
        return type(name.rpartition(".")[2] or "Inert", (_Inert,), {})

    def persistent_load(self, pid: Any) -> Any:
        if not (isinstance(pid, tuple) and len(pid) >= 5 and pid[0] == "storage" and isinstance(pid[1], _Dtype)):
            raise pickle.UnpicklingError("an unknown kind of reference")
        _, dtype, key, _, count = pid[:5]
        return _Storage(str(key), dtype.name, int(count) * WIDTHS.get(dtype.name, 1))


def read_torch_file(path: Path) -> tuple[list[StoredTensor], set[str]]:
    """The tensors of a file of `torch.save`, and the names of classes in it that are not plain data.

    Raises:
        PeakmemError: it is damaged, or no such file.
    """
    seen: set[str] = set()
    try:
        content = _from_zip(path, seen) if zipfile.is_zipfile(path) else _from_legacy(path, seen)
        return list(_tensors(content)), seen
    except PeakmemError:
        raise
    except Exception as error:  # a damaged pickle fails in many ways, none of which is ours
        raise PeakmemError(f"{path} can't be read as a file of torch.save: {error or type(error).__name__}") from error


def _from_zip(path: Path, seen: set[str]) -> Any:
    with zipfile.ZipFile(path) as archive:
        names = [name for name in archive.namelist() if name.endswith("data.pkl") and name.count("/") == 1]
        if not names:
            raise PeakmemError(f"{path} is a zip archive, but not one of torch.save: it has no data.pkl")
        if archive.getinfo(names[0]).file_size > _LARGEST_PICKLE:
            raise PeakmemError(f"{path}: its data.pkl is larger than 2 GiB")
        data = archive.read(names[0])
    return _Unpickler(io.BytesIO(data), seen).load()


def _from_legacy(path: Path, seen: set[str]) -> Any:
    with path.open("rb") as file:
        try:
            magic = _Unpickler(file, seen).load()
        except Exception as error:
            raise PeakmemError(f"{path} is no file of torch.save") from error
        if magic != _LEGACY_MAGIC:
            raise PeakmemError(f"{path} is a pickle, but no file of torch.save")
        for _ in ("protocol version", "system"):
            _Unpickler(file, seen).load()
        return _Unpickler(file, seen).load()


def _tensors(content: Any) -> Iterator[StoredTensor]:
    visited: set[int] = set()
    waiting: list[tuple[tuple[str, ...], Any, bool | None]] = [((), content, None)]
    while waiting:
        path, value, parameter = waiting.pop()
        if isinstance(value, _Tensor):
            yield _stored(".".join(path) or "tensor", value, parameter)
            continue
        if id(value) in visited:
            continue
        visited.add(id(value))
        inner: list[tuple[Any, Any]] = []
        if isinstance(value, dict):
            inner = [*value.items()]
        elif isinstance(value, list | tuple):
            inner = list(enumerate(value))
        elif isinstance(value, _Inert):
            inner = [("__state__", part) for part in value.parts]
        for key, part in reversed(inner):
            kind = {"_parameters": True, "_buffers": False}.get(key, parameter) if isinstance(key, str) else parameter
            waiting.append(((*path, *(() if key in _PASSED_OVER else (str(key),))), part, kind))


def _stored(name: str, tensor: _Tensor, parameter: bool | None) -> StoredTensor:
    count = 1
    for length in tensor.shape:
        count *= length
    size = count * WIDTHS.get(tensor.dtype, 1)
    return StoredTensor(
        name=name,
        dtype=tensor.dtype,
        shape=tensor.shape,
        size=size,
        storage=tensor.storage.key if tensor.storage else None,
        parameter=tensor.parameter if tensor.parameter is not None else parameter,
    )
