"""Host memory of real scripts on the virtual GPU: situations that people reported, in a size that any machine has.

The addresses name the reports that a case was reduced from; the right answers are those established there.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from peakmem.vgpu.build import ensure_library
from peakmem.vgpu.catalogue import find_device
from peakmem.vgpu.launch import Options, environment
from peakmem.vgpu.probe import probe
from tests.e2e.conftest import run_peakmem

pytestmark = pytest.mark.torch

MIB, GIB = 2**20, 2**30
TRAIN = """
model = torch.nn.Linear(1000, 10).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""


def forecast(folder: Path, code: str, *options: str, command: tuple[str, ...] = (), **variables: str) -> dict[str, Any]:
    script = folder / "train.py"
    script.write_text("import torch\n" + code)
    done = run_peakmem("run", "--json", "-", *options, "--", *(command or (sys.executable,)), str(script), **variables)
    assert done.code == 0, done.err
    return done.json


def host(folder: Path, code: str, *options: str, **variables: str) -> dict[str, Any]:
    found: dict[str, Any] = forecast(folder, code, *options, **variables)["host"]
    assert found["peak_rss"] == sum(part["bytes"] for part in found["parts"])
    return found


def part(found: dict[str, Any], name: str) -> int:
    return sum(one["bytes"] for one in found["parts"] if one["name"] == name)


# --------------------------------------------------------------------------------------------------- pinned memory

PINNED = TRAIN + "kept = torch.empty(4_347_592_704, dtype=torch.float16, pin_memory=True)\n"
PINNED_BYTES = 2 * 4_347_592_704


def test_a_pinned_tensor_of_8_gib_takes_16(tmp_path: Path) -> None:
    """pytorch/pytorch issue 95823."""
    found = host(tmp_path, PINNED)
    assert found["pinned"] == 16 * GIB
    assert found["pinning"]["requested"] == PINNED_BYTES
    assert found["pinning"]["blocks"] == [[16 * GIB, 1]]
    assert part(found, "pinned") == 16 * GIB
    assert found["peak_rss"] > 16 * GIB
    assert found["node_peak"] == found["peak_rss"]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ("pinned_max_round_threshold_mb:1024", PINNED_BYTES),  # larger ones are not rounded
        ("pinned_max_cached_size_mb:4096", PINNED_BYTES),  # nor those that are not cached
        ("pinned_reserve_segment_size_mb:32", 16 * GIB + 32 * MIB),  # it does not fit there
        ("pinned_reserve_segment_size_mb:16384", 16 * GIB),  # it does
    ],
)
def test_options_of_the_pinned_allocator(tmp_path: Path, settings: str, expected: int) -> None:
    torch = pytest.importorskip("torch")
    if tuple(map(int, torch.__version__.split(".")[:2])) < (2, 10):
        pytest.skip("an option of later versions")
    assert host(tmp_path, PINNED, "--alloc-conf", settings)["pinned"] == expected


def test_pinning_by_registering_takes_the_same(tmp_path: Path) -> None:
    code = TRAIN + "kept = torch.empty(81 * 2**20, dtype=torch.uint8, pin_memory=True)\n"
    plain = host(tmp_path, code)
    registered = host(
        tmp_path, code, "--alloc-conf", "pinned_use_cuda_host_register:True,pinned_num_register_threads:2"
    )
    assert (plain["pinning"]["bytes"], plain["pinning"]["registered"]) == (128 * MIB, 0)
    assert (registered["pinning"]["bytes"], registered["pinning"]["registered"]) == (0, 128 * MIB)
    assert registered["peak_rss"] == pytest.approx(plain["peak_rss"], rel=0.05)


def test_pinned_memory_that_is_written_is_not_counted_twice(tmp_path: Path) -> None:
    code = TRAIN + "kept = torch.{}(256 * 2**20, dtype=torch.uint8, pin_memory=True)\n"
    empty, ones = host(tmp_path, code.format("empty")), host(tmp_path, code.format("ones"))
    assert empty["pinned"] == ones["pinned"] == 256 * MIB
    assert part(ones, "pinned") == 256 * MIB
    assert ones["peak_rss"] == pytest.approx(empty["peak_rss"], abs=24 * MIB)


def test_activations_offloaded_to_pinned_memory(tmp_path: Path) -> None:
    code = """
layers = torch.nn.Sequential(*[torch.nn.Linear(1000, 1000) for _ in range(4)]).cuda()
optimizer = torch.optim.SGD(layers.parameters(), lr=0.1)
for _ in range(4):
    with torch.autograd.graph.save_on_cpu(pin_memory=True):
        loss = layers(torch.randn(3000, 1000, device="cuda")).sum()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""
    found = host(tmp_path, code)
    # Four inputs of 11.4 MiB and weights of 3.8 MiB: 16 and 4 MiB each.
    assert [16 * MIB, 4] in found["pinning"]["blocks"]
    assert found["pinned"] >= 4 * 16 * MIB


# ---------------------------------------------------------------------------------------------- data sets and workers

LOADER = (
    TRAIN
    + """
class Names(torch.utils.data.Dataset):
    def __init__(self):
        self.names = {names}
    def __len__(self):
        return 400_000
    def __getitem__(self, index):
        return torch.full((1000,), float(len(self.names[index])))
for batch in torch.utils.data.DataLoader(Names(), batch_size=64, num_workers=2, prefetch_factor=3):
    model(batch.cuda()).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
)
NAMES = '[f"image_{i:08d}_of_something.jpg" for i in range(400_000)]'


def test_a_data_set_of_objects_is_copied_by_each_worker(tmp_path: Path) -> None:
    """pytorch/pytorch issue 5902: in the limit main + workers x objects; it grows, then levels off."""
    found = host(tmp_path, LOADER.format(names=NAMES))
    (loader,) = found["loaders"]
    size = 400_000 * 80  # a text of 31 characters takes 80 bytes
    assert loader["objects"] == pytest.approx(size, rel=0.05)
    assert loader["growth"] == 2 * loader["objects"]
    (copied,) = (row for row in found["later"] if "copied by 2 workers" in row["name"])
    assert copied["counted"]
    assert "grows while the data set is read for the first time, then levels off" in copied["note"]
    assert found["node_peak"] >= found["tree_rss"] + 2 * size * 0.95


def test_a_data_set_of_arrays_stays_shared(tmp_path: Path) -> None:
    found = host(tmp_path, "import numpy\n" + LOADER.format(names=f"numpy.array({NAMES})"))
    (loader,) = found["loaders"]
    assert loader["objects"] < MIB
    assert loader["buffers"] == 400_000 * 31 * 4
    assert loader["growth"] < 2 * MIB


def test_batches_of_workers_lie_in_shared_memory(tmp_path: Path) -> None:
    found = host(tmp_path, LOADER.format(names=NAMES))
    (loader,) = found["loaders"]
    assert loader["batch"] == 64 * 1000 * 4
    assert loader["shm"] == (2 * 3 + 1) * loader["batch"]
    assert found["shm"] >= loader["shm"]


EACH = (
    TRAIN
    + """
import numpy
class Table(torch.utils.data.Dataset):
    data = None
    def __len__(self):
        return 100_000
    def __getitem__(self, index):
        if self.data is None:
            self.data = numpy.load({path!r}, mmap_mode={mode!r})
        return torch.full((1000,), float(self.data[index % 1000]))
for batch in torch.utils.data.DataLoader(Table(), batch_size=8, num_workers=4):
    model(batch.cuda()).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
)


def test_each_worker_reads_the_whole_table(tmp_path: Path) -> None:
    """jingyaogong/minimind-v pull request 121: 4.1 GB in each of 8 workers, against one copy when it is mapped."""
    numpy = pytest.importorskip("numpy")
    size = 80_000_000
    numpy.save(tmp_path / "table.npy", numpy.ones(size // 8))
    path = str(tmp_path / "table.npy")
    private = host(tmp_path, EACH.format(path=path, mode=None))
    mapped = host(tmp_path, EACH.format(path=path, mode="r"))
    assert private["loaders"][0]["largest_worker"] == pytest.approx(size, abs=24 * MIB)
    assert mapped["loaders"][0]["largest_worker"] < 24 * MIB
    assert private["node_peak"] - mapped["node_peak"] == pytest.approx(4 * size, rel=0.25)


# ------------------------------------------------------------------------------------------------------------ loading

BUILD = """
model = torch.nn.Sequential(*[torch.nn.Linear(2000, 2000) for _ in range(10)])
{load}
model = model.cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.randn(4, 2000, device="cuda")).sum().backward()
optimizer.step()
"""
MODEL_BYTES = 10 * (2000 * 2000 + 2000) * 4


def test_a_state_dict_beside_the_model_takes_the_model_twice(tmp_path: Path) -> None:
    path = str(tmp_path / "model.pt")
    saved = f"torch.save(model.state_dict(), {path!r})"
    alone = host(tmp_path, BUILD.format(load=saved))
    both = host(tmp_path, BUILD.format(load=f"state = torch.load({path!r}); model.load_state_dict(state)"))
    mapped = host(tmp_path, BUILD.format(load=f"model.load_state_dict(torch.load({path!r}, mmap=True), assign=True)"))
    tensors = "objects and tensors"
    assert part(both, tensors) - part(alone, tensors) == pytest.approx(MODEL_BYTES, rel=0.12)
    # A copy to the GPU reads the mapped file; nothing else of it need be resident, and the kernel can drop that.
    (read,) = (row for row in mapped["later"] if row["name"].startswith("pages of mapped files"))
    assert read["bytes"] == pytest.approx(MODEL_BYTES, rel=0.02)
    assert not read["counted"]
    assert part(mapped, tensors) <= part(alone, tensors) + 16 * MIB


RESUMED = """
model = torch.nn.Sequential(*[torch.nn.Linear(1000, 1000, device="cuda") for _ in range(10)])
optimizer = torch.optim.AdamW(model.parameters())
def step():
    model(torch.randn(4, 1000, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
{resume}
for _ in range(3):
    step()
"""
STATES_BYTES = 2 * 10 * (1000 * 1000 + 1000) * 4


def test_a_checkpoint_that_is_loaded_to_the_host_takes_its_states_there(tmp_path: Path) -> None:
    """huggingface/transformers issue 22123: with map_location="cpu" the loaded copy is the host's."""
    path = str(tmp_path / "optimizer.pt")
    forecast(tmp_path, RESUMED.format(resume="") + f"torch.save(optimizer.state_dict(), {path!r})", "--steps", "all")
    load = f"states = torch.load({path!r}, map_location={{where!r}})\noptimizer.load_state_dict(states)"
    anew, on_host, on_gpu = (
        part(host(tmp_path, RESUMED.format(resume=resume)), "objects and tensors")
        for resume in ("", load.format(where="cpu"), load.format(where="cuda"))
    )
    assert on_host - anew == pytest.approx(STATES_BYTES, rel=0.05)
    # Read piece by piece and moved, they leave nothing but holes in the heap: none or many, by how it happens to lie.
    assert anew - MIB < on_gpu < on_host


def test_every_rank_of_a_node_builds_its_own_model(tmp_path: Path) -> None:
    one = host(tmp_path, BUILD.format(load=""))
    eight = host(tmp_path, BUILD.format(load=""), "--ranks-per-node", "8")
    assert eight["ranks"] == 8
    assert eight["node_peak"] == eight["shared"] + 8 * eight["per_rank"]
    assert eight["per_rank"] > MODEL_BYTES
    assert one["node_peak"] == pytest.approx(eight["shared"] + eight["per_rank"], rel=0.05)


def test_ranks_that_the_command_starts_are_counted_together(tmp_path: Path) -> None:
    code = """
import torch.distributed as dist
dist.init_process_group("nccl")
""" + BUILD.format(load="")
    launcher = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "1")
    found = forecast(tmp_path, code, command=launcher)["host"]
    assert found["ranks"] == 1
    # The launcher is a process of its own.
    assert found["tree_rss"] > found["peak_rss"] + 50 * MIB


# ------------------------------------------------------------------------------------------------------------ growing

SUMMED = (
    TRAIN
    + """
total = 0
for _ in range(20):
    loss = model(torch.randn(8, 1000, device="cuda")).sum()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    total += {loss}
"""
)


def test_a_sum_of_losses_keeps_every_graph(tmp_path: Path) -> None:
    """pai4451/ML2021 issue 2: `train_loss += loss` took 64 GB of host memory."""
    assert host(tmp_path, SUMMED.format(loss="loss"))["graph_growth"] > 0
    for harmless in ("loss.item()", "loss.detach()"):
        assert host(tmp_path, SUMMED.format(loss=harmless))["graph_growth"] == 0


# ------------------------------------------------------------------------------------------------------------- asking


def test_a_request_is_all_that_stands_on_standard_output(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import torch\n" + PINNED)
    done = run_peakmem(
        "run", "--format", "slurm", "--margin", "1GiB", "--json", str(tmp_path / "f.json"), "--",
        sys.executable, str(tmp_path / "train.py"),
    )  # fmt: skip
    assert done.code == 0, done.err
    found = json.loads((tmp_path / "f.json").read_text())["host"]
    assert done.out.splitlines()[-1] == f"#SBATCH --mem={-(-(found['node_peak'] + GIB) // MIB)}M"
    assert all(line.startswith("#") for line in done.out.splitlines())
    assert "host memory" in done.err


def test_real_runs_are_measured_and_put_beside_a_forecast(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("import torch\nkept = torch.ones(100 * 2**20, dtype=torch.uint8)\n")
    measured = tmp_path / "measured.json"
    done = run_peakmem("run", "--measure", "--json", str(measured), "--", sys.executable, str(script))
    assert done.code == 0, done.err
    assert "largest process" in done.out
    found = json.loads(measured.read_text())
    assert found["schema"] == "peakmem/measurement/1"
    assert found["peak"]["process"] > 200 * MIB
    (tmp_path / "forecast.json").write_text(
        json.dumps({"schema": "peakmem/forecast/1", "host": {"peak_rss": found["peak"]["process"]}})
    )
    beside = run_peakmem("diff", str(tmp_path / "forecast.json"), str(measured))
    assert beside.code == 0, beside.err
    assert "host memory, largest process" in beside.out
    assert "same" in beside.out


def test_a_real_run_tells_pytorchs_own_counters(tmp_path: Path) -> None:
    """The virtual GPU stands for the real one here: the command is watched by nothing but the counters."""
    card, facts = find_device("a100-80"), probe(sys.executable)
    variables = environment(
        library=ensure_library(facts),
        device=card,
        facts=facts,
        options=Options(capacity=card.total_memory, context=0),
        base=os.environ,
    )
    script = tmp_path / "train.py"
    script.write_text(
        "import torch\nkept = torch.empty(100 * 2**20, dtype=torch.uint8, device='cuda')\ndel kept\n"
        "torch.cuda.reset_peak_memory_stats()\ntorch.cuda.empty_cache()\n"
    )
    target = tmp_path / "measured.json"
    done = run_peakmem("run", "--measure", "--json", str(target), "--", sys.executable, str(script), **variables)
    assert done.code == 0, done.err
    (counters,) = json.loads(target.read_text())["torch"]
    assert counters["allocated"] == counters["reserved"] == 100 * MIB
    assert counters["name"] == card.name
