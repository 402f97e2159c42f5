"""Which module is running: every call of an `nn.Module` opens a context with its path."""

import threading
import weakref


class ModuleTracker:
    """Wraps `nn.Module.__call__`; knows the outermost modules that were called and the names of all below them."""

    def __init__(self, torch, contexts):
        self.roots: weakref.WeakSet = weakref.WeakSet()
        self._contexts = contexts
        self._torch = torch
        self._names: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()
        self._threads = threading.local()

    def install(self):
        """Take the place of `nn.Module.__call__`."""
        module_class = self._torch.nn.Module
        original = module_class.__call__
        enter, leave, name_of, threads = self._contexts.enter, self._contexts.leave, self._name, self._threads

        def __call__(self, *args, **kwargs):
            root = getattr(threads, "root", None)
            if root is None:
                threads.root = self
            before = enter("module", name_of(root, self))
            try:
                return original(self, *args, **kwargs)
            finally:
                leave(before)
                if root is None:
                    threads.root = None

        module_class.__call__ = __call__

    def _name(self, root, module):
        if root is None:
            self.roots.add(module)
            return type(module).__name__
        names = self._names.get(root)
        name = names.get(id(module)) if names is not None else None
        if name is None:
            names = {id(child): path for path, child in root.named_modules()}
            names.setdefault(id(module), type(module).__name__)
            self._names[root] = names
            name = names[id(module)]
        return name
