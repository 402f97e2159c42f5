"""What loading a checkpoint holds on the host and on the device, worked out from the sizes of its tensors."""

from __future__ import annotations

from dataclasses import dataclass

from peakmem.workload.checkpoints.model import Checkpoint


@dataclass(frozen=True, kw_only=True, slots=True)
class Loading:
    """One way of loading.

    Attributes:
        how: what the program does.
        host: bytes of host memory that it holds at its peak; pages of a mapped file, which the system can drop, are
            not among them.
        device: bytes of the tensors that it holds on the GPU at its peak, before the allocator rounds them.
    """

    how: str
    host: int
    device: int


def ways_of_loading(checkpoint: Checkpoint) -> tuple[Loading, ...]:
    """The usual ways, the most wasteful first; none for formats that PyTorch does not load.

    A model that the checkpoint is loaded into takes as much again as its tensors, on the host until it is moved: hence
    the rule of thumb of twice the file. A checkpoint with optimizer states holds these too while it is loaded.
    Anonymous memory of the process (RssAnon), measured for a state dict of 256 MiB in 4 tensors with PyTorch 2.14.1 and
    safetensors 0.8.0, in the order below: 290, 0 and 64 MiB; 546, 290 and 64 MiB. 33 MiB of the larger ones are code
    that is run for the first time.
    """
    everything = checkpoint.size
    model = sum(tensor.size for tensor in checkpoint.unique() if tensor.group == "model")
    largest = max(tensor.size for tensor in checkpoint.unique())
    if checkpoint.format.startswith("safetensors"):
        return (
            Loading(how="load_file(path), into a model on the host", host=model, device=model),
            Loading(how="a model on the meta device, load_file(path), assign=True", host=0, device=model),
            Loading(how='load_file(path, device="cuda"), beside a model on the GPU', host=largest, device=2 * model),
        )
    if checkpoint.format.startswith("torch.save"):
        return (
            Loading(how="torch.load(path), into a model on the host", host=everything + model, device=model),
            Loading(how="torch.load(path, mmap=True), into a model on the host", host=model, device=model),
            Loading(
                how='torch.load(path, map_location="cuda"), beside a model on the GPU',
                host=largest,
                device=everything + model,
            ),
        )
    return ()
