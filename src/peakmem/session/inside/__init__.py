"""The side of a session that lives in the watched process.

It is loaded by `bootstrap/sitecustomize.py` in every Python process below `peakmem run`, under the name
`peakmem_inside`. It runs in the user's interpreter, so it uses the standard library and torch alone, and does nothing
until the process imports torch.
"""


def start():
    """Wait for the process to import torch, then watch it."""
    from . import importing, settings

    config = settings.read()
    if config is None:
        return

    if config.measure:

        def count(torch):
            from . import counting

            counting.install(torch, config.folder)

        importing.when_imported("torch", count)
        return

    def watch(torch):
        if config.device == "cpu":
            from . import cpu

            cpu.install(torch, config)
            return
        from . import watching

        watching.install(torch, config)

    importing.when_imported("torch", watch)
    if config.no_weights:
        from . import weights

        weights.install()
