"""`peakmem run --device cpu` with a CUDA build: libraries for a GPU are not loaded, and counted all the same."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.e2e.conftest import run_peakmem

pytestmark = pytest.mark.torch

MIB = 2**20

SCRIPT = """
import gc
import torch
maps = open("/proc/self/maps").read()
real = [line.split()[-1] for line in maps.splitlines() if "/nvidia/" in line and "libcublasLt.so" in line]
assert not real, real
assert gc.get_threshold()[0] > 10_000, "imports first"
model = torch.nn.Linear(1000, 1000)
assert gc.get_threshold() == THRESHOLD
optimizer = torch.optim.Adam(model.parameters())
for _ in range(3):
    model(torch.randn(64, 1000)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
EXIT
"""
RESIDENT = """
import torch
print(next(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith("VmRSS:")))
"""
THRESHOLD = "import gc; print(gc.get_threshold())"


def said(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture(scope="module")
def cuda_build() -> None:
    if said("import torch; print(torch.version.cuda)") == "None":
        pytest.skip("a build for CPUs")
    if said("import glob, nvidia; print(len(glob.glob(list(nvidia.__path__)[0] + '/*/lib/libcublasLt.so.*')))") != "1":
        pytest.skip("CUDA's libraries are not installed as packages")


def test_they_are_not_loaded_and_are_counted(script, cuda_build) -> None:
    path = script(SCRIPT.replace("EXIT", "").replace("THRESHOLD", said(THRESHOLD)))
    done = run_peakmem("run", "--device", "cpu", "--steps", "all", "--json", "-", path)
    assert done.code == 0, done.out + done.err
    libraries = next(part["bytes"] for part in done.json["host"]["parts"] if part["name"] == "libraries")
    assert libraries == pytest.approx(int(said(RESIDENT)), rel=0.02)
    assert done.json["own_peak"] < 420 * MIB < libraries


def test_the_exit_code_of_a_script_is_its_own(script, cuda_build) -> None:
    path = script(SCRIPT.replace("EXIT", "import sys; sys.exit(3)").replace("THRESHOLD", said(THRESHOLD)))
    done = run_peakmem("run", "--device", "cpu", "--steps", "all", path)
    assert done.code == 3, done.err
    assert "the command ended with exit code 3" in done.out


def test_workers_that_are_begun_anew_have_the_real_ones(script, cuda_build) -> None:
    done = run_peakmem(
        "run", "--device", "cpu", "--steps", "all",
        script("""
import multiprocessing
import torch

def work(queue):
    maps = open("/proc/self/maps").read()
    queue.put([line for line in maps.splitlines() if "/nvidia/" in line and "libcublasLt.so" in line])

if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=work, args=(queue,))
    process.start()
    assert queue.get(timeout=60), "the worker's memory is measured"
    process.join()
    w = torch.nn.Parameter(torch.zeros(1000))
    torch.optim.SGD([w], 0.1).step()
"""),
    )  # fmt: skip
    assert done.code == 0, done.out + done.err
