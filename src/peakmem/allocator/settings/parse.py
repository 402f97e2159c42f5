"""Parse a settings string as a given PyTorch version does."""

from __future__ import annotations

from peakmem.allocator.settings import grammar_accelerator, grammar_caching, grammar_regex
from peakmem.allocator.settings.model import Call, ParseResult, Refusal, Settings
from peakmem.allocator.settings.state import Parse, RefusedError
from peakmem.allocator.settings.version import REFERENCE, TorchVersion


def parse(
    text: str,
    *,
    version: TorchVersion = REFERENCE,
    call: Call = Call.ENVIRONMENT,
    before: Settings | None = None,
    loaded_backend: str | None = None,
    readers: tuple[str, ...] = ("common", "cuda"),
) -> ParseResult:
    """Parse a settings string.

    Args:
        text: what PYTORCH_CUDA_ALLOC_CONF contains, or what a run-time call is given.
        version: the PyTorch version.
        call: whether it comes from the environment or from a call at run time.
        before: the settings in force before; the defaults if not given. A parse resets only some of them.
        loaded_backend: the backend that the process was started with, where known (it can't change afterwards);
            for the environment it follows from the string.
        readers: which of the two readers sees the string, from 2.10 on (they may read different variables).

    Returns:
        The settings, or the refusal with the exception that PyTorch raises and its place in the string.
    """
    state = Parse(text=text, version=version, call=call, settings=before or Settings(), loaded_backend=loaded_backend)
    refusal: Refusal | None = None
    try:
        if version.at_least("2.10"):
            if call is Call.ENVIRONMENT and "cuda" in readers:
                state.loaded_backend = grammar_accelerator.backend_at_load(state)
            steps = {"common": grammar_accelerator.parse_common, "cuda": grammar_accelerator.parse_cuda}
            # The environment is read by the CUDA reader first, a run-time call by the common one.
            for name in steps if call is Call.RUN_TIME else reversed(steps):
                if name in readers:
                    steps[name](state)
        elif version.at_least("2.0"):
            if call is Call.ENVIRONMENT:
                state.loaded_backend = grammar_caching.backend_at_load(text)
            grammar_caching.parse_all(state)
        else:
            grammar_regex.parse_all(state)
    except RefusedError as error:
        refusal = error.refusal
    return ParseResult(
        text=text,
        version=version,
        settings=state.settings,
        named=tuple(sorted(state.named, key=lambda named: named.start)),
        refusal=refusal,
        ignored=tuple(sorted(set(state.ignored))),
        warnings=tuple(state.warnings),
    )
