"""Out-of-memory messages: read, put in relation, and answered."""

from peakmem.allocator.messages.explain import explain
from peakmem.allocator.messages.model import Explanation, Figures, Process, Verdict

__all__ = ["Explanation", "Figures", "Process", "Verdict", "explain"]
