"""Worked examples of the allocator's rules (PyTorch 2.14.1), in a small language.

A program is a row of words: `x=20M+1` takes a tensor, `x=4M@A` on a side stream A, `-x` frees it, `x~A` is
record_stream, `sync`, `empty` (empty_cache), `limit:50M` (a memory limit), `conf:...` (settings at run time), `pool:p`
to `poolend` (a MemPool; `pool:p!use_on_oom` with a flag), `drop:p`.

What is expected is another row: `a=`, `r=`, `q=`, `i=`, `active=` are allocated, reserved, requested, inactive-split
and active bytes; `retries=`, `ooms=`, `syncs=`, `device_allocs=`, `device_frees=`, `segments=`, `peak_a=`, `peak_r=`.
Then segments in any order, `20M[A3M -17M]`: A allocated, - free, P freed and waiting for another stream; a block
without a size takes the rest; `x` in front is an expandable segment. No segment at all is written `none`.
"""

from __future__ import annotations

from dataclasses import dataclass

MIB = 1 << 20


@dataclass(frozen=True)
class Example:
    """A program and the state it must lead to."""

    section: str
    program: str
    expected: str
    conf: str = ""
    capacity: int = 1000


LIST = "roundup_power2_divisions:[256:1,512:2,1024:4,>:8]"
SHORT = "roundup_power2_divisions:[2:8,64:4,>:1]"
FOUR, TWO = "roundup_power2_divisions:4", "roundup_power2_divisions:2"
SPLIT, EXPAND = "max_split_size_mb:20", "expandable_segments:True"
BIG = 1 << 20  # MiB: a device without a limit


def _sizes(section: str, conf: str, pairs: dict[str, str]) -> list[Example]:
    return [Example(section, f"x={request}", f"a={size}", conf=conf, capacity=BIG) for request, size in pairs.items()]


EXAMPLES = [
    # ---------------------------------------------------------------- rounding
    Example("rounding", "x=0", "a=0 r=0 none"),
    *_sizes("rounding", "", {"1": "512", "512": "512", "513": "1024", "1048575": "1M"}),
    *_sizes(
        "rounding",
        FOUR,
        {
            "1000": "1024",
            "1200": "1536",
            "1537": "2048",
            "2048": "2048",
            "2049": "2560",
            "2561": "3072",
            "3000": "3072",
            "5000": "5120",
            "102401": "114688",
            "1M+1": "1310720",
            "5M+1": "6M",
            "33M": "40M",
        },
    ),
    Example("rounding", "x=9M", "a=10M r=10M 10M[A10M]", conf=FOUR),
    Example("rounding", "x=9M", "a=9M r=20M 20M[A9M -11M]"),
    *_sizes("rounding", TWO, {"1024": "1024", "1025": "1536", "524800": "786432", "819200": "1M"}),
    *_sizes(
        "rounding",
        LIST,
        {
            "100M+1": "100M+512",
            "511M+1": "512M",
            "512M+1": "768M",
            "600M": "768M",
            "700M": "768M",
            "800M": "1024M",
            "1024M+1": "1280M",
            "1300M": "1536M",
            "1536M+1": "1792M",
            "2048M+1": "2304M",
            "2304M+1": "2560M",
            "5000M": "5120M",
            "71680M": "73728M",
        },
    ),
    *_sizes(
        "rounding",
        SHORT,
        {
            "1200": "1536",
            "5000": "5120",
            "524289": "589824",
            "1M+1": "1179648",
            "3M+1": "3407872",
            "4M+1": "4M+512",
            "64M+1": "80M",
            "100M+1": "112M",
            "128M+1": "128M+512",
        },
    ),
    # ---------------------------------------------------- segments for one request
    Example("segments", "x=1", "a=512 r=2M i=2096640 2M[A512 -]"),
    Example("segments", "x=1M", "a=1M r=2M i=1M 2M[A1M -1M]"),
    Example("segments", "x=1M+1", "a=1049088 r=20M i=19922432 20M[A1049088 -]"),
    Example("segments", "x=10M-512", "a=10485248 r=20M i=10486272 20M[A10485248 -]"),
    Example("segments", "x=10M-1", "a=10M r=10M i=0 10M[A10M]"),
    Example("segments", "x=10M", "a=10M r=10M i=0 10M[A10M]"),
    Example("segments", "x=10M+1", "a=10486272 r=12M i=2096640 12M[A10486272 -]"),
    Example("segments", "x=11M", "a=12M q=11M r=12M i=0 12M[A12M]"),
    Example("segments", "x=11M-512", "a=11533824 r=12M i=1049088 12M[A11533824 -]"),
    Example("segments", "x=100M+1", "a=104858112 r=102M i=2096640 102M[A104858112 -]"),
    Example("segments", "x=3M", "a=3M r=11M 11M[A3M -8M]", conf="large_segment_size_mb:11"),
    Example("segments", "x=9M+512", "r=11M 11M[A9M+512 -]", conf="large_segment_size_mb:11"),
    Example("segments", "x=10M", "r=10M 10M[A10M]", conf="large_segment_size_mb:11"),
    Example("segments", "x=3M", "r=30M 30M[A3M -27M]", conf="large_segment_size_mb:30"),
    # --------------------------------------------------------------- splitting
    Example("splitting", "x=20M -x y=19M", "a=20M q=19M i=0 20M[A20M]"),
    Example("splitting", "x=20M -x y=19M-512", "a=19M-512 i=1049088 20M[A19M-512 -]"),
    Example("splitting", "x=1M y=1M-512 z=512", "i=0 r=2M 2M[A1M A1M-512 A512]"),
    Example("splitting", "x=1M y=1M-512 z=512 w=1", "r=4M 2M[A1M A1M-512 A512] 2M[A512 -]"),
    # --------------------------------------------------------- searching the cache
    Example(
        "search",
        "x=30M y=40M z=50M -x -y -z a=35M b=31M c=30M",
        "a=96M r=120M i=24M 40M[A35M -5M] 50M[A31M -19M] 30M[A30M]",
    ),
    Example(
        "search",
        "a=3M b=3M c=9M d=4M e=2M",
        "r=40M 20M[A3M A3M A9M A5M] 20M[A2M -18M]",
    ),
    Example(
        "search",
        "a=3M b=3M c=9M d=4M e=2M -a -c f=8M+512",
        "r=40M 20M[-3M A3M A9M A5M] 20M[A2M -18M]",
    ),
    Example("search", "x=20M@A -x y=4M@B", "r=40M 20M[-20M] 20M[A4M -16M]"),
    Example("search", "x=20M@A -x y=4M@B z=4M@A", "r=40M 20M[A4M -16M] 20M[A4M -16M]"),
    Example("search", "x=30M -x y=5M", "r=50M 30M[-30M] 20M[A5M -15M]", conf=SPLIT),
    Example("search", "x=30M -x y=11M z=10M", "r=52M 30M[-30M] 12M[A12M] 10M[A10M]", conf=SPLIT),
    Example("search", "x=30M -x y=10M+1", "r=42M 30M[-30M] 12M[A10M+512 -]", conf=SPLIT),
    Example("search", "x=60M -x y=40M", "r=100M 60M[-60M] 40M[A40M]", conf=SPLIT),
    Example("search", "x=58M -x y=40M", "a=58M q=40M r=58M 58M[A58M]", conf=SPLIT),
    Example("search", "x=19M+1", "a=20M r=20M oversize_segments=1 20M[A20M]", conf=SPLIT),
    Example("search", "x=60M -x conf:max_split_size_mb:30 y=20M", "r=80M 60M[-60M] 20M[A20M]"),
    # ---------------------------------------------------------- the way of a request
    Example(
        "retry",
        "x=40M y=30M -x z=50M",
        "r=80M retries=1 ooms=0 syncs=1 device_allocs=3 device_frees=1 30M[A30M] 50M[A50M]",
        capacity=100,
    ),
    Example("retry", "x=40M y=30M -x z=50M -y -z w=60M", "r=60M retries=2 60M[A60M]", capacity=100),
    Example("retry", "x=40M y=30M -x z=50M -y -z w=60M -w v=110M", "r=0 retries=3 ooms=1 none", capacity=100),
    Example("retry", "limit:50M x=20M+1 -x", "r=22M 22M[-22M]"),
    Example(
        "retry",
        "limit:50M x=40M z=10M -x y=20M w=22M",
        "r=50M retries=1 ooms=1 40M[A20M -20M] 10M[A10M]",
        capacity=100,
    ),
    Example("retry", "x=1 y=20M -x -y z=22M", "r=22M retries=1 22M[A22M]", capacity=24),
    Example("retry", "x=30M@B -x y=40M@A", "r=40M retries=1 40M[A40M]", capacity=60),
    Example("retry", "x=20M y=20M z=20M -x -z w=30M", "r=50M retries=1 20M[A20M] 30M[A30M]", capacity=60),
    Example(
        "retry",
        "x=20M y=20M z=20M -x -y -z a=3M c=17M b=3M e=17M d=3M -c -e w=30M",
        "r=60M ooms=1 20M[A3M -17M] 20M[A3M -17M] 20M[A3M -17M]",
        capacity=60,
    ),
    # ------------------------------------------------------ freeing, other streams
    Example("streams", "x=4M x~A -x", "a=0 active=4M q=4M i=16M 20M[P4M -16M]"),
    Example("streams", "x=4M x~A -x y=4M", "20M[P4M A4M -12M]"),
    Example("streams", "x=4M x~A -x y=4M sync z=4M", "20M[A4M A4M -12M]"),
    Example("streams", "x=4M x~A -x empty", "r=0 none"),
    Example("streams", "x=60M x~A -x y=60M", "r=60M retries=1 syncs=1 60M[A60M]", capacity=100),
    Example("streams", "x=3M y=4M -x -y", "i=0 20M[-20M]"),
    # --------------------------------------------------------- garbage collection
    Example("collection", "x=10M y=12M -x -y", "r=22M 10M[-10M] 12M[-12M]", conf="garbage_collection_threshold:0.01"),
    Example(
        "collection",
        "limit:150M a=10M b=12M c=14M d=16M -a -b -c -d e=30M f=16M -f f=16M -f g=20M",
        "r=66M 16M[-16M] 30M[A30M] 20M[A20M]",
        conf="garbage_collection_threshold:0.5",
        capacity=200,
    ),
    Example(
        "collection",
        "limit:150M a=10M b=12M c=14M d=16M -a -b -c -d e=30M f=16M -f f=16M -f g=20M h=22M",
        "r=88M 16M[-16M] 30M[A30M] 20M[A20M] 22M[A22M]",
        conf="garbage_collection_threshold:0.5",
        capacity=200,
    ),
    Example(
        "collection",
        "limit:500M a=20M b=20M c=20M d=20M e=20M f=20M -a -c -e g=30M",
        "r=90M 20M[A20M] 20M[A20M] 20M[A20M] 30M[A30M]",
        conf="garbage_collection_threshold:0.2",
    ),
    # ------------------------------------------------- release of oversize blocks
    Example(
        "oversize",
        "a=30M b=24M c=22M d=10M -a -b -c x=15M",
        "retries=0 r=80M 30M[-30M] 24M[-24M] 10M[A10M] 16M[A16M]",
        conf=SPLIT,
        capacity=100,
    ),
    Example(
        "oversize",
        "a=30M b=24M c=22M d=10M -a -b -c x=15M y=38M",
        "retries=0 r=64M 38M[A38M] 10M[A10M] 16M[A16M]",
        conf=SPLIT,
        capacity=100,
    ),
    Example(
        "oversize",
        "a=30M b=24M c=22M d=10M -a -b -c -d x=50M",
        "retries=0 r=82M 50M[A50M] 22M[-22M] 10M[-10M]",
        conf=SPLIT,
        capacity=100,
    ),
    # ---------------------------------------------------- empty_cache, statistics
    Example("statistics", "x=1 y=20M -y empty", "r=2M segments=1 2M[A512 -]"),
    Example("statistics", "x=4M y=6M -x resetpeak", "peak_a=6M peak_r=20M"),
    Example("statistics", "x=4M y=6M -x resetpeak z=2M -z", "peak_a=8M"),
    Example(
        "statistics",
        "w1=16M w2=16M w3=16M w4=16M a1=24M+300 a2=24M+300 a3=24M+300 a4=24M+300",
        "a=167774208 r=168M",
    ),
    Example(
        "statistics",
        "w1=16M w2=16M w3=16M w4=16M a1=24M+300 a2=24M+300 a3=24M+300 a4=24M+300 "
        "g4=16M d4=24M+300 -a4 g3=16M d3=24M+300 -a3 -d4 g2=16M d2=24M+300 -a2 -d3 g1=16M d1=24M+300 -a1 -d2 -d1",
        "a=128M r=236M peak_a=226494976 peak_r=236M",
    ),
    # ----------------------------------------------------------------- the limit
    Example("limit", "limit:50M x=40M y=10M", "r=60M ooms=0 x60M[A40M A10M -10M]", conf=EXPAND),
    Example("limit", "limit:50M x=40M y=9M", "r=40M ooms=1 x40M[A40M]", conf=EXPAND),
    Example("limit", "limit:50M x=40M y=5M", "r=40M ooms=1 x40M[A40M]", conf=EXPAND),
    Example("limit", "limit:100M x=65M y=30M", "r=80M ooms=1 x80M[A65M -15M]", conf=EXPAND),
    # ------------------------------------------------------- expandable segments
    Example("expandable", "a=3M", "r=20M i=0 segments=0 x20M[A3M -17M]", conf=EXPAND),
    Example("expandable", "a=3M b=30M", "r=40M x40M[A3M A30M -7M]", conf=EXPAND),
    Example("expandable", "a=3M b=30M c=5M", "r=40M x40M[A3M A30M A5M -2M]", conf=EXPAND),
    Example("expandable", "a=3M b=30M c=5M -b d=6M empty", "r=40M x40M[A3M A6M -24M A5M -2M]", conf=EXPAND),
    Example("expandable", "a=3M b=30M c=5M -b d=6M -a -c -d", "r=40M x40M[-40M]", conf=EXPAND),
    Example("expandable", "a=3M b=30M c=5M -b d=6M -a -c -d empty", "r=0 device_frees=1 none", conf=EXPAND),
    Example("expandable", "a=10M b=30M c=10M", "r=60M x60M[A10M A30M A10M -10M]", conf=EXPAND),
    Example("expandable", "a=10M b=30M c=10M -b empty", "r=40M x20M[A10M -10M] x20M[A10M -10M]", conf=EXPAND),
    Example("expandable", "a=20M b=20M+1", "r=60M x60M[A20M A20M+512 -]", conf=EXPAND),
    Example("expandable", "a=60M b=5M -a empty", "r=20M x20M[A5M -15M]", conf=EXPAND),
    Example("expandable", "a=60M b=5M -a empty c=25M", "r=60M x40M[A25M -15M] x20M[A5M -15M]", conf=EXPAND),
    Example("expandable", "a=60M b=5M -a empty c=25M d=50M", "r=100M x40M[A25M -15M] x60M[A5M A50M -5M]", conf=EXPAND),
    Example("expandable", "a=1000 b=1M c=1M", "r=4M x4M[A1024 A1M A1M -]", conf=EXPAND),
    Example("expandable", "a=1000 b=1M c=1M -a -b empty", "r=4M x4M[-1M+1024 A1M -]", conf=EXPAND),
    Example("expandable", "a=19M+512", "r=20M x20M[A19M+512 -1048064]", conf=EXPAND),
    Example("expandable", "a=5M", "r=40M x40M[A5M -35M]", conf=f"{EXPAND},large_segment_size_mb:40"),
    Example("expandable", "a=1000", "r=2M x2M[A1024 -]", conf=f"{EXPAND},large_segment_size_mb:40"),
    Example("expandable", "a=70M b=19M -a c=75M", "r=40M ooms=1 x40M[-10M A19M -11M]", conf=EXPAND, capacity=100),
    Example("expandable", "a=70M b=19M -a c=75M d=50M", "r=100M x100M[A50M -20M A19M -11M]", conf=EXPAND, capacity=100),
    Example("expandable", "a=80M -a b=5M", "r=80M x80M[A5M -75M]", conf=f"{EXPAND},{SPLIT}"),
    Example("expandable", f"x=30M -x conf:{EXPAND} y=29M+512K", "r=30M 30M[A29M+512K -512K]"),
    # ------------------------------------------------------------- private pools
    Example("pools", "pool:p a=3M b=1000 poolend c=3M", "r=42M 20M[A3M -17M] 2M[A1024 -] 20M[A3M -17M]"),
    Example(
        "pools",
        "pool:p a=3M b=1000 poolend c=3M -a empty d=4M",
        "r=42M 20M[-20M] 2M[A1024 -] 20M[A3M A4M -13M]",
    ),
    Example("pools", "pool:p a=3M b=1000 poolend c=3M -a -b drop:p", "r=20M 20M[A3M -17M]"),
    Example(
        "pools",
        "pool:p!use_on_oom a=50M -a poolend b=30M -b c=40M",
        "retries=0 syncs=0 r=80M 50M[A40M -10M] 30M[-30M]",
        capacity=100,
    ),
    Example("pools", "pool:p!no_split a=3M b=3M poolend", "a=40M q=6M 20M[A20M] 20M[A20M]"),
]
