"""Ships a live model to another process: its structure and the shapes of its tensors, but none of its weights.

`ship` runs in the process that asks, `load` in the worker. Tensors that share memory, tied weights among them, share it
there as well. Values travel only where a model needs them to work: small tensors of integers and booleans on the host,
and single numbers (the steps of an optimizer).
"""

from __future__ import annotations

import importlib.util
import io
import pickle
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from peakmem.errors import PeakmemError

if TYPE_CHECKING:
    from collections.abc import Callable

MOST_VALUES = 65_536
"""Elements of a tensor of integers or booleans whose values travel with it."""


def ship(path: Path, **values: Any) -> None:
    """Write some values (modules, functions, nested tensors) to a file, tensors by their shape alone.

    Raises:
        PeakmemError: a value can't be shipped.
    """
    import torch

    kind: Any = pickle.Pickler
    by_value = importlib.util.find_spec("cloudpickle") is not None
    if by_value:
        import cloudpickle

        kind = cloudpickle.Pickler

    class Shipper(kind):  # type: ignore[misc]
        def persistent_id(self, value: Any) -> Any:
            if isinstance(value, torch.Tensor):
                alive.append(value.untyped_storage() if value.layout is torch.strided else value)
                return _describe(value)
            if isinstance(value, torch.Generator):
                return ("generator",)
            return ("array", value.shape, value.dtype.str) if _is_large_array(value) else None

    if not by_value:

        def reducer_override(self: Any, value: Any) -> Any:
            if isinstance(value, type) or hasattr(value, "__code__"):
                _refuse_main(value)
            return NotImplemented

        Shipper.reducer_override = reducer_override
    alive: list[Any] = []  # storages, so that no two of them get the same identity
    buffer = io.BytesIO()
    try:
        Shipper(buffer).dump(values)
    except PeakmemError:
        raise
    except Exception as error:  # whatever an object of the user raises when it is pickled
        raise PeakmemError(
            f"the model can't be sent to the process that trains it: {type(error).__name__}: {error}",
            hint="give a function that builds it instead of the model"
            + ("" if by_value else "; pip install cloudpickle ships more kinds of objects"),
        ) from error
    path.write_bytes(buffer.getvalue())


def load(path: str, *, keep_devices: bool = False) -> dict[str, Any]:
    """Read what `ship` wrote; tensors and large arrays are untouched memory. Only for files of one's own `ship`.

    Args:
        path: the file.
        keep_devices: whether tensors are on the device on which they were; else all are on the host.
    """
    import torch

    tensors: dict[int, Any] = {}
    storages: dict[int, Any] = {}

    class Loader(pickle.Unpickler):
        def persistent_load(self, pid: Any) -> Any:
            if pid[0] == "generator":
                return torch.Generator()
            if pid[0] == "array":
                import numpy

                return numpy.zeros(pid[1], pid[2])
            _, identity, device, storage, size, dtype, shape, stride, offset, parameter, grad, values = pid
            if identity not in tensors:
                if storage not in storages:
                    storages[storage] = torch.UntypedStorage(size, device=device if keep_devices else "cpu")
                memory = storages[storage]
                made = torch.empty(0, dtype=getattr(torch, dtype), device=memory.device)
                made.set_(memory, offset, shape, stride)
                if values is not None:
                    with torch.no_grad():
                        made.copy_(torch.tensor(values, dtype=made.dtype).reshape(shape))
                tensors[identity] = torch.nn.Parameter(made, grad) if parameter else made.requires_grad_(grad)
            return tensors[identity]

    with Path(path).open("rb") as file:
        loaded: dict[str, Any] = Loader(file).load()
    return loaded


def build(loaded: dict[str, Any]) -> tuple[Any, Any, Any]:
    """The module, its inputs and its loss, of what was shipped as `model`, `inputs` and `loss`.

    A function is called; inputs and loss that were given take the place of those that it returns.
    """
    import torch

    made = loaded["model"]
    if not isinstance(made, torch.nn.Module):
        made = made()
    model, inputs, loss = (*made, None, None)[:3] if isinstance(made, tuple | list) else (made, None, None)
    if not isinstance(model, torch.nn.Module):
        raise SystemExit(f"the function returned {type(model).__name__} where a torch.nn.Module was expected")
    inputs = inputs if loaded["inputs"] is None else loaded["inputs"]
    loss = loss if loaded["loss"] is None else loaded["loss"]
    return model, inputs, loss.cuda() if isinstance(loss, torch.nn.Module) else loss


def _is_large_array(value: Any) -> bool:
    numpy = sys.modules.get("numpy")
    if numpy is None or type(value) is not numpy.ndarray:
        return False
    return bool(value.size > MOST_VALUES and value.dtype.isbuiltin and not value.dtype.hasobject)


def _describe(tensor: Any) -> tuple[Any, ...]:
    import torch

    kind = type(tensor)
    plain = kind in (torch.Tensor, torch.nn.Parameter) or kind.__module__ == "torch.nn.parameter"
    if not plain or tensor.layout is not torch.strided or tensor.is_quantized:
        raise PeakmemError(
            f"the model has a tensor of the kind {kind.__module__}.{kind.__qualname__} ({tensor.layout}), "
            "which can't be sent to another process",
            hint="give a function that builds the model",
        )
    number = tensor.is_floating_point() or tensor.is_complex()
    keeps = tensor.device.type == "cpu" and tensor.numel() <= (1 if number else MOST_VALUES)
    storage = tensor.untyped_storage()
    return (
        "tensor",
        id(tensor),
        str(tensor.device),
        storage._cdata,
        storage.nbytes(),
        str(tensor.dtype).removeprefix("torch."),
        tuple(tensor.shape),
        tuple(tensor.stride()),
        tensor.storage_offset(),
        isinstance(tensor, torch.nn.Parameter),
        bool(tensor.requires_grad and tensor.is_leaf),
        tensor.flatten().tolist() if keeps else None,
    )


def _refuse_main(value: type | Callable[..., Any]) -> None:
    name = getattr(value, "__qualname__", str(value))
    if getattr(value, "__module__", None) == "__main__" or "<lambda>" in name or "<locals>" in name:
        raise PeakmemError(
            f"{name} is defined in a notebook, in the main script or in a function: no other process finds it there",
            hint="pip install cloudpickle, or move it into a module of its own",
        )
