"""Search for the settings under which a trace needs the least memory."""

from peakmem.allocator.search.candidates import Candidate, Situation, pairs, singles
from peakmem.allocator.search.judging import Judgement, Outcome, judge
from peakmem.allocator.search.searching import Found, Tried, search

__all__ = ["Candidate", "Found", "Judgement", "Outcome", "Situation", "Tried", "judge", "pairs", "search", "singles"]
