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

    from . import stopping

    stopping.install(leave=config.device != "cpu")  # the CPU's library looks at what follows
    watches: list = []
    kerases: list = []

    def watched(found):
        if found is not None:
            watches.append(found)
            for keras in kerases:  # TensorFlow imports Keras
                found.keras_imported(keras)

    def watch(torch):
        if config.device == "cpu":
            from . import cpu

            cpu.install(torch, config)
        else:
            from . import watching

            watched(watching.install(torch, config))
        if config.late_compiler:
            from . import compiler

            compiler.load_late(torch)

    def watch_tensorflow(framework):
        from . import tensorflow

        watched(tensorflow.install(framework, config))

    def watch_keras(keras):
        kerases.append(keras)
        for found in watches:
            found.keras_imported(keras)

    importing.when_imported("torch", watch)
    importing.when_imported("tensorflow", watch_tensorflow)
    importing.when_imported("keras", watch_keras)
    importing.when_imported("tf_keras", watch_keras)
    if config.no_weights:
        from . import weights

        weights.install()
