"""Notes on blocks: after so many allocator events, the memory at this address is this parameter, that gradient, ...

A note is three numbers in columns, so that long runs stay small; what it says is a key, kept once. Notes never hold a
tensor: an address, and the number of events at which it was right, are enough to find the block later.
"""

from array import array

PARAMETER = "parameter"
BUFFER = "buffer"
GRADIENT = "gradient"
OPTIMIZER_STATE = "optimizer_state"
ACTIVATION = "activation"
AUTOCAST_COPY = "autocast_copy"
INPUT = "input"
OUTPUT = "output"
LOADED = "loaded"


class Notes:
    """All notes of a process.

    Attributes:
        keys: what notes say: (role, name, owner, shape, dtype); owner is the name of the outermost module or optimizer.
        events: for each note the number of events that had happened.
        addresses: for each note an address in the block.
        says: for each note the number of its key.
    """

    def __init__(self, torch, event_count):
        self.keys = []
        self.events = array("Q")
        self.addresses = array("Q")
        self.says = array("I")
        self.open = True
        self._numbers = {}
        self._event_count = event_count
        self._tensor = torch.Tensor
        self._plain = (torch.Tensor, torch.nn.Parameter)

    def note(self, tensor, role, name, owner=""):
        """Say what a tensor's memory is; tensors that are not on a GPU, or have no memory, are passed over."""
        if not self.open:
            return
        for part in self._parts(tensor):
            address = _address(part)
            if not address:
                continue
            key = (role, name, owner, tuple(part.shape), str(part.dtype).partition(".")[2])
            number = self._numbers.get(key)
            if number is None:
                number = self._numbers[key] = len(self.keys)
                self.keys.append(key)
            self.events.append(self._event_count())
            self.addresses.append(address)
            self.says.append(number)

    def tensors_in(self, value, depth=4):
        """(path, tensor) for all tensors in nested containers, as far down as anybody nests them."""
        yield from tensors_in(value, self._tensor, depth)

    def table(self):
        """The notes as plain values for the recording."""
        return {
            "keys": self.keys,
            "events": self.events.tobytes(),
            "addresses": self.addresses.tobytes(),
            "says": self.says.tobytes(),
        }

    def _parts(self, tensor):
        """The tensors that hold the memory of a tensor: itself, or what a wrapper (DTensor, ...) is around."""
        if type(tensor) in self._plain or not hasattr(type(tensor), "__tensor_flatten__"):
            return (tensor,)
        try:
            names, _ = tensor.__tensor_flatten__()
            return [part for name in names for part in self._parts(getattr(tensor, name))]
        except Exception:
            return ()


def _address(tensor):
    try:
        return tensor.untyped_storage().data_ptr() if tensor.is_cuda else 0
    except Exception:  # sparse, functional and other tensors without a storage of their own
        return 0


def tensors_in(value, kind, depth=4):
    """(path, tensor) for all tensors of a kind in nested containers."""
    return _walk(value, "", depth, kind)


def _walk(value, path, depth, tensor_class):
    if isinstance(value, tensor_class):
        yield path, value
    elif depth:
        if isinstance(value, dict) or (hasattr(value, "keys") and hasattr(value, "__getitem__")):
            try:
                items = [(key, value[key]) for key in list(value.keys())]
            except Exception:
                return
        elif isinstance(value, (list, tuple)):
            items = list(enumerate(value))
        elif hasattr(value, "__dataclass_fields__"):
            items = [(name, getattr(value, name, None)) for name in value.__dataclass_fields__]
        else:
            return
        for key, item in items:
            yield from _walk(item, f"{path}.{key}" if path else str(key), depth - 1, tensor_class)
