"""What to ask a scheduler for: the lines for Slurm, Kubernetes, Docker and LSF."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from peakmem.errors import PeakmemError
from peakmem.forecast.model import Forecast
from peakmem.units import GIB, MIB, format_size, parse_size

if TYPE_CHECKING:
    from peakmem.forecast.host import Host

FORMATS = ("slurm", "kubernetes", "docker", "lsf")
SCATTER = 0.03
"""Peaks of the same run, repeated, differ by about this share (docs/host.md tells what was measured)."""
DEFAULT_SHM = 64 * MIB
"""Size of /dev/shm in a container where nobody sets it (Docker's reference, `--shm-size`)."""
NCCL_SHM = GIB
"""What NVIDIA's guide to NCCL (troubleshooting, Docker) gives containers whose processes talk through /dev/shm."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Margin:
    """What is asked for beyond the forecast.

    Attributes:
        bytes: how much.
        why: in words.
    """

    bytes: int
    why: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Needs:
    """What one node has to give. Sizes are bytes, without the margin.

    Attributes:
        peakmem: version.
        command: what is run.
        memory: of the host.
        margin: beyond it.
        shm: of `memory`, what lies in /dev/shm.
        gpus: how many; 0: none.
        gpu: name of the card.
        gpu_used: what a rank takes of it.
        ranks: processes that train.
        workers: DataLoader workers of each.
    """

    peakmem: str
    command: tuple[str, ...]
    memory: int
    margin: Margin
    shm: int
    gpus: int
    gpu: str
    gpu_used: int
    ranks: int
    workers: int

    @property
    def asked(self) -> int:
        """The memory of the host to ask for, in MiB, rounded up."""
        return math.ceil((self.memory + self.margin.bytes) / MIB)

    @property
    def shm_asked(self) -> int:
        """The size of /dev/shm to ask for, in MiB, rounded up; never less than containers have anyway."""
        size = max(self.shm, DEFAULT_SHM) + (NCCL_SHM if self.ranks > 1 and self.gpus else 0)
        return math.ceil(size / MIB)


def margin_of(text: str | None, *, memory: int, driver_error: int, ranks: int) -> Margin:
    """The margin that the user wants, or else what is known to be uncertain.

    Args:
        text: a size, or a share such as "10%"; None: by what is known.
        memory: what the margin is for, bytes.
        driver_error: how far the driver's part may be off in one rank, bytes.
        ranks: processes that train.

    Raises:
        PeakmemError: the text is neither.
    """
    if text is None:
        scatter = math.ceil(SCATTER * memory)
        driver = driver_error * ranks
        why = f"{SCATTER:.0%}, by which real runs scatter"
        if driver:
            why += f", and {format_size(driver, digits=0)}, by which the driver's part may be off"
        return Margin(bytes=scatter + driver, why=why)
    if text.endswith("%"):
        try:
            share = float(text[:-1])
        except ValueError:
            share = -1.0
        if not 0 <= share < math.inf:
            raise PeakmemError(f"--margin {text} is no share", hint="--margin 10%, or --margin 2GiB")
        return Margin(bytes=math.ceil(memory * share / 100), why=f"{share:g} %, as asked for")
    return Margin(bytes=parse_size(text), why="as asked for")


class HostForecast(Protocol):
    """A forecast of any kind of job."""

    @property
    def peakmem(self) -> str:
        """Version."""

    @property
    def command(self) -> tuple[str, ...]:
        """What is run."""

    @property
    def host(self) -> Host | None:
        """What it takes of the host."""


def needs_of(forecast: HostForecast, *, margin: str | None = None) -> Needs:
    """What a forecast needs of one node.

    Args:
        forecast: of a job on a card, or on the CPU.
        margin: as for `margin_of`.

    Raises:
        PeakmemError: the forecast does not tell of the host.
    """
    host = forecast.host
    if host is None:
        raise PeakmemError(
            "the host's memory was not seen, so there is nothing to ask for",
            hint="peakmem run --format ... measures it; a forecast that was read from a file may lack it",
        )
    memory = host.node_peak or max(host.tree_rss or 0, host.peak_rss)
    on_gpu = isinstance(forecast, Forecast)
    return Needs(
        peakmem=forecast.peakmem,
        command=forecast.command,
        memory=memory,
        margin=margin_of(margin, memory=memory, driver_error=host.driver_error, ranks=host.ranks),
        shm=host.shm,
        gpus=host.ranks if on_gpu else 0,
        gpu=forecast.gpu.name if isinstance(forecast, Forecast) else "",
        gpu_used=forecast.peak.used if isinstance(forecast, Forecast) else 0,
        ranks=host.ranks,
        workers=sum(loader.workers for loader in host.loaders),
    )


def request_text(needs: Needs, kind: str) -> str:
    """The lines for a scheduler, one of `FORMATS`, with comments that say where the figures come from."""
    write = {"slurm": _slurm, "kubernetes": _kubernetes, "docker": _docker, "lsf": _lsf}[kind]
    comments = _comments(needs)
    if kind in ("kubernetes", "docker") and needs.ranks > 1 and needs.gpus:
        comments.append("1 GiB more of /dev/shm for NCCL, as NVIDIA's guide to it says")
    return "\n".join((*(f"# {line}" for line in comments), *write(needs))) + "\n"


def _comments(needs: Needs) -> list[str]:
    lines = [
        f"peakmem {needs.peakmem}: {format_size(needs.memory)} of host memory at most on one node",
        f"margin {format_size(needs.margin.bytes)}: {needs.margin.why}",
    ]
    if needs.gpus:
        lines.append(f"{format_size(needs.gpu_used)} of GPU memory in each rank, forecast for {needs.gpu}")
    if needs.shm:
        lines.append(f"{format_size(needs.shm)} of it may lie in /dev/shm")
    return lines


def _slurm(needs: Needs) -> list[str]:
    """Units of --mem: M is 2^20 bytes (man sbatch); /dev/shm counts as memory of the job."""
    lines = ["#SBATCH --nodes=1", f"#SBATCH --ntasks-per-node={needs.ranks}"]
    lines.append(f"#SBATCH --cpus-per-task={needs.workers + 1}")
    if needs.gpus:
        lines.append(f"#SBATCH --gres=gpu:{needs.gpus}")
    lines.append(f"#SBATCH --mem={needs.asked}M")
    return lines


def _kubernetes(needs: Needs) -> list[str]:
    """What lies in an emptyDir of medium Memory counts against the container's limit (Kubernetes, Volumes)."""
    amounts = [f"memory: {needs.asked}Mi"]
    if needs.gpus:
        amounts.append(f"nvidia.com/gpu: {needs.gpus}")
    lines = ["spec:", "  containers:", "    - name: train", "      resources:"]
    for what in ("requests", "limits"):  # a container above its request is evicted first: both the same
        lines += [f"        {what}:", *(f"          {amount}" for amount in amounts)]
    lines += ["      volumeMounts:", "        - name: shm", "          mountPath: /dev/shm"]
    lines += ["  volumes:", "    - name: shm", "      emptyDir:", "        medium: Memory"]
    lines.append(f"        sizeLimit: {needs.shm_asked}Mi")
    return lines


def _docker(needs: Needs) -> list[str]:
    """Units of --memory and --shm-size: m is 2^20 bytes; /dev/shm counts as memory of the container."""
    words = ["docker run"]
    if needs.gpus:
        words.append(f"--gpus {needs.gpus}")
    words += [f"--memory {needs.asked}m", f"--memory-swap {needs.asked}m", f"--shm-size {needs.shm_asked}m"]
    if needs.ranks > 1 and needs.gpus:
        words.append("--ulimit memlock=-1")
    return [" \\\n  ".join((*words, "IMAGE COMMAND"))]


def _lsf(needs: Needs) -> list[str]:
    """Units are written out, as LSF reads them from 10.1.0.2 on; without, a site's LSF_UNIT_FOR_LIMITS would hold."""
    words = [f"bsub -n {needs.ranks}", '-R "span[hosts=1]"']
    if needs.gpus:
        words.append(f'-gpu "num={needs.gpus}/host"')
    words.append(f'-R "rusage[mem={needs.asked}MB]"')
    words.append(f"-M {needs.asked}MB")
    lines = [" \\\n  ".join((*words, "COMMAND"))]
    if needs.ranks > 1:
        lines.insert(
            0, "# of a host; where a site has RESOURCE_RESERVE_PER_TASK=Y, rusage counts for each task: divide"
        )
    return lines
