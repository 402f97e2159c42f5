"""The watched process of `peakmem run --device cpu`: training on the host, with the computing left out."""


def install(torch, settings):
    """Watch this process from now on, if the host library is in it; gives the watch, or None."""
    import os

    from ..writing import Writer
    from .native import Native

    writer = Writer(settings.folder)
    try:
        native = Native()
    except OSError as error:
        if "libpeakmem" not in os.environ.get("LD_PRELOAD", ""):  # else TensorFlow is followed
            writer.progress("no_library", reason=str(error))
        return None
    from . import operators
    from .watch import CpuWatch

    watch = CpuWatch(torch, settings, native, writer)
    try:
        watch.install()
    except operators.UnknownOperatorsError:
        writer.progress("unknown_operators", torch=torch.__version__)
        return None
    return watch
