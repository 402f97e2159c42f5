"""The settings string of PyTorch's CUDA allocator: parse, check, explain, per version."""

from peakmem.allocator.settings.model import Call, Named, ParseResult, Refusal, Settings, caret
from peakmem.allocator.settings.parse import parse
from peakmem.allocator.settings.version import REFERENCE, TorchVersion

__all__ = ["REFERENCE", "Call", "Named", "ParseResult", "Refusal", "Settings", "TorchVersion", "caret", "parse"]
