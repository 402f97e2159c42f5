"""A job on four ranks with everything that the host's side can show."""

from __future__ import annotations

from peakmem.forecast.host import Host, HostLater, HostLoader, HostPart, HostPinned
from peakmem.host.limits import Limit
from peakmem.host.measurement import (
    Cost,
    GpuUse,
    GroupUse,
    HostPeak,
    LimitUse,
    Measurement,
    Points,
    ProcessPeak,
    TorchPeak,
)

GIB, MIB = 2**30, 2**20

LOADER = HostLoader(
    dataset="Frames",
    workers=8,
    start="fork",
    prefetch=2,
    batch=12 * MIB,
    pin_memory=True,
    objects=5 * GIB,
    buffers=GIB,
    mapped=0,
    partial=False,
    largest_worker=300 * MIB,
    lagging=600 * MIB,
    shm=17 * 12 * MIB,
    growth=40 * GIB,
)
JOB = Host(
    peak_rss=sum((228 * MIB, 276 * MIB, 6 * GIB, 3 * MIB, 16 * GIB, 114 * MIB)),
    tree_rss=24 * GIB,
    parts=(
        HostPart(name="libraries", bytes=228 * MIB, source="measured", note="mapped files of Python and PyTorch"),
        HostPart(name="interpreter", bytes=276 * MIB, source="measured", note="after import torch"),
        HostPart(name="objects and tensors", bytes=6 * GIB, source="measured", note="models and data on the host"),
        HostPart(name="more files", bytes=3 * MIB, source="measured", note="libraries loaded later, mapped data"),
        HostPart(name="pinned", bytes=16 * GIB, source="counted", note="resident on a real GPU, written or not"),
        HostPart(name="driver", bytes=114 * MIB, source="estimated", note="libcuda and its context"),
    ),
    pinned=16 * GIB,
    pinning=HostPinned(bytes=16 * GIB, requested=8_695_185_408, registered=0, blocks=((16 * GIB, 1),), rounded=True),
    driver=114 * MIB,
    driver_error=114 * MIB,
    graph_growth=42,
    loaders=(LOADER,),
    later=(
        HostLater(name="data set objects copied by 8 workers", bytes=40 * GIB, counted=True, note="upper bound"),
        HostLater(name="checkpoint copied to the host", bytes=3 * GIB, counted=False, note="if it is moved"),
    ),
    shm=4 * 17 * 12 * MIB,
    ranks=4,
    per_rank=64 * GIB,
    shared=GIB,
    node_peak=257 * GIB,
)

MEASURED = Measurement(
    peakmem="1.2.3",
    command=("python", "train.py", "--epochs", "1"),
    started="2026-01-02T03:04:05+00:00",
    seconds=60.0,
    exit_code=0,
    ending="ended",
    peak=HostPeak(process=3 * GIB, rss=6 * GIB, pss=4 * GIB, uss=3 * GIB, shm=64 * MIB, swap=0),
    processes=(
        ProcessPeak(pid=100, parent=1, command=("python", "train.py"), rss=3 * GIB, pss=3 * GIB, uss=2 * GIB,
                    anonymous=2 * GIB, file=GIB, shared=0, growth=GIB, first=0.0, last=60.0),
        ProcessPeak(pid=101, parent=100, command=("python", "train.py"), rss=3 * GIB, pss=GIB, uss=512 * MIB,
                    anonymous=2 * GIB, file=GIB - 64 * MIB, shared=64 * MIB, growth=0, first=10.0, last=59.5),
    ),
    points=Points(
        seconds=(0.0, 15.0, 30.0, 60.0), rss=(0, GIB, 6 * GIB, 3 * GIB), pss=(0, 0, 4 * GIB, 2 * GIB),
        shm=(0, 0, 64 * MIB, 0), processes=(1, 2, 2, 1), gpu=(0, 0, 5 * GIB, GIB),
    ),
    group=GroupUse(path="/sys/fs/cgroup/job", highest=5 * GIB, before=100 * MIB, peak=5 * GIB, kills=0),
    limits=(
        LimitUse(limit=Limit(kind="cgroup", name="memory.max of /sys/fs/cgroup/job", bytes=5 * GIB + MIB),
                 used=5 * GIB),
        LimitUse(limit=Limit(kind="shm", name="size of /dev/shm", bytes=64 * MIB + 4096), used=64 * MIB),
        LimitUse(limit=Limit(kind="physical", name="memory of this machine", bytes=32 * GIB), used=4 * GIB),
        LimitUse(limit=Limit(kind="address_space", name="ulimit -v", bytes=64 * GIB), used=None),
    ),
    gpus=(GpuUse(index=0, name="Some GPU", total=24 * GIB, used=5 * GIB, whole_card=False),),
    torch=(TorchPeak(pid=100, device=0, name="Some GPU", requested=4 * GIB - MIB, allocated=4 * GIB, active=4 * GIB,
                     reserved=4 * GIB + 512 * MIB, pinned=16 * GIB),),
    cost=Cost(samples=1200, page_samples=30, cpu_seconds=0.3, share=0.005),
)  # fmt: skip
