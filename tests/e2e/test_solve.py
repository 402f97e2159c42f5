"""`peakmem solve`: the answer fits, the next value does not."""

import os
import signal
import subprocess
import sys
import time

import pytest

from tests.e2e.conftest import EXAMPLES, run_peakmem

pytestmark = pytest.mark.torch

HOLDS = """
import os, sys, torch
size = int(os.environ.get("SIZE") or sys.argv[1])
if size > 4000:
    raise SystemExit("too large a number")
weight = torch.nn.Parameter(torch.zeros(1, device="cuda"))
optimizer = torch.optim.SGD([weight], lr=1.0)
for _ in range(4):
    held = torch.empty(size * 2**20, dtype=torch.uint8, device="cuda")
    weight.sum().backward()
    optimizer.step()
    del held
"""
"""Holds so many MiB in each step."""


def solve(*words, **more):
    done = run_peakmem("solve", "--json", "-", *words, timeout=1200, **more)
    return done, (done.json["results"][0] if done.out else None)


def attempt(solved, value):
    return next(a for a in solved["attempts"] if a["value"] == value)


def test_the_answer_is_exact_where_it_is_known(script):
    # 1 GiB less 100 MiB of context leaves 924 MiB: 2 MiB for the small blocks, the rest for one even number of MiB.
    done, solved = solve(
        "--memory", "1GiB", "--context", "100MiB", "--vary", "size=1..4000", "--", script(HOLDS), "{size}"
    )
    assert done.code == 0, done.err
    assert (solved["largest"], solved["following"]) == (922, 923)
    assert attempt(solved, 922)["fits"] and not attempt(solved, 923)["fits"]
    assert attempt(solved, 923)["oom"]["requested"] == 924 * 2**20
    assert solved["runs"] <= 10


def test_an_environment_variable_and_powers_of_two(script):
    done, solved = solve(
        "--memory", "1GiB", "--context", "100MiB", "--vary", "env:SIZE=1..2048:powers", "--", script(HOLDS)
    )
    assert done.code == 0, done.err
    assert (solved["largest"], solved["following"]) == (512, 1024)


def test_a_script_that_fails_beyond_a_value_bounds_the_answer(script):
    done, solved = solve("--memory", "80GiB", "--vary", "size=1000..6000:1000", "--", script(HOLDS), "{size}")
    assert (solved["largest"], solved["following"]) == (4000, 5000)
    assert "the script" in done.err


def test_nothing_fits(script):
    done, solved = solve(
        "--memory", "1GiB", "--context", "100MiB", "--vary", "size=1000..2000", "--", script(HOLDS), "{size}"
    )
    assert (done.code, solved["largest"]) == (1, None)
    assert solved["wanted"]["peak"]["reserved"] == 1002 * 2**20


def test_an_interruption_says_what_is_known(script, tmp_path):
    slow = script("import time\n" + HOLDS + "\ntime.sleep(2)")
    process = subprocess.Popen(
        [sys.executable, "-m", "peakmem", "solve", "--steps", "all", "--memory", "1GiB", "--vary", "size=1..4000",
         "--json", str(tmp_path / "out.json"), "--", str(slow), "{size}"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=dict(os.environ),
    )  # fmt: skip
    time.sleep(5)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "interrupted" in out and "Traceback" not in err


def test_a_model_by_name():
    done, solved = solve("--memory", "2GiB", "--vary", "batch=1..256", "torchvision:resnet18", "--optimizer", "sgd")
    assert done.code == 0, done.err
    best = solved["largest"]
    assert attempt(solved, best)["fits"] and not attempt(solved, best + 1)["fits"]


OTHER_PYTHONS = list(filter(None, os.environ.get("PEAKMEM_OTHER_PYTHONS", "").split(":")))


@pytest.mark.slow
@pytest.mark.parametrize("python", [sys.executable, *OTHER_PYTHONS])
def test_a_3d_convolution_falls_off_its_cliff_at_362(python):
    """Its input crosses 2^31 elements there (pytorch issue 95024): the unfolded copy takes 64*27*362*370*251*2 B.

    From cuDNN 9.3 on PyTorch leaves such convolutions to cuDNN (2.14.1, aten/src/ATen/native/Convolution.cpp).
    """
    version = "import torch; print(torch.backends.cudnn.version())"
    cudnn = int(subprocess.run([python, "-c", version], capture_output=True, text=True, check=True).stdout)
    script = "tests/e2e/scripts/conv3d_cliff.py"
    done, solved = solve("--gpu", "a100-80", "--vary", "side=355..368", "--", python, script, "{side}")
    assert done.code == 0, done.err
    if cudnn >= 90300:
        assert (solved["largest"], solved["following"], solved["bends"]) == (368, None, [])
        return
    assert (solved["largest"], solved["following"]) == (361, 362)
    assert attempt(solved, 362)["oom"]["requested"] / 2**30 == pytest.approx(108.2, abs=0.1)
    assert solved["bends"][-1]["role"] == "workspace"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("vary", "words"),
    [
        ("batch=1..512", ["resnet50.py", "--batch", "{batch}"]),
        ("tokens=64..16384:64", ["gpt2.py", "--tokens", "{tokens}"]),
        ("width=4..512:4", ["unet3d.py", "--side", "96", "--width", "{width}"]),
    ],
)
def test_the_answer_fits_and_the_next_does_not(vary, words):
    done, solved = solve("--memory", "24GiB", "--vary", vary, "--", EXAMPLES / words[0], *words[1:])
    assert done.code == 0, done.err
    name = vary.partition("=")[0]
    codes = []
    for value in (solved["largest"], solved["following"]):
        if value is not None:
            filled = [word.replace(f"{{{name}}}", str(value)) for word in words[1:]]
            codes.append(
                run_peakmem("run", "--no-range", "--memory", "24GiB", EXAMPLES / words[0], *filled, timeout=600).code
            )
    assert codes == [0, 1][: len(codes)]


@pytest.mark.slow
def test_the_smallest_card():
    done = run_peakmem("solve", "--smallest-card", "--json", "-", "--", EXAMPLES / "gpt2.py", timeout=1200)
    assert done.code == 0, done.err
    [found] = done.json["results"]
    smallest = found["smallest"]
    smaller = [card for card in found["tried"] if card["total"] < smallest["total"]]
    assert smallest["attempt"]["fits"] and smaller and not any(card["attempt"]["fits"] for card in smaller)


UNET = """
import torch
from torch import nn

def block(inputs, outputs):
    layers = [nn.Conv3d(inputs, outputs, 3, padding=1), nn.BatchNorm3d(outputs), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers, nn.Conv3d(outputs, outputs, 3, padding=1), nn.BatchNorm3d(outputs), nn.ReLU())

class UNet3d(nn.Module):
    def __init__(self, widths):
        super().__init__()
        self.down = nn.ModuleList(block(a, b) for a, b in zip((1, *widths[:-1]), widths))
        self.up = nn.ModuleList(block(a + b, b) for a, b in zip(widths[:0:-1], widths[-2::-1]))
        self.widen, self.pool, self.head = nn.Upsample(scale_factor=2), nn.MaxPool3d(2), nn.Conv3d(widths[0], 3, 1)
    def forward(self, x):
        skips = []
        for level in self.down[:-1]:
            skips.append(level(x))
            x = self.pool(skips[-1])
        x = self.down[-1](x)
        for level in self.up:
            x = level(torch.cat([self.widen(x), skips.pop()], dim=1))
        return self.head(x)

def build(depth=4, width=32):
    return UNet3d([width * 2**level for level in range(depth)])
"""


def test_the_depth_of_a_unet(script, tmp_path):
    path = script(UNET, "nets.py")
    words = (f"{path}:build", "--batch", "2", "--input", "1x128x128x128", "--amp", "bf16", "--optimizer", "adam")
    done, solved = solve("--memory", "24GiB", "--vary", "depth=2..8", *words)
    assert done.code == 0, done.err
    largest, following = solved["largest"], solved["following"]
    assert following == largest + 1 and 2 < largest < 8
    for depth, code in ((largest, 0), (following, 1)):
        told = run_peakmem("predict", *words, "--no-range", "--memory", "24GiB", "--argument", f"depth={depth}")
        assert told.code == code, told.out + told.err
    assert solved["seconds"] < 120


def test_a_function_has_no_such_argument(script):
    path = script(UNET, "nets.py")
    done, _ = solve(
        "--memory", "24GiB", "--vary", "dept=2..8", f"{path}:build", "--batch", "1", "--input", "1x32x32x32"
    )
    assert done.code == 2
    assert "build() takes no argument 'dept'" in done.err and "did you mean depth?" in done.err
