"""Distributed training: what compares values among processes can't be done where values are not moved."""

import functools

from . import importing


def install(ledger):
    """Let `DistributedDataParallel` take it that all ranks hold the same parameters.

    It compares their shapes by gathering them on the device (torch/csrc/distributed/c10d/reducer.cpp), where everything
    is zero. The comparison is made, since it takes memory for a moment, and its outcome is ignored.

    Args:
        ledger: called with what was assumed, the answer, and nothing else.
    """

    def patch(module):
        original = module._verify_param_shape_across_processes

        @functools.wraps(original)
        def verify(*args, **kwargs):
            try:
                return original(*args, **kwargs)
            except RuntimeError:
                ledger("all ranks hold the same parameters", "true")
                return None

        module._verify_param_shape_across_processes = verify

    # The class has the function under a name of its own module.
    importing.when_imported("torch.nn.parallel.distributed", patch)
