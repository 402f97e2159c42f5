"""Build models straight on the GPU: parameters are made there, so the host holds one of them at a time, untouched."""


def install(torch):
    """From now on an `nn.Parameter` made from a host tensor is an empty one on the current GPU.

    Initialising it then costs nothing, since kernels of the virtual GPU do nothing.
    """
    original = torch.nn.Parameter.__new__

    def __new__(cls, data=None, requires_grad=True):
        if type(data) is torch.Tensor and data.device.type == "cpu":
            data = torch.empty_strided(data.shape, data.stride(), dtype=data.dtype, device="cuda")
        return original(cls, data, requires_grad)

    torch.nn.Parameter.__new__ = staticmethod(__new__)
