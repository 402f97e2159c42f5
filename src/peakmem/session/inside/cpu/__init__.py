"""The watched process of `peakmem run --device cpu`: training on the host, with the computing left out."""


def install(torch, settings):
    """Watch this process from now on, if the host library is in it."""
    from ..writing import Writer
    from .native import Native

    writer = Writer(settings.folder)
    try:
        native = Native()
    except OSError as error:
        writer.progress("no_library", reason=str(error))
        return
    from .watch import CpuWatch

    CpuWatch(torch, settings, native, writer).install()
