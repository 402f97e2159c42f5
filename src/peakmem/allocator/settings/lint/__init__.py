"""A linter for scripts and notebooks: is PYTORCH_CUDA_ALLOC_CONF set well, and in time?"""

from peakmem.allocator.settings.lint.judge import Level, Remark, lint_file, lint_source

__all__ = ["Level", "Remark", "lint_file", "lint_source"]
