"""Stands in for modules that libraries import and hardly a script uses, until somebody uses one.

transformers imports PyTorch's distributed tensors (with sympy behind them, half a second) and SciPy's solvers (a
quarter) whatever is trained, to ask whether something is a distributed tensor, and for one loss. A stand-in gives the
names that libraries import: classes that nothing is an instance of yet, and functions. Whoever calls one, asks for
anything else of it or imports a module below it gets the real ones, and so does PyTorch itself.
"""

import ast
import contextlib
import importlib
import importlib.abc
import importlib.machinery
import re
import sys
import tokenize
import types

from .importing import spec_of_imported

DISTRIBUTED = {
    "torch.distributed._composable.fsdp": ("fully_shard", "FSDPModule"),
    "torch.distributed.checkpoint": (),
    "torch.distributed.checkpoint.hf_storage": ("HuggingFaceStorageReader", "HuggingFaceStorageWriter"),
    "torch.distributed.fsdp": ("CPUOffloadPolicy", "FSDPModule", "FullyShardedDataParallel", "MixedPrecisionPolicy"),
    "torch.distributed.tensor": ("DTensor", "Partial", "Placement", "Replicate", "Shard", "distribute_tensor"),
    "torch.distributed.tensor._utils": ("compute_local_shape_and_global_offset",),
    "torch.distributed.tensor.placement_types": ("Partial", "Placement", "Replicate", "Shard", "_StridedShard"),
    "transformers.distributed.expert_parallel": ("apply_expert_parallelism",),
    "transformers.distributed.tensor_parallel": (
        "apply_tensor_parallelism",
        "gather_state_dict_for_save",
        "get_kv_heads_per_rank",
        "verify_tp_plan",
    ),
}
ATTENTION = {
    "torch.nn.attention.flex_attention": (
        "_DEFAULT_SPARSE_BLOCK_SIZE",
        "AuxRequest",
        "BlockMask",
        "create_block_mask",
        "flex_attention",
    )
}
SCIPY = {"scipy.optimize": ("linear_sum_assignment",)}
"""Module -> names that transformers 5.24, timm 1.0, peft 0.21 and accelerate import of it while they are imported.

As ever in Python, those in capital letters are constants, those that begin with one classes, the others functions.
"""


class LateModules:
    """Modules of one kind: all of them are real, or none is.

    Args:
        names: module -> its names that have stand-ins.
        ours: the package whose own code gets the real modules at once.
        loading: makes a context manager for the time that the real ones are imported in.
    """

    def __init__(self, names, ours, loading):
        self._names = names
        self._ours = ours
        self._around_load = loading
        self._modules = {}
        self._spaces = {}  # of those who were given stand-ins, by id
        self.loaded = False

    def install(self):
        """Stand in from now on, unless one of the modules is there already."""
        if any(name in sys.modules for name in self._names):
            self.loaded = True
        else:
            sys.meta_path.insert(0, _Finder(self))

    @property
    def left_out(self):
        """Names of the modules that somebody has imported and that are not there, sorted."""
        return [] if self.loaded else sorted(self._modules)

    def load(self):
        """Put the real modules in place of the stand-ins that were given."""
        if self.loaded:
            return
        self.loaded = True
        for name, module in self._modules.items():
            if sys.modules.get(name) is module:
                del sys.modules[name]
        with self._around_load():
            for name, module in self._modules.items():
                vars(module).update(vars(importlib.import_module(name)))
        for space in self._spaces.values():
            for name, value in list(space.items()):
                if isinstance(value, (_Class, _Function)):
                    space[name] = value.peakmem_real()
        self._spaces.clear()

    def stand_in_for(self, module, source):
        """Make a new, empty module a stand-in.

        Args:
            module: the module.
            source: the text of the real one: only names that are in it are given.
        """
        name = module.__name__
        given = {}
        for each in self._names[name]:
            with contextlib.suppress(LookupError):
                given[each] = self._thing(name, each, source)

        def get(attribute):
            if attribute.startswith("__") and attribute != "__all__":  # asked by whoever looks at modules
                raise AttributeError(f"module {name!r} has no attribute {attribute!r}")
            space = sys._getframe(1).f_globals
            asker = str(space.get("__name__"))
            if self.loaded or attribute not in given or (asker + ".").startswith(self._ours + "."):
                return self.real(name, attribute)
            self._spaces[id(space)] = space
            return given[attribute]

        vars(module)["__getattr__"] = get
        self._modules[name] = module

    def real(self, module, name):
        """An attribute of a real module.

        Raises:
            AttributeError: it has none of that name.
        """
        self.load()
        return getattr(importlib.import_module(module), name)

    def _thing(self, module, name, source):
        """What stands for a name.

        Raises:
            LookupError: the real module does not have it, as far as its text tells, or no plain value of it.
        """
        bare = name.lstrip("_")
        if bare.isupper():
            return _constant(name, source)
        if not re.search(rf"\b{name}\b", source):
            raise LookupError(name)
        if bare[0].isupper():
            return type.__new__(_Class, name, (), {"__module__": module, "peakmem_late": self})
        return _Function(self, module, name)

    def knows(self, name):
        """Whether a module has a stand-in that may be given."""
        return not self.loaded and name in self._names

    def is_below(self, name):
        """Whether a module belongs to a package whose stand-in was given."""
        return not self.loaded and name.rpartition(".")[0] in self._modules


def _constant(name, source):
    found = re.search(rf"^{name}(?:\s*:[^=\n]+)?\s*=\s*(.+)$", source, re.MULTILINE)
    if found is None:
        raise LookupError(name)
    try:
        return ast.literal_eval(found[1])
    except (ValueError, SyntaxError):
        raise LookupError(name) from None


class _Function:
    """A function that is looked up when it is called."""

    def __init__(self, late, module, name):
        self._late = late
        self.__module__ = module
        self.__name__ = self.__qualname__ = name

    def peakmem_real(self):
        return self._late.real(self.__module__, self.__name__)

    def __call__(self, *args, **kwargs):
        return self.peakmem_real()(*args, **kwargs)


class _Class(type):
    """A class that is not there yet: nothing is of it; who makes one, or a class below it, gets the real one."""

    def __new__(mcs, name, bases, space, **kwargs):
        real = tuple(base.peakmem_real() if isinstance(base, _Class) else base for base in bases)
        return types.new_class(name, real, kwargs, lambda new: new.update(space))

    def peakmem_real(cls):
        return cls.peakmem_late.real(cls.__module__, cls.__name__)

    def __call__(cls, *args, **kwargs):
        return cls.peakmem_real()(*args, **kwargs)

    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(f"type object {cls.__name__!r} has no attribute {name!r}")
        return getattr(cls.peakmem_real(), name)

    def __instancecheck__(cls, instance):
        return cls.peakmem_late.loaded and isinstance(instance, cls.peakmem_real())

    def __subclasscheck__(cls, subclass):
        return subclass is cls or (cls.peakmem_late.loaded and issubclass(subclass, cls.peakmem_real()))


class _Finder(importlib.abc.MetaPathFinder):
    """Gives stand-ins for modules, and the real ones when another of their modules is imported."""

    def __init__(self, late):
        self._late = late

    def find_spec(self, fullname, path=None, target=None):
        if self._late.knows(fullname):
            spec = importlib.machinery.PathFinder.find_spec(fullname, path)
            if spec is not None and spec.has_location:
                spec.loader = _Loader(self._late)
            return spec
        if self._late.is_below(fullname):
            self._late.load()
            return spec_of_imported(fullname)
        return None


class _Loader(importlib.abc.Loader):
    """Makes a stand-in."""

    def __init__(self, late):
        self._late = late

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        with tokenize.open(module.__file__) as file:
            self._late.stand_in_for(module, file.read())
