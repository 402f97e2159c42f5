"""What `peakmem predict` trained, in words: from the settings, and from what the script said."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

    from peakmem.cli.forecasting import Progress
    from peakmem.workload.keras.training import Compiled
    from peakmem.workload.model import Workload
    from peakmem.workload.training import Training

_SAID = ("parameters: ", "batch: ", "loss: ", "training: ")


def print_workload(described: dict[str, str], screen: Console) -> None:
    """Print what was trained."""
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    for name, text in described.items():
        table.add_row(Text(name), Text(text, style="dim" if name == "assumed" else ""))
    screen.print(Padding(table, (1, 0, 0, 1), expand=False))


class Collecting:
    """Keeps the lines in which the script says what it trains, and passes everything on."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._lines: list[str] = []
        self.say = progress.say
        self.line = progress.line

    def printed(self, line: str) -> None:
        """Take a line."""
        if line.startswith(_SAID) and line not in self._lines:
            self._lines.append(line)
        self._progress.printed(line)

    def said(self, what: str) -> list[str]:
        """What the script said of something."""
        return [_sizes(line.partition(": ")[2]) for line in self._lines if line.startswith(f"{what}: ")]


def _sizes(text: str) -> str:
    """`images 8 3 224 224 torch.float32` as `images 8 x 3 x 224 x 224 float32`."""
    return re.sub(r"(?<=\d) (?=\d)", " x ", text.replace("torch.", ""))


def describe(workload: Workload, training: Training | Compiled, collected: Collecting) -> dict[str, str]:
    """What was trained, in words: from the settings, and from what the script said."""
    described = {"model": workload.title}
    for text in collected.said("parameters"):
        every, _, trained = text.partition(", trained: ")
        described["parameters"] = every if every == trained else f"{every}, of which {trained} are trained"
    described["batch"] = "; ".join(collected.said("batch"))
    described["loss"] = next(iter(collected.said("loss")), workload.loss_text)
    described["training"] = next(iter(collected.said("training")), training.words())
    assumed = [*workload.assumed, *training.assumed()]
    if assumed:
        described["assumed"] = "; ".join(assumed)
    return described
