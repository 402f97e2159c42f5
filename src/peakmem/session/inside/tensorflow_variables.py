"""Where TensorFlow's variables lie on the device, and what each of them is for.

The address of a variable's buffer comes from DLPack: reading the variable gives a tensor that shares its buffer, and
the capsule made of it tells the address. Both are let go at once, between steps: while a buffer is shared, TensorFlow
would copy it before it writes to the variable.
"""

import ctypes
import gc
import sys
import weakref

from .keras import path_of, states_of

_CUDA = (2, 13)
"""Device types of DLPack: CUDA's memory, and its managed memory."""
_ACCUMULATED = ("gradient_accumulator", "accumulated_gradient")
LOOK_AGAIN = (1, 2, 3, 5, 10, 20)
"""After these steps new variables are looked for among all objects; later ones are those that are known."""
MOST_STEPS = 200
"""After so many steps the addresses are not followed any more, but for a last time at the end."""

MOST_ROWS = 1_000_000


class _Device(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_int32), ("number", ctypes.c_int32)]


class _Tensor(ctypes.Structure):
    """`DLTensor` (dmlc/dlpack, include/dlpack/dlpack.h), the first member of a managed tensor."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", _Device),
        ("dimensions", ctypes.c_int32),
        ("dtype", ctypes.c_uint8 * 4),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("offset", ctypes.c_uint64),
    ]


class Variables:
    """Notes after how many allocator events the memory at an address was which variable.

    Attributes:
        failure: what went wrong first; empty if nothing did.
    """

    def __init__(self, tensorflow, native):
        self.failure = ""
        self._tf = tensorflow
        self._native = native
        self._known: list = []  # (weak reference to the tf.Variable, number of the key)
        self._seen: dict = {}  # by identity, since variables can't be hashed: a weak reference to each
        self._keys: dict = {}
        self._rows: list = []  # (event, address, number of the key)
        self._addresses: dict = {}
        pointer = ctypes.pythonapi.PyCapsule_GetPointer
        pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
        self._pointer = pointer

    def look(self, step, optimizers):
        """Note where all variables lie now, after a step (from 1; 0: at the end).

        Args:
            step: how many steps there have been.
            optimizers: those of Keras and others that were applied.
        """
        if step > MOST_STEPS:
            return
        try:
            if step in LOOK_AGAIN or not step:
                self._find(optimizers)
            self._note()
        except Exception as error:  # a TensorFlow that is not as we know it: the figures are right all the same
            self.failure = self.failure or f"{type(error).__name__}: {error}".partition("\n")[0][:100]

    def gradients(self, sources, found):
        """Note where gradients lie that were taken outside of functions."""
        if len(self._rows) > MOST_ROWS:
            return
        try:
            flatten = self._tf.nest.flatten
            for source, tensor in zip(flatten(sources), flatten(found), strict=False):
                tensor = getattr(tensor, "values", tensor)  # of those with few rows, what they are
                if tensor is None or "GPU" not in str(tensor.device):
                    continue
                place = self._place(tensor)
                if place is not None:
                    key = (
                        "gradient",
                        path_of(source).partition(":")[0],
                        tuple(map(int, tensor.shape)),
                        tensor.dtype.name,
                    )
                    number = self._keys.setdefault(key, len(self._keys))
                    self._rows.append((self._native.event_count(), place[0], number))
        except Exception as error:
            self.failure = self.failure or f"{type(error).__name__}: {error}".partition("\n")[0][:100]

    def table(self):
        """The notes as plain lists: keys (role, name, shape, dtype), and rows (event, address, key)."""
        return {"keys": list(self._keys), "rows": self._rows}

    def sums(self):
        """Bytes of the variables that lie on the device now, by role."""
        sums: dict = {}
        keys = list(self._keys)
        for number, size in self._addresses.values():
            role = keys[number][0]
            sums[role] = sums.get(role, 0) + size
        return sums

    # ------------------------------------------------------------------ finding

    def _find(self, optimizers):
        told = self._told_by_optimizers(optimizers)
        wrapped, plain = _all_variables()
        for outer in wrapped:
            inner = getattr(outer, "_value", None)
            if inner is not None and hasattr(inner, "handle"):
                kind = "parameter" if getattr(outer, "trainable", False) else "buffer"
                told.setdefault(id(inner), (kind, str(getattr(outer, "path", "") or getattr(outer, "name", ""))))
        for variable in plain:
            seen = self._seen.get(id(variable))
            if seen is not None and seen() is variable:
                continue
            self._seen[id(variable)] = weakref.ref(variable)
            kind = "parameter" if getattr(variable, "trainable", False) else "buffer"
            name = str(getattr(variable, "name", "")).partition(":")[0]
            role, name = told.get(id(variable), (kind, name))
            shape = tuple(int(size) for size in variable.shape) if variable.shape.is_fully_defined() else ()
            key = (role, name, shape, str(variable.dtype.name))
            number = self._keys.setdefault(key, len(self._keys))
            self._known.append((weakref.ref(variable), number))

    def _told_by_optimizers(self, optimizers):
        """{id of the tf.Variable: (role, name)} of what optimizers keep and what they train."""
        told: dict = {}
        for optimizer in optimizers:
            trained = {id(getattr(one, "_value", one)) for one in getattr(optimizer, "_trainable_variables", ())}
            for what, of, variable in _states(optimizer):
                if id(variable) in trained:
                    continue
                name = f"{what} of {of}" if of else what
                role = "gradient" if what.endswith(_ACCUMULATED) else "optimizer_state"
                told[id(variable)] = (role, name)
        return told

    # ------------------------------------------------------------------ looking

    def _note(self):
        event = self._native.event_count()
        addresses = {}
        for reference, number in self._known:
            variable = reference()
            if variable is None or "GPU" not in str(variable.device):
                continue
            found = self._address(variable)
            if found is not None:
                self._rows.append((event, found[0], number))
                addresses[id(variable)] = (number, found[1])
        self._addresses = addresses

    def _address(self, variable):
        """(address, bytes) of a variable on the device; None if it has no value there."""
        try:
            tensor = self._tf.raw_ops.ReadVariableOp(resource=variable.handle, dtype=variable.dtype)
        except Exception:  # not initialised
            return None
        return self._place(tensor)

    def _place(self, tensor):
        """(address, bytes) of a tensor on the device; None if it is not there."""
        try:
            capsule = self._tf.experimental.dlpack.to_dlpack(tensor)
        except Exception:  # of a type that DLPack does not know
            return None
        told = _Tensor.from_address(self._pointer(capsule, b"dltensor"))
        if told.device.kind not in _CUDA or not told.data:
            return None
        elements = 1
        for size in tensor.shape:
            elements *= int(size)
        return told.data + told.offset, elements * int(tensor.dtype.size)


def _states(optimizer):
    """(what, name of the parameter or an empty text, tf.Variable) of what an optimizer keeps."""
    listed = optimizer.variables() if callable(optimizer.variables) else optimizer.variables
    if any(hasattr(variable, "_value") for variable in listed):  # Keras 3
        yield from states_of(optimizer)
        return
    for variable in listed:
        yield str(getattr(variable, "name", "")).partition(":")[0], "", variable


def _all_variables():
    """All variables of Keras 3 and of TensorFlow that exist."""
    resource = getattr(sys.modules.get("tensorflow.python.ops.resource_variable_ops"), "BaseResourceVariable", ())
    keras = getattr(sys.modules.get("keras.src.backend.common.variables"), "Variable", ())
    wrapped, plain = [], []
    for thing in gc.get_objects():
        # Not isinstance: it asks things for their __class__, which some answer with a warning.
        kind = type(thing)
        if resource and issubclass(kind, resource):
            plain.append(thing)
        elif keras and issubclass(kind, keras):
            wrapped.append(thing)
    return wrapped, plain
