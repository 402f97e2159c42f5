"""Operators that take memory which they give back without having written it.

Found by looking at the resident pages of each block when it is given back, in real trainings (PyTorch 2.13 and 2.14.1):
of all operators of dense, convolutional and recurrent networks and of transformers, one does.
"""


def special(native):
    """The handlers for `SkipMode`."""

    def batch_norm_backward(skip, func, args, kwargs):
        x = args[1]
        # It makes room for the gradient of its input twice, and fills the second (PyTorch 2.13.0).
        native.partly(x.numel() * x.element_size(), 0, 1)
        try:
            return skip(func, args, kwargs)
        finally:
            native.partly(0, 0, 0)

    return {"native_batch_norm_backward": batch_norm_backward}
