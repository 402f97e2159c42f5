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

    from . import garbage, stopping

    stopping.install()
    if config.device != "cpu":
        stopping.leave_early()
    watches: list = []
    kerases: list = []

    def watched(found):
        if found is not None:
            watches.append(found)
            for keras in kerases:  # TensorFlow imports Keras
                found.keras_imported(keras)

    def before_torch():
        garbage.look_rarely()
        if config.hollow:
            from .cpu import hollow

            hollow.install(config.hollow)

    def watch(torch):
        garbage.until_training(torch)
        if config.device == "cpu":
            from . import cpu

            watched(cpu.install(torch, config))
        else:
            from . import watching

            watched(watching.install(torch, config))
        if config.late_libraries:
            from . import late

            late.load_late(torch)

    def watch_tensorflow(framework):
        if config.device == "cpu":
            from .cpu.tensorflow import install
        else:
            from .tensorflow import install

        watched(install(framework, config))

    def watch_keras(keras):
        kerases.append(keras)
        for found in watches:
            found.keras_imported(keras)

    def keep_scans(module):
        from . import scans

        scans.keep(module, config.scans)

    importing.when_imported("torch", watch, first=before_torch)
    importing.when_imported("tensorflow", watch_tensorflow)
    importing.when_imported("keras", watch_keras)
    importing.when_imported("tf_keras", watch_keras)
    if config.scans:
        importing.when_imported("transformers.utils.import_utils", keep_scans)
    if config.no_weights:
        from . import weights

        weights.install()
