"""The stand-ins for the CUDA libraries, met as scripts meet them.

Each test runs a small script with the installed PyTorch on the virtual GPU; PEAKMEM_TEST_PYTHON names another
interpreter whose PyTorch is tried instead of this one's.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from peakmem.vgpu import build, probe
from peakmem.vgpu.catalogue import find_device
from peakmem.vgpu.elf import dynamic_symbols
from peakmem.vgpu.launch import NO_LIMIT, Options, environment

pytestmark = pytest.mark.torch

PYTHON = os.environ.get("PEAKMEM_TEST_PYTHON", sys.executable)
FAMILIES = re.compile(r"(cublas|cusolver|cusparse|cufft|nccl|cudnn)[A-Z]")
LIBRARIES = ("libtorch_cuda.so", "libtorch_cuda_linalg.so", "libtorch_python.so")
SAFE_WITHOUT_A_DEVICE = re.compile(
    r"cudnn(Create|Destroy)\w*Descriptor|cudnnSet\w*(Descriptor\w*|GroupCount|MathType)|cudnnGet(TensorNd|FilterNd)Descriptor"
    r"|cudnnGet(Version|CudartVersion|ErrorString|LastErrorString|Property)|nccl(GetVersion|GetErrorString)"
)
"""Functions that stay the real library's: they only fill descriptors or tell a version."""

START = """
import ctypes, json
import torch
import torch.nn as nn
import torch.nn.functional as F

def a(*shape, **kw):
    return torch.randn(*shape, device="cuda", **kw)

def report():
    library = ctypes.CDLL(None)
    text = ctypes.create_string_buffer(1 << 20)
    library.peakmem_report(text, len(text))
    return json.loads(text.value)
"""


@dataclass(frozen=True)
class Outcome:
    """What a script left: its `result`, and the library's report."""

    result: Any
    report: dict[str, Any]

    def count(self, kind: str, part: str) -> int:
        return sum(n for what, n in self.report.get(kind, {}).items() if part in what)


Runner = Callable[..., Outcome]


@pytest.fixture(scope="module")
def facts() -> probe.TorchFacts:
    if sys.executable == PYTHON and importlib.util.find_spec("torch") is None:
        pytest.skip("no PyTorch")
    return probe.probe(PYTHON)


@pytest.fixture(scope="module")
def library(facts: probe.TorchFacts) -> Path:
    return build.ensure_library(facts)


@pytest.fixture(scope="module")
def run(facts: probe.TorchFacts, library: Path) -> Runner:
    def inner(code: str, *, gpu: str = "A100-SXM4-80GB", **options: Any) -> Outcome:
        extra = options.pop("variables", {})
        env = environment(
            library=library,
            device=find_device(gpu),
            facts=facts,
            options=Options(capacity=NO_LIMIT, **{"addresses": "up", **options}),
        )
        script = f"{START}\nresult = None\n{code}\nprint(json.dumps([result, report()]))"
        done = subprocess.run(
            [str(facts.python), "-W", "ignore", "-c", script],
            env=env | extra,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        return Outcome(*json.loads(done.stdout.splitlines()[-1]))

    return inner


def version_of(facts: probe.TorchFacts) -> tuple[int, ...]:
    return tuple(int(n) for n in facts.version.split("+")[0].split(".")[:2])


# --------------------------------------------------------------- symbols ---


def test_every_import_of_torch_is_met(facts: probe.TorchFacts, library: Path) -> None:
    exported = set(dynamic_symbols(library).defined)
    imported = {
        name
        for file in LIBRARIES
        if (path := facts.folder / "lib" / file).exists()
        for name in dynamic_symbols(path).undefined
        if FAMILIES.match(name)
    }
    assert len(imported) > 300
    missing = {name for name in imported - exported if not SAFE_WITHOUT_A_DEVICE.fullmatch(name)}
    assert missing == set()


def test_the_list_of_symbols_is_sorted_and_has_no_double() -> None:
    lines = (build.NATIVE / "symbols.def").read_text().splitlines()
    names = [m[1] for line in lines if (m := re.match(r"(?:LAUNCH|UNSUPPORTED)\((\w+)", line))]
    assert names == sorted(set(names))
    assert len(names) > 1500


# ----------------------------------------------------------------- cuDNN ---

RESNET18 = """
import torchvision
model = torchvision.models.resnet18().cuda()
optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
x, y = a(32, 3, 224, 224), torch.zeros(32, dtype=torch.long, device="cuda")
for _ in range(3):
    F.cross_entropy(model(x), y).backward()
    optimizer.step()
    optimizer.zero_grad()
result = [torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved(), torch.backends.cudnn.version()]
"""


@pytest.fixture
def device_less(facts: probe.TorchFacts) -> None:
    cudnn = facts.cudnn or "0"
    if tuple(int(n) for n in cudnn.split(".")[:2]) < (9, 8):
        pytest.skip(f"cuDNN {cudnn} does not plan without a device")
    pytest.importorskip("torchvision")


@pytest.mark.usefixtures("device_less")
@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "allocated", "reserved"), [("own", 868_878_336, 1_553_989_632), ("least", 847_447_552, 1_117_782_016)]
)
def test_resnet18_has_the_known_peaks(
    run: Runner, facts: probe.TorchFacts, mode: str, allocated: int, reserved: int
) -> None:
    """Figures of PyTorch 2.14.1 with cuDNN 9.24 for an A100, first taken with an independent build."""
    if version_of(facts) != (2, 14):
        pytest.skip("the figures are those of PyTorch 2.14")
    outcome = run(RESNET18, cudnn=mode)
    assert outcome.result[:2] == [allocated, reserved]
    assert outcome.count("plans", "convolution") == 32
    assert outcome.count("substitute", "") == 0


@pytest.mark.usefixtures("device_less")
def test_modes_give_a_range_and_say_which_plans_followed_the_rule(run: Runner, tmp_path: Path) -> None:
    code = """
net = nn.Sequential(nn.Conv2d(64, 128, 1), nn.Conv2d(128, 128, 3, padding=1)).cuda()
net(a(16, 64, 56, 56, requires_grad=True)).sum().backward()
result = torch.cuda.max_memory_allocated()
"""
    log = tmp_path / "plans"
    outcomes = {
        mode: run(code, cudnn=mode, cudnn_log=log if mode == "likely" else None) for mode in ("least", "likely", "own")
    }
    assert outcomes["least"].result <= outcomes["likely"].result <= outcomes["own"].result
    assert outcomes["least"].result < outcomes["own"].result
    likely = outcomes["likely"]
    assert likely.count("plans", "rule for 1x1") == 3
    assert likely.count("plans", "cuDNN's own plan") == 3
    assert likely.count("substitute", "1x1") == 3
    lines = log.read_text().splitlines()
    assert len(lines) == 6
    assert sum("taken=0" in line and "w=128x64x1x1" in line for line in lines) == 3


def test_the_substitute_builds_plans_and_counts_them(run: Runner) -> None:
    code = """
torch.backends.cudnn.benchmark = False
conv = nn.Conv2d(64, 64, 3, padding=1).cuda()
x = a(8, 64, 56, 56, requires_grad=True)
before = torch.cuda.memory_allocated()
torch.cuda.reset_peak_memory_stats()
y = conv(x)
result = torch.cuda.max_memory_allocated() - before - y.numel() * 4
y.sum().backward()
"""
    outcome = run(code, variables={"PEAKMEM_VGPU_CUDNN_SUBSTITUTE": "1"})
    copies = 8 * 64 * 56 * 56 * 4 + 64 * 64 * 3 * 3 * 4 + 16  # of input and filter, in NHWC
    assert outcome.result == -(-copies // 512) * 512
    assert outcome.count("substitute", "can't plan without a device") == 3
    assert outcome.count("plans", "plan of the substitute") == 3


def test_benchmark_mode_and_every_kind_of_convolution_run(run: Runner) -> None:
    outcome = run("""
torch.backends.cudnn.benchmark = True
nets = [(nn.Conv1d(8, 16, 3), (4, 8, 50)), (nn.Conv2d(8, 16, 3, stride=2), (4, 8, 20, 20)),
        (nn.Conv3d(8, 16, 3), (2, 8, 9, 9, 9)),
        (nn.ConvTranspose2d(8, 16, 4, 2, 1), (4, 8, 9, 9)), (nn.Conv2d(8, 16, 3, groups=4, dilation=2), (4, 8, 20, 20))]
for net, shape in nets:
    net.cuda()(a(*shape, requires_grad=True)).sum().backward()
net = nn.Conv2d(8, 16, 3).cuda().half().to(memory_format=torch.channels_last)
net(a(4, 8, 20, 20).half().to(memory_format=torch.channels_last).requires_grad_()).sum().backward()
""")
    assert outcome.count("plans", "convolution") >= 15
    assert outcome.count("unsupported", "") == 0


def test_channels_last_batch_norm_has_a_workspace(run: Runner) -> None:
    code = """
def extra(bn, x):
    y = bn(x)
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    y = bn(x)
    return torch.cuda.max_memory_allocated() - before
bn = nn.BatchNorm2d(64).cuda()
x = a(32, 64, 56, 56)
result = extra(bn, x.to(memory_format=torch.channels_last)) - extra(bn, x)
"""
    outcome = run(code)
    asked = outcome.count("plans", "batch norm, channels_last")
    assert outcome.count("estimate", "batch norm workspace, NCHW") == 2
    if asked:
        assert 0 < outcome.result <= 2**20
    else:
        assert outcome.count("estimate", "batch norm workspace, channels_last") == 2


@pytest.mark.parametrize(("cell", "kept"), [("LSTM", 5), ("GRU", 6), ("RNN", 1)])
def test_recurrent_layers_keep_the_reserve_that_is_stated(run: Runner, cell: str, kept: int) -> None:
    steps, batch, width, layers = 25, 16, 128, 3
    code = f"""
net = nn.{cell}(64, {width}, {layers}).cuda()
x = a({steps}, {batch}, 64)
net(x)
before = torch.cuda.memory_allocated()
out, state = net(x)
held = torch.cuda.memory_allocated() - before
states = 2 * sum(t.numel() * 4 for t in (state if isinstance(state, tuple) else (state,)))  # initial and last
result = held - out.numel() * 4 - states
(out.sum()).backward()
"""
    outcome = run(code)
    reserve = steps * batch * width * 4 * (kept * layers + layers - 1)
    assert reserve <= outcome.result <= reserve + 4096
    assert outcome.count("estimate", "RNN reserve") == 2


def test_recurrent_layers_of_every_make_run(run: Runner) -> None:
    outcome = run("""
nets = [nn.LSTM(32, 64, 2, dropout=0.1, bidirectional=True, batch_first=True),
        nn.LSTM(32, 64, proj_size=16), nn.GRU(32, 64, bias=False)]
for net in nets:
    net.cuda()(a(8, 20, 32))[0].sum().backward()
packed = nn.utils.rnn.pack_padded_sequence(a(20, 3, 32), [20, 10, 5])
nn.LSTM(32, 64).cuda()(packed)
""")
    assert outcome.count("unsupported", "") == 0


# ---------------------------------------------- linear algebra, FFT, sparse ---

SPARSE = """
def csr(n=64):
    return torch.sparse_csr_tensor(torch.arange(n + 1), torch.zeros(n, dtype=torch.int64), torch.randn(n), (n, n),
                                   device="cuda", check_invariants=False)

def coo(n=64):
    return torch.sparse_coo_tensor(torch.randint(0, n, (2, 200)), torch.randn(200), (n, n), device="cuda")

"""


def test_orthogonal_initialiser_runs_and_its_buffers_are_stated(run: Runner) -> None:
    outcome = run("""
w = torch.empty(512, 256, device="cuda")
nn.init.orthogonal_(w)
result = list(w.shape)
""")
    assert outcome.result == [512, 256]
    assert outcome.count("estimate", "geqrf") >= 1
    assert outcome.count("estimate", "orgqr") >= 1


def test_linear_algebra_runs(run: Runner) -> None:
    outcome = run("""
import torch.linalg as la
m, tall, many = a(96, 96), a(128, 64), a(8, 48, 48)
for x in (m, tall, many):
    la.qr(x), la.svd(x), la.svdvals(x), la.pinv(x), la.matrix_norm(x, "nuc")
for x in (m, many):
    la.eigh(x), la.eigvalsh(x), la.cholesky(x), la.cholesky_ex(x), la.inv(x), la.det(x), la.slogdet(x)
    la.solve(x, x), la.lu(x), la.lu_factor(x), la.ldl_factor(x), la.solve_triangular(x, x, upper=True)
    la.matrix_rank(x)
    torch.cholesky_inverse(x), la.lu_solve(*la.lu_factor(x), x), la.ldl_solve(*la.ldl_factor(x), x)
for driver in ("gesvd", "gesvdj", "gesvda"):
    la.svd(tall, driver=driver)
la.matrix_exp(m), la.lstsq(tall, a(128, 2)), la.lstsq(a(4, 64, 32), a(4, 64, 2)), torch.ormqr(tall, a(64), a(128, 5))
for f in (la.svdvals, la.inv, la.cholesky, lambda x: la.qr(x)[1], lambda x: la.slogdet(x)[1]):
    f(a(32, 32, requires_grad=True)).sum().backward()
for dtype in (torch.float64, torch.complex64):
    la.qr(m.to(dtype)), la.svd(m.to(dtype)), la.eigh(m.to(dtype)), la.cholesky(m.to(dtype)), la.inv(m.to(dtype))
result = "done"
""")
    assert outcome.result == "done"
    assert outcome.count("unsupported", "") == 0
    assert outcome.count("estimate", "cuSOLVER") > 20


def test_eigenvalues_of_a_general_matrix(run: Runner) -> None:
    """`linalg.eig` first reads whether its input is finite, then whether there was an error."""
    outcome = run("""
yes, no = 1, 0
ctypes.CDLL(None).peakmem_queue_reads((ctypes.c_int64 * 2)(yes, no), 2)
result = list(torch.linalg.eig(a(64, 64))[0].shape)
""")
    assert outcome.result == [64]


def test_fourier_transforms_run_with_a_work_area(run: Runner) -> None:
    outcome = run("""
x = a(64, 1024)
torch.fft.fft(x)
torch.cuda.reset_peak_memory_stats()
before = torch.cuda.memory_allocated()
y = torch.fft.fft(x.to(torch.complex64))
result = torch.cuda.max_memory_allocated() - before
torch.fft.irfft(torch.fft.rfft(x)), torch.fft.fft2(a(4, 3, 64, 64)), torch.fft.irfft2(torch.fft.rfft2(a(4, 3, 64, 64)))
torch.fft.fftn(a(4, 8, 8, 8, 8)), torch.fft.fft(a(4, 1009))
torch.fft.rfft2(a(4, 3, 64, 64, requires_grad=True)).abs().sum().backward()
torch.istft(torch.stft(a(2, 16000), 512, return_complex=True, window=torch.hann_window(512, device="cuda")), 512,
            window=torch.ones(512, device="cuda"))
""")
    assert outcome.result == 3 * 64 * 1024 * 8  # the input made complex, the output, the work area
    assert outcome.count("estimate", "cuFFT") >= 8
    assert outcome.count("unsupported", "") == 0


def test_sparse_products_run(run: Runner) -> None:
    outcome = run(
        SPARSE
        + """
csr() @ a(64, 8), torch.mv(csr(), a(64)), torch.addmm(a(64, 8), csr(), a(64, 8)), torch.sparse.mm(csr(), csr())
torch.sparse.mm(coo(), a(64, 8)), torch.sparse.mm(coo(), coo()), csr() + csr(), coo().coalesce()
torch.sparse.sampled_addmm(csr(), a(64, 8), a(8, 64)), torch.triangular_solve(a(64, 2), csr())
torch.sparse.mm(coo().requires_grad_(), a(64, 8, requires_grad=True)).sum().backward()
torch.sparse_bsr_tensor(torch.arange(5), torch.zeros(4, dtype=torch.int64), torch.randn(4, 16, 16), (64, 64),
                        device="cuda", check_invariants=False) @ a(64, 8)
result = "done"
"""
    )
    assert outcome.result == "done"
    assert outcome.count("estimate", "cuSPARSE") > 5
    assert outcome.count("unsupported", "") == 0


# ------------------------------------------------------- cuBLAS and NCCL ---


def test_matrix_products_of_every_kind_run(run: Runner) -> None:
    outcome = run(
        """
for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.complex64):
    x = torch.zeros(64, 64, dtype=dtype, device="cuda")
    x @ x, torch.bmm(x[None].expand(4, 64, 64), x[None].expand(4, 64, 64))
    torch.addmm(x[0], x, x), x @ x[0], torch.dot(x[0], x[0])
F.gelu(F.linear(a(64, 64), a(64, 64), a(64)))
torch._int_mm(*2 * [torch.zeros(64, 64, dtype=torch.int8, device="cuda")])
one = torch.ones((), device="cuda")
f8 = torch.zeros(64, 64, device="cuda").to(torch.float8_e4m3fn)
torch._scaled_mm(f8, f8.t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16)
""",
        gpu="H100 SXM",
    )
    assert outcome.count("unsupported", "") == 0


def test_one_rank_of_nccl_trains(run: Runner) -> None:
    outcome = run("""
import os
import torch.distributed as dist
os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="0", RANK="0", WORLD_SIZE="1")
dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1, device_id=torch.device("cuda", 0))
dist.all_reduce(a(8))
dist.barrier()
dist.destroy_process_group()
result = "done"
""")
    assert outcome.result == "done"
    assert outcome.count("substitute", "NCCL communicator of 1 rank") >= 1
