"""Which module is running: every call of an `nn.Module` opens a context with its path."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable

from .families import outermost_parent
from .keras import layer_name, parts_of

MOST_SEARCHES = 4


def owns_tensors(module):
    """Whether a module or a part of it has parameters or buffers."""
    return any(True for _ in module.parameters()) or any(True for _ in module.buffers())


def path_in(root, path, ambiguous):
    """The path of a module or tensor below a root; with the root's class where it would say too little."""
    return f"{root}.{path}" if ambiguous or path[:1].isdigit() else path


class ModuleTracker:
    """Wraps `nn.Module.__call__`; knows the outermost modules that were called and the names of all below them.

    Attributes:
        roots: the outermost modules.
        on_root, on_root_done: called with a root and its arguments, or its result.
        layers: (name, class, shape, bytes of an element) of what layers with weights gave while `layers_open`,
            on `device` ("cuda" or "cpu").
    """

    def __init__(self, torch, contexts, *, device="cuda"):
        self.roots: weakref.WeakSet = weakref.WeakSet()
        self.on_root: Callable[..., None] | None = None
        self.on_root_done: Callable[..., None] | None = None
        self.layers = []
        self._searches = MOST_SEARCHES
        self._main = threading.get_ident()
        self.layers_open = True
        self._contexts = contexts
        self._device = device
        self._torch = torch
        self._names: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()
        self._threads = threading.local()

    def install(self):
        """Take the place of `nn.Module.__call__`."""
        module_class = self._torch.nn.Module
        original = module_class.__call__
        enter, leave, name_of, threads = self._contexts.enter, self._contexts.leave, self._name, self._threads
        tracker = self

        def __call__(self, *args, **kwargs):
            root = getattr(threads, "root", None)
            if root is not None:
                try:
                    name = name_of(root, self)
                except Exception:
                    name = type(self).__name__
                before = enter("module", name)
                try:
                    result = original(self, *args, **kwargs)
                finally:
                    leave(before)
                if tracker.layers_open:
                    tracker._layer(self, name, result)
                return result
            try:
                root, name = tracker._root_of(self)
            except Exception:  # of a module with listings of its own
                root, name = self, type(self).__name__
            threads.root = root
            before = enter("module", name)
            try:
                # A segment that is computed again in the backward pass runs in a thread of the engine.
                seen = threading.get_ident() == tracker._main
                if seen and tracker.on_root is not None:
                    tracker.on_root(self, args, kwargs)
                result = original(self, *args, **kwargs)
                if seen and tracker.on_root_done is not None:
                    tracker.on_root_done(self, result)
                if tracker.layers_open:
                    tracker._layer(self, name, result)
                return result
            finally:
                leave(before)
                threads.root = None

        module_class.__call__ = __call__

    def _layer(self, module, name, result):
        """Keep the size of what a layer gave: a module without parts that has a matrix of weights."""
        if isinstance(result, (list, tuple)):
            result = result[0] if result else None
        if not isinstance(result, self._torch.Tensor) or result.device.type != self._device:
            return
        if parts_of(module):
            return
        if any(parameter.dim() > 1 for parameter in module.parameters()):
            self.layers.append((name, type(module).__name__, tuple(result.shape), result.element_size()))

    def _root_of(self, module):
        """The outermost module and the name of one that was called from outside of all of them.

        A part of a known root may be called alone: by the recomputation of a checkpointed segment, which runs in a
        thread of its own, or by a script.
        """
        if module not in self.roots:
            for root in list(self.roots):
                name = self._names.get(root, {}).get(id(module))
                if name is not None:
                    return root, name
            if self._searches and self.roots and owns_tensors(module):
                # The second model, or another part of the first one.
                self._searches -= 1
                whole = outermost_parent(module, self._torch.nn.Module)
                if whole is not module:
                    return self._adopt(whole), self._name(whole, module)
            self.roots.add(module)
        return module, type(module).__name__

    def _adopt(self, whole):
        """Count a model as called whose parts are called one by one."""
        parts = set(map(id, whole.modules()))
        for root in list(self.roots):
            if id(root) in parts:
                self.roots.discard(root)
        self.roots.add(whole)
        return whole

    def _name(self, root, module):
        names = self._names.get(root)
        name = names.get(id(module)) if names is not None else None
        if name is None:
            owner = type(root).__name__
            names = {id(child): path_in(owner, path, False) for path, child in root.named_modules()}
            names.setdefault(id(module), layer_name(module) or (owner if module is root else type(module).__name__))
            self._names[root] = names
            name = names[id(module)]
        return name or type(module).__name__
