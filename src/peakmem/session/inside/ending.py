"""How the script ended, for the other side: plain values."""

import traceback


def describe_error(kind, error, trace):
    """An uncaught error, as the recording has it."""
    frames = traceback.extract_tb(trace)
    try:
        message = str(error)
    except Exception:
        message = "(its message can't be told)"
    return {
        "type": f"{kind.__module__}.{kind.__qualname__}",
        "message": message[:8000],
        "frames": [(f.filename, f.lineno, f.name) for f in frames][-60:],
        "memory": any("OutOfMemoryError" in type(cause).__name__ for cause in chain(error)),
    }


def chain(error):
    """An error and those that it came from, innermost last."""
    for _ in range(50):
        if error is None:
            return
        yield error
        error = error.__cause__ or error.__context__
