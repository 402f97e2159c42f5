"""Leave the initial values of a model out, as far as they are drawn on the host.

They have no say in what memory is taken, and drawing them takes longer than all the rest of a run: 5 s for the 86
million of a vision transformer, with `trunc_normal_`.
"""

SMALL = 65_536
"""Elements; smaller tensors are filled, since sizes may be drawn."""

FILLS = ("normal_", "uniform_", "erfinv_")
ON_TOP = ("add_", "clamp_", "div_", "mul_", "sub_")
"""What is done to values right after they were drawn (`trunc_normal_`); left out for tensors that were not filled."""

_spared: dict = {}


def spared():
    """Bytes of the tensors that were left as they are, and so are not resident."""
    return sum(_spared.values())


def install(torch):
    """From now on large tensors on the host stay as they are when they should be filled at random."""
    for name in FILLS:
        setattr(torch.Tensor, name, _unless_large(torch, getattr(torch.Tensor, name), always=True))
    for name in ON_TOP:
        setattr(torch.Tensor, name, _unless_large(torch, getattr(torch.Tensor, name), always=False))


def _unless_large(torch, original, *, always):
    kinds = (torch.Tensor, torch.nn.Parameter)

    def fill(self, *args, **kwargs):
        if type(self) in kinds and self.device.type == "cpu" and self.numel() > SMALL:
            place = self.data_ptr()
            if always or place in _spared:
                _spared[place] = self.numel() * self.element_size()
                return self
        return original(self, *args, **kwargs)

    return fill
