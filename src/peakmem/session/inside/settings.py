"""What the starting side asks of the watched process: `session.json` in the session's folder."""

import json
import os
from dataclasses import dataclass


@dataclass(frozen=True)
class Settings:
    """The questions of one session.

    Attributes:
        folder: where this process writes what it saw.
        steps: "auto" (until the peak is steady), "all" (to the script's own end) or a number of optimizer steps.
        most_steps: with "auto", the step after which the script is ended in any case.
        record: whether the allocator's history is kept.
        stacks: whether the history carries Python stacks.
        build_on_device: whether parameters are made on the GPU straight away.
        late_libraries: whether libraries that are imported and hardly used wait for something to use them (`late.py`).
        late_sizes: what they were seen to hold, as `late.left_out` has it; None: nobody asks.
        exit_sizes: what was seen to be touched when libraries are unloaded, by `late.key_of`; None: nobody asks.
        hollow: libraries that are replaced, as `host/hollow.py` describes them; None: none are.
        no_initial_values: whether initial values that a model draws on the host are left out.
        no_weights: whether `from_pretrained` and its like build from a configuration alone.
        changes: training settings that are changed, as `changes.py` reads them.
        assume: the assumptions about unknown values, as `values.Config` reads them.
        count_layers: whether what layers give on the CPU is counted, for a calculation by hand; on a GPU it always is.
        measure: whether the process runs on a real GPU, or none, and is only asked for PyTorch's counters at its end.
        device: "gpu" (the virtual one) or "cpu".
        scans: the folder that keeps what libraries find in their own files (`scans.py`); None: they look each time.
    """

    folder: str
    steps: str = "auto"
    most_steps: int = 10
    record: bool = True
    stacks: bool = True
    build_on_device: bool = False
    late_libraries: bool = False
    late_sizes: "dict[str, int] | None" = None
    exit_sizes: "dict[str, int] | None" = None
    hollow: "dict | None" = None
    no_initial_values: bool = False
    no_weights: bool = False
    assume: str = ""
    changes: tuple = ()
    count_layers: bool = False
    measure: bool = False
    device: str = "gpu"
    scans: "str | None" = None


def read():
    """Read the settings of the session that this process belongs to; None where there is none."""
    folder = os.environ.get("PEAKMEM_SESSION")
    if not folder:
        return None
    try:
        with open(os.path.join(folder, "session.json"), encoding="utf-8") as file:
            fields = json.load(file)
    except (OSError, ValueError):
        return None
    return Settings(folder=folder, **fields)
