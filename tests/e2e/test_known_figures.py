"""Watched runs take what the bare allocator takes: watching changes nothing, to the byte."""

from importlib import metadata
from pathlib import Path

import pytest

from tests.e2e.conftest import run_peakmem

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(not metadata.version("torch").startswith("2.14.1"), reason="figures of torch 2.14.1"),
]

CASES = Path(__file__).with_name("training_cases.py")

# Peak allocated and reserved bytes over four steps on a bare virtual device (compute capability 8.0, 108
# multiprocessors, 80 GiB, torch 2.14.1+cu130, cuDNN 9.24 with its own device-less plans), without any watching.
FIGURES = [
    ("mlp --optimizer sgd", 195_696_640, 232_783_872),
    ("mlp --optimizer momentum", 279_779_840, 316_669_952),
    ("mlp --optimizer adam-loop", 489_708_032, 551_550_976),
    ("mlp --optimizer adamw", 439_557_120, 467_664_896),
    ("mlp --optimizer adamw-fused", 363_866_112, 400_556_032),
    ("mlp --amp fp16", 439_558_656, 484_442_112),
    ("encoder", 1_296_655_872, 1_436_549_120),
    ("encoder --amp bf16", 993_884_160, 1_199_570_944),
    ("tinygpt --amp bf16", 955_360_768, 1_130_364_928),
    ("resnet18 --optimizer momentum", 868_878_336, 1_553_989_632),
    ("resnet50 --optimizer momentum", 3_025_206_272, 3_581_935_616),
    ("resnet50 --optimizer momentum --amp bf16", 1_733_641_216, 2_021_654_528),
    ("gpt2", 4_926_797_824, 5_240_782_848),
    ("gpt2 --amp bf16", 4_654_318_080, 5_138_022_400),
    ("gpt2 --amp bf16 --checkpoint", 2_914_324_992, 3_837_788_160),
    ("bert --amp bf16", 2_418_667_520, 2_652_897_280),
    ("bert --amp fp16 --optimizer adamw-fused", 2_418_640_896, 2_556_428_288),
]


@pytest.mark.parametrize(("case", "allocated", "reserved"), FIGURES)
def test_a_watched_run_takes_what_a_bare_one_takes(case, allocated, reserved, tmp_path):
    done = run_peakmem(
        "run", "--gpu", "a100-80", "--steps", "all", "--cudnn", "own", "--no-range", "--json", "-", CASES, *case.split()
    )
    assert done.code == 0, done.err
    peak = done.json["peak"]
    assert (peak["allocated"], peak["reserved"]) == (allocated, reserved)
