"""How much memory hangs on a Python object, and of what kind: objects with reference counts, or plain buffers.

After a fork, reading an object writes its reference count, which copies its page into the reading process; the buffers
of arrays and tensors are only read, and stay shared (pytorch/pytorch issue 13246). So the two are told apart.
"""

import gc
import random
import sys
import time
import types

MOST_ITEMS = 2000
"""Of longer sequences only so many items, taken at random, are looked at."""
PAGE = 4096
_ABOUT = 112
"""Bytes of an object whose size nobody tells: a header and a few fields."""
_SKIPPED = (
    type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType, types.CodeType, types.FrameType,
    types.GetSetDescriptorType, types.MemberDescriptorType, types.WrapperDescriptorType, bool, type(None),
)  # fmt: skip


class Weighed:
    """What hangs on an object, bytes.

    Attributes:
        objects: objects with reference counts, and small things that lie on the same pages.
        buffers: what is only read: data of arrays, tensors and Arrow tables, long strings and bytes, long tables of
            containers.
        mapped: data of arrays that is a file's, mapped.
        partial: time ran out; the figures are too low.
    """

    def __init__(self):
        self.objects = self.buffers = self.mapped = 0.0
        self.partial = False

    def row(self):
        """The figures as whole numbers."""
        return {
            "objects": int(self.objects),
            "buffers": int(self.buffers),
            "mapped": int(self.mapped),
            "partial": self.partial,
        }


def weigh(*roots, seconds=0.5):
    """Weigh all that can be reached from some objects, each thing once.

    Args:
        roots: where to begin.
        seconds: the time allowed.
    """
    found = Weighed()
    chance = random.Random(0)  # not the script's own generator
    seen = set()
    buffers: set = set()
    waiting = [(root, 1.0) for root in roots]
    deadline = time.monotonic() + seconds
    looked_at = 0
    while waiting:
        thing, weight = waiting.pop()
        if id(thing) in seen or issubclass(type(thing), _SKIPPED):
            continue
        seen.add(id(thing))
        looked_at += 1
        if looked_at % 500 == 0 and time.monotonic() > deadline:
            found.partial = True
            break
        waiting += [(part, weight * more) for part, more in _look(thing, weight, found, buffers, chance)]
    return found


def _look(thing, weight, found, buffers, chance):
    """Count one object; gives what hangs on it, each with a factor where it stands for others."""
    kind = type(thing)
    if kind is int and -6 < thing < 257:
        return ()
    if kind in (str, bytes, bytearray, int, float, complex):
        _count(_size(thing), weight, found)
        return ()
    home = getattr(kind, "__module__", "") or ""
    if home.startswith("pyarrow"):
        found.objects += weight * _ABOUT
        found.buffers += weight * _attribute(thing, "nbytes", 0)
        return ()
    if _is_array(kind):
        return _array(thing, weight, found, buffers, chance)
    if _is_tensor(thing):
        _tensor(thing, weight, found, buffers)
        return ()
    _count(_size(thing), weight, found)
    if issubclass(kind, dict):
        keys = _sample(list(thing), chance) if len(thing) > MOST_ITEMS else [(key, 1.0) for key in thing]
        values = [(thing[key], 1.0) for key, _ in keys] if kind is dict else []
        if kind is dict and len(thing) > MOST_ITEMS:
            return keys + _scaled(values, len(thing))
        return keys + values if kind is dict else [(part, 1.0) for part in gc.get_referents(thing)]
    if issubclass(kind, (list, tuple, set, frozenset)) and len(thing) > MOST_ITEMS:
        return _sample(thing if issubclass(kind, (list, tuple)) else list(thing), chance)
    return [(part, 1.0) for part in gc.get_referents(thing)]


def _count(size, weight, found):
    """Of something longer than a page the first is written, where the reference count stands."""
    found.objects += weight * min(size, PAGE)
    found.buffers += weight * max(size - PAGE, 0)


def _sample(items, chance):
    """Some items of a long sequence, each with the number of different ones that it stands for."""
    count = len(items)
    return _scaled([(items[chance.randrange(count)], 1.0) for _ in range(MOST_ITEMS)], count)


def _scaled(chosen, count):
    """Items chosen at random among `count`, weighed so that they stand for all different ones.

    How many there are is estimated from how often the same was met (Chao's estimator of 1984).
    """
    times: dict = {}
    for item, _ in chosen:
        times[id(item)] = times.get(id(item), 0) + 1
    once = sum(1 for n in times.values() if n == 1)
    twice = sum(1 for n in times.values() if n == 2)
    # Even among items that are all different, some are chosen twice: about k^2 / 2n of k.
    expected_twice = len(chosen) ** 2 / (2 * count)
    if twice <= 2 * expected_twice + 3 and len(times) > 0.5 * len(chosen):
        different = count
    else:
        different = min(count, len(times) + (once * once / (2 * twice) if twice else 0))
    unique = {id(item): item for item, _ in chosen}
    return [(item, different / len(unique)) for item in unique.values()]


def _size(thing):
    kind = type(thing)
    try:
        # Some classes (pandas' DataFrame) count in all that hangs on them, which is weighed for itself here.
        told = isinstance(kind.__sizeof__, types.FunctionType)
        size = object.__sizeof__(thing) if told else sys.getsizeof(thing)
    except Exception:  # a class of the script's may raise anything
        return 0
    return (size + 15) // 16 * 16


def _attribute(thing, name, otherwise):
    try:
        value = getattr(thing, name)
    except Exception:
        return otherwise
    return value if isinstance(value, type(otherwise)) else otherwise


def _is_array(kind):
    numpy = sys.modules.get("numpy")
    return numpy is not None and issubclass(kind, numpy.ndarray)


def _is_tensor(thing):
    torch = sys.modules.get("torch")
    return torch is not None and issubclass(type(thing), torch.Tensor)


def _array(array, weight, found, buffers, chance):
    owner, mapped = array, False
    while owner is not None:
        mapped = mapped or type(owner).__name__ in ("mmap", "memmap")
        if not _is_array(type(owner)) or owner.base is None:
            break
        owner = owner.base
    mapped = mapped or type(owner).__name__ == "mmap"
    found.objects += weight * _ABOUT
    whole = owner if _is_array(type(owner)) else array
    address = whole.__array_interface__["data"][0]
    if address in buffers:
        return ()
    buffers.add(address)
    if array.dtype.hasobject:
        _count(whole.nbytes, weight, found)
        flat = whole.reshape(-1)
        count = flat.size
        if count <= MOST_ITEMS:
            return [(item, 1.0) for item in flat.tolist()]
        chosen = [(flat[chance.randrange(count)], 1.0) for _ in range(MOST_ITEMS)]
        return _scaled(chosen, count)
    if mapped:
        found.mapped += weight * whole.nbytes
    elif whole.nbytes < PAGE:  # it lies between objects, and is copied with their pages
        found.objects += weight * whole.nbytes
    else:
        found.buffers += weight * whole.nbytes
    return ()


def _tensor(tensor, weight, found, buffers):
    found.objects += weight * 512  # the Python object, the tensor and its storage, about
    try:
        if tensor.device.type != "cpu":
            return
        storage = tensor.untyped_storage()
        address, size = storage.data_ptr(), storage.nbytes()
    except Exception:  # a tensor without storage
        return
    if address not in buffers:
        buffers.add(address)
        if size < PAGE:
            found.objects += weight * size
        else:
            found.buffers += weight * size
