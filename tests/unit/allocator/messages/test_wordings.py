"""Every wording is recognised, whatever the log did to it."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peakmem.allocator.messages import Verdict, explain
from peakmem.units import GIB, MIB

A2 = (
    "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 1; 10.92 GiB total capacity; 8.10 GiB already "
    "allocated; 300.50 MiB free; 1.20 GiB cached) (malloc at /pytorch/c10/cuda/CUDACachingAllocator.cpp:267)"
)
A3 = (
    "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 1; 10.92 GiB total capacity; 8.10 GiB already "
    "allocated; 300.50 MiB free; 9.30 GiB reserved in total by PyTorch)"
)
A3_CAPPED = A3.replace("300.50 MiB free; ", "300.50 MiB free; 9.50 GiB allowed; ")
A4 = (
    f"{A3.replace('RuntimeError', 'torch.cuda.OutOfMemoryError')} If reserved memory is >> allocated "
    "memory try setting "
    "max_split_size_mb to avoid fragmentation.  See documentation for Memory Management and PYTORCH_CUDA_ALLOC_CONF"
)
A5 = (
    "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 has a total "
    "capacty of 10.92 GiB "
    "of which 300.50 MiB is free. Process 123 has 10.60 GiB memory in use. Of the allocated memory "
    "8.10 GiB is allocated "
    "by PyTorch, and 1.20 GiB is reserved by PyTorch but unallocated. If reserved but unallocated memory is large try "
    "setting max_split_size_mb to avoid fragmentation.  See documentation for Memory Management and "
    "PYTORCH_CUDA_ALLOC_CONF"
)
A6 = (
    "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 has a total "
    "capacity of 10.92 GiB "
    "of which 300.50 MiB is free. Including non-PyTorch memory, this process has 10.60 GiB memory in use. Of the "
    "allocated memory 8.10 GiB is allocated by PyTorch, and 1.20 GiB is reserved by PyTorch but "
    "unallocated. If reserved "
    "but unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid "
    "fragmentation.  See documentation for Memory Management  "
    "(https://pytorch.org/docs/stable/notes/cuda.html#environment-variables)"
)
A7 = A6.replace("torch.cuda.OutOfMemoryError", "torch.OutOfMemoryError").replace(
    "https://pytorch.org/docs/stable/notes/cuda.html#environment-variables",
    "https://docs.pytorch.org/docs/stable/notes/cuda.html#optimizing-memory-usage-with-pytorch-cuda-alloc-conf",
)
XPU = (
    "torch.OutOfMemoryError: XPU out of memory. Tried to allocate 2.00 GiB. GPU 1 has a total capacity of 10.92 GiB of "
    "which 300.50 MiB is free. Of the allocated memory 8.10 GiB is allocated by PyTorch, and 1.20 GiB is reserved by "
    "PyTorch but unallocated."
)
PYTORCH = {
    "1.0 to 1.3": A2,
    "1.4 to 1.9": A3,
    "1.10 to 2.0": A4,
    "2.1": A5,
    "2.2 to 2.9": A6,
    "2.10 and later": A7,
}


@pytest.mark.parametrize(("era", "text"), PYTORCH.items())
def test_pytorch_of_every_age_gives_the_same_figures(era: str, text: str) -> None:
    (found,) = explain(text)
    assert found.wording == f"PyTorch {era}, CUDA"
    figures = found.figures
    assert figures.requested == 2 * GIB
    assert figures.capacity == int(10.92 * GIB)
    assert figures.free == int(300.5 * MIB)
    assert figures.allocated == int(8.1 * GIB)
    assert figures.stranded is not None
    assert abs(figures.stranded - 1.2 * GIB) < 2
    assert figures.reserved is not None
    assert abs(figures.reserved - 9.3 * GIB) < 2
    assert figures.device == 1
    assert found.verdict is Verdict.SHORTAGE


def test_a_limit_in_the_old_wording() -> None:
    (found,) = explain(A3_CAPPED)
    assert found.verdict is Verdict.CAP
    assert found.figures.allowed == int(9.5 * GIB)


def test_rocm_and_xpu() -> None:
    (rocm,) = explain(A6.replace("CUDA out", "HIP out").replace("PYTORCH_CUDA", "PYTORCH_HIP"))
    assert rocm.wording == "PyTorch 2.2 to 2.9, HIP"
    (xpu,) = explain(XPU)
    assert xpu.wording == "PyTorch 2.2 and later, XPU"
    assert xpu.figures.missing == rocm.figures.missing


SENTENCE = re.compile(r"(?<=[.;]) ")


@pytest.mark.parametrize("text", [A6, A4])
def test_a_message_cut_after_any_sentence_is_still_read(text: str) -> None:
    whole = explain(text)[0]
    pieces = SENTENCE.split(text)
    seen_incomplete = False
    for count in range(2, len(pieces) + 1):
        (found,) = explain(" ".join(pieces[:count]))
        assert found.figures.requested == 2 * GIB
        if found.verdict is Verdict.INCOMPLETE:
            seen_incomplete = True
            assert found.option_helps is None
            assert "cut off" in found.happened
        else:
            assert found.verdict is whole.verdict
    assert seen_incomplete


@st.composite
def mangled(draw: st.DrawFn) -> tuple[str, str]:
    """A message, and the same with line breaks, prefixes and colours put anywhere."""
    text = draw(st.sampled_from(list(PYTORCH.values())))
    cuts = sorted(draw(st.sets(st.integers(min_value=1, max_value=len(text) - 1), max_size=6)))
    prefix = draw(st.sampled_from(["", "[rank0]: ", "(RayTrainWorker pid=77, ip=10.0.0.1) ", "[default3]:", "> "]))
    pieces = [text[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    pieces = [f"{prefix}{draw(st.sampled_from(['', chr(27) + '[31m']))}{piece}" for piece in pieces]
    return text, "\n".join(pieces) + draw(st.sampled_from(["", "\x1b[0m", "\n\nmore log\n"]))


@given(mangled())
def test_line_breaks_prefixes_and_colours_change_nothing(pair: tuple[str, str]) -> None:
    text, spoilt = pair
    expected, found = explain(text)[0], explain(spoilt)[0]
    assert (found.verdict, found.figures, found.happened) == (expected.verdict, expected.figures, expected.happened)


@given(st.text(max_size=300))
def test_any_text_is_read_without_failing(text: str) -> None:
    explain(text)


@given(st.sampled_from(list(PYTORCH.values())), st.data())
def test_a_spoilt_message_never_fails(text: str, data: st.DataObject) -> None:
    position = data.draw(st.integers(min_value=0, max_value=len(text)))
    explain(text[:position] + data.draw(st.text(max_size=5)) + text[position:])


def test_a_message_quoted_in_json() -> None:
    line = json.dumps({"level": "error", "message": f"Traceback:\n  x.py\n{A6}\n\x1b[0m"})
    assert explain(line)[0].figures == explain(A6)[0].figures


def test_the_rank_is_kept_and_repeats_are_told_once() -> None:
    text = f"[rank0]: {A6}\nsome log\n[rank3]: {A6.replace('2.00 GiB', '3.00 GiB')}\n[rank3]: {A6}"
    found = explain(text)
    assert [explanation.rank for explanation in found] == [0, 3]


def test_keras_with_the_torch_backend() -> None:
    text = f"OutOfMemoryError: Exception encountered when calling Dense.call().\n\n{A7}\n\nArguments received by:\n  x"
    assert explain(text)[0].verdict is Verdict.SHORTAGE


OTHERS = [
    ("THCudaCheck FAIL file=/pytorch/x.cu line=58 error=2 : out of memory", Verdict.INCOMPLETE, "before 1.0"),
    ("RuntimeError: cuda runtime error (2) : out of memory at /pytorch/x.cu:58", Verdict.INCOMPLETE, "before 1.0"),
    (
        "RuntimeError: CUDA error: out of memory\nCUDA kernel errors might be",
        Verdict.OUTSIDE_POOL,
        "pinned host memory",
    ),
    ("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`", Verdict.OUTSIDE_POOL, "cuBLAS"),
    ("RuntimeError: cuDNN error: CUDNN_STATUS_ALLOC_FAILED", Verdict.OUTSIDE_POOL, "cuDNN"),
    ("RuntimeError: Unable to find a valid cuDNN algorithm to run convolution", Verdict.OUTSIDE_POOL, "convolution"),
    (
        "torch.distributed.DistBackendError: NCCL error in: /x/NCCLUtils.hpp:200, unhandled cuda error (run with "
        "NCCL_DEBUG=INFO for details), NCCL version 2.21.5\nLast error:\nFailed to CUDA calloc async 2432 bytes",
        Verdict.OUTSIDE_POOL,
        "NCCL",
    ),
    ("ncclUnhandledCudaError\nLast error:\nCuda failure 2 'out of memory'", Verdict.OUTSIDE_POOL, "NCCL"),
    ("RuntimeError: Native API failed. UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY", Verdict.OUTSIDE_POOL, "Intel"),
    (
        "triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 180224, "
        "Hardware limit: 101376.",
        Verdict.NOT_MEMORY,
        "176.0 KiB",
    ),
    (
        "RuntimeError: MPS backend out of memory (MPS allocated: 17.00 GB, other allocations: 1.50 GB, max allowed: "
        "18.13 GB). Tried to allocate 256.00 MB on private pool. Use PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0 to disable",
        Verdict.CAP,
        "256.00 MiB",
    ),
    (
        "RuntimeError: MPS backend out of memory (MPS allocated: 5.05 GiB, max allowed: 5.10 GiB). Tried to allocate "
        "1024.00 MiB on shared pool.",
        Verdict.CAP,
        "5.05 GiB",
    ),
    (
        "torch.OutOfMemoryError: Allocation on device 0 would exceed allowed memory. (out of "
        "memory)\nCurrently allocated"
        "     : 20.10 GiB\nRequested               : 4.00 GiB\nDevice limit            : 23.69 GiB\nFree (according to "
        "CUDA): 25.12 MiB\nPyTorch limit (set by user-supplied memory fraction)\n                    "
        "    : 17179869184.00 GiB",
        Verdict.SHORTAGE,
        "cudaMallocAsync",
    ),
    (
        "CUDA out of memory. Allocation was preemptively rejected because it would exceed per_process_memory_fraction "
        "limit. Requested size: 47185920",
        Verdict.SETTINGS,
        "45.00 MiB",
    ),
    (
        "RuntimeError: [enforce fail at alloc_cpu.cpp:117] . DefaultCPUAllocator: can't allocate memory: you tried to "
        "allocate 17179869184 bytes. Error code 12 (Cannot allocate memory)",
        Verdict.HOST_SHORTAGE,
        "16.00 GiB",
    ),
    (
        "RuntimeError: [enforce fail at C:\\actions\\c10\\core\\CPUAllocator.cpp:72] data. "
        "DefaultCPUAllocator: not enough "
        "memory: you tried to allocate 4096000 bytes. Buy new RAM!",
        Verdict.HOST_SHORTAGE,
        "3.91 MiB",
    ),
    (
        "RuntimeError: [enforce fail at alloc_cpu.cpp:59] . alloc_cpu() seems to have been called "
        "with negative number: "
        "18446744071562067968",
        Verdict.OVERFLOW,
        "negative",
    ),
    (
        "RuntimeError: $ Torch: not enough memory: you tried to allocate 12GB. Buy new RAM! at x.c:218",
        Verdict.HOST_SHORTAGE,
        "12.00 GiB",
    ),
    (
        "RuntimeError: unable to mmap 1073741824 bytes from file </torch_9>: Cannot allocate memory (12)",
        Verdict.HOST_SHORTAGE,
        "1.00 GiB",
    ),
    ("RuntimeError: DataLoader worker (pid 4242) is killed by signal: Killed.", Verdict.HOST_KILLED, "worker 4242"),
    ("RuntimeError: DataLoader worker (pid(s) 12, 13) exited unexpectedly", Verdict.HOST_KILLED, "12,13"),
    (
        "Bus error. It is possible that dataloader's workers are out of shared memory. Please try to raise your shared "
        "memory limit.",
        Verdict.SHARED_MEMORY,
        "/dev/shm",
    ),
    ("[launch.py:315:sigkill_handler] ['python'] exits with return code = -9", Verdict.HOST_KILLED, "signal 9"),
    (
        "error_file: <N/A>\nexitcode  : -9 (pid: 123)\ntraceback : Signal 9 (SIGKILL) received by PID 123",
        Verdict.HOST_KILLED,
        "signal 9",
    ),
    (
        "slurmstepd: error: Detected 1 oom_kill event in StepId=123.0. Some of the step tasks have been OOM Killed.",
        Verdict.HOST_KILLED,
        "signal 9",
    ),
    ("srun: error: node1: task 0: Out Of Memory", Verdict.HOST_KILLED, "signal 9"),
    (
        "numpy.core._exceptions.MemoryError: Unable to allocate 29.8 GiB for an array with shape "
        "(4000, 1000000) and data "
        "type float64",
        Verdict.HOST_SHORTAGE,
        "29.80 GiB",
    ),
    (
        "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),task_memcg=/docker/x,task=python,pid=99,uid=0\nMemory "
        "cgroup out of memory: Killed process 99 (python) total-vm:40000000kB, anon-rss:32000000kB, "
        "file-rss:1000kB, shmem-rss:0kB, "
        "UID:0",
        Verdict.HOST_KILLED,
        "memory limit of its container",
    ),
    (
        "Out of memory: Killed process 99 (python) total-vm:40000000kB, anon-rss:32000000kB",
        Verdict.HOST_KILLED,
        "the whole machine",
    ),
    ("\tMaximum resident set size (kbytes): 2097152", Verdict.HARMLESS, "2.00 GiB"),
    ("Resource exhausted: OOM when allocating tensor with shape[10000,23000]", Verdict.SHORTAGE, "877.38 MiB"),
    (
        "ResourceExhaustedError (see above for traceback): OOM when allocating tensor with "
        "shape[256,64,112,112] and type half "
        "on /job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc",
        Verdict.SHORTAGE,
        "392.00 MiB",
    ),
    (
        "OOM when allocating tensor with shape[1000000,4096] and type float on "
        "/job:localhost/replica:0/task:0/device:CPU:0 by "
        "allocator cpu",
        Verdict.HOST_SHORTAGE,
        "15.26 GiB",
    ),
    (
        "failed to allocate 9.50G (10200547328 bytes) from device: CUDA_ERROR_OUT_OF_MEMORY: out of memory",
        Verdict.OUTSIDE_POOL,
        "9.50 GiB",
    ),
    ("Allocation of 4294967296 exceeds 10% of free system memory.", Verdict.HARMLESS, "no error"),
    (
        "Allocator (GPU_0_bfc) ran out of memory trying to allocate 2.20GiB with freed_by_count=0. The "
        "caller indicates that "
        "this is not a failure",
        Verdict.HARMLESS,
        "2.20 GiB",
    ),
    (
        "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to "
        "allocate 34359738368 bytes.",
        Verdict.SHORTAGE,
        "32.00 GiB",
    ),
    (
        "jax.errors.JaxRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 32.00GiB.",
        Verdict.SHORTAGE,
        "32.00 GiB",
    ),
    ("Failed to allocate request for 1.50GiB (1610612736B) on device ordinal 0", Verdict.SHORTAGE, "1.50 GiB"),
    (
        "RESOURCE_EXHAUSTED: XLA:TPU compile permanent error. Ran out of memory in memory space hbm. "
        "Used 17.12G of 15.48G hbm."
        " Exceeded hbm capacity by 1.64G.\n\nTotal hbm usage >= 17.64G:\n    reserved        530.00M\n  "
        "  program          9.01G\n"
        "    arguments        8.11G",
        Verdict.SHORTAGE,
        "1.64 GiB",
    ),
    (
        "RESOURCE_EXHAUSTED: Ran out of memory in memory space vmem. Used 20.00M of 16.00M vmem.",
        Verdict.NOT_MEMORY,
        "on-chip",
    ),
    (
        "the total memory required for HLO temporaries (20.00G) exceeds available HBM (15.48G)",
        Verdict.SHORTAGE,
        "4.52 GiB",
    ),
    ("Allocation (size=17179869184) would exceed memory (size=16642998272)", Verdict.SHORTAGE, "512.00 MiB"),
    ("RuntimeError: Unrecognized CachingAllocator option: expandable_segments", Verdict.SETTINGS, "since 2.1"),
    ("ValueError: Unrecognized key 'max_split_mb' in CUDA allocator config.", Verdict.SETTINGS, "max_split_size_mb"),
    ("ValueError: Unrecognized key 'roundup_bypass_threshold_mb' in CUDA allocator config.", Verdict.SETTINGS, "1.13"),
    (
        "ValueError: Unrecognized key 'expandable_segments=True' in CUDA allocator config.",
        Verdict.SETTINGS,
        "expandable_segments:True",
    ),
    ("Expected a single True/False argument for expandable_segments", Verdict.SETTINGS, "spelt so"),
    ("Error parsing CachingAllocator settings, expected :", Verdict.SETTINGS, "':'"),
    ("CachingAllocator option max_split_size_mb too small, must be > 20", Verdict.SETTINGS, "> 20"),
    ("garbage_collect_threshold too big, set it 0.0~1.0", Verdict.SETTINGS, "between 0 and 1"),
    (
        "[W CUDAAllocatorConfig.h:28] Warning: expandable_segments not supported on this platform "
        "(function operator())",
        Verdict.HARMLESS,
        "max_split_size_mb",
    ),
    (
        "Warning: backend:cudaMallocAsync ignores max_split_size_mb,roundup_power2_divisions, and "
        "garbage_collect_threshold.",
        Verdict.HARMLESS,
        "ignored",
    ),
]


@pytest.mark.parametrize(("text", "verdict", "fragment"), OTHERS)
def test_other_programs(text: str, verdict: Verdict, fragment: str) -> None:
    found = explain(f"2024-05-01 10:00:00,123 starting\n{text}\nend of log")
    assert len(found) == 1, [explanation.happened for explanation in found]
    assert found[0].verdict is verdict
    answer = " ".join((found[0].wording, found[0].happened, found[0].option, found[0].first)).replace(">20", "> 20")
    assert fragment in answer


TENSORFLOW = """
2023-01-01 W bfc_allocator.cc:479] Allocator (GPU_0_bfc) ran out of memory trying to allocate 1.50GiB
 (rounded to 1610612736)requested by op MatMul
If the cause is memory fragmentation maybe the environment variable 'TF_GPU_ALLOCATOR=cuda_malloc_async' will improve.
Current allocation summary follows.
Stats:
Limit:                      {limit}
InUse:                      {used}
MaxInUse:                   {used}
NumAllocs:                          12345
MaxAllocSize:                  2147483648
Reserved:                               0
PeakReserved:                           0
LargestFreeBlock:             {largest}
"""


def test_the_statistics_of_tensorflow_tell_fragmentation_from_shortage() -> None:
    (short,) = explain(TENSORFLOW.format(limit=8 * GIB, used=int(7.5 * GIB), largest=0))
    assert short.verdict is Verdict.SHORTAGE
    assert short.figures.missing == GIB
    (pieces,) = explain(TENSORFLOW.format(limit=8 * GIB, used=6 * GIB, largest=900 * MIB))
    assert pieces.verdict is Verdict.FRAGMENTATION
    assert "TF_GPU_ALLOCATOR=cuda_malloc_async" in pieces.first
    assert "900.00 MiB" in pieces.happened
    (wrong,) = explain(TENSORFLOW.format(limit=8 * GIB, used=9 * GIB, largest=0))
    assert wrong.verdict is Verdict.INCONSISTENT


XLA = """
jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 34359738368 bytes.
BufferAssignment OOM Debugging.
BufferAssignment stats:
             parameter allocation:    8.00GiB
              constant allocation:         0B
        maybe_live_out allocation:    4.00GiB
     preallocated temp allocation:   32.00GiB
  preallocated temp fragmentation:  100.00MiB (0.31%)
                 total allocation:   44.00GiB
              total fragmentation:  100.00MiB (0.22%)
Peak buffers:
        Buffer 1:
                Size: 16.00GiB
                Operator: op_name="jit(loss)/dot_general" source_file="train.py" source_line=41
                XLA Label: fusion
                Shape: f32[65536,65536]
                ==========================
"""


def test_the_statistics_of_xla_are_read() -> None:
    (found,) = explain(XLA)
    assert found.figures.allocated == 44 * GIB
    assert found.figures.stranded == 100 * MIB
    assert "temporaries 32.00 GiB" in found.happened
    assert "16.00 GiB f32[65536,65536] of jit(loss)/dot_general (train.py, line 41)" in found.first


SUMMARY = """
worker-1 | |===========================================================================|
worker-1 | |                  PyTorch CUDA memory summary, device ID 0                 |
worker-1 | |---------------------------------------------------------------------------|
worker-1 | |            CUDA OOMs: {ooms}            |        cudaMalloc retries: {retries}         |
worker-1 | |===========================================================================|
worker-1 | |        Metric         | Cur Usage  | Peak Usage | Tot Alloc  | Tot Freed  |
worker-1 | |---------------------------------------------------------------------------|
worker-1 | | Allocated memory      |     70 {g} | {used} {g} |    900 {g} |    830 {g} |
worker-1 | |       from large pool |     70 {g} |     77 {g} |    900 {g} |    830 {g} |
worker-1 | |       from small pool |      0 {b} |      0 {b} |      0 {b} |      0 {b} |
worker-1 | |---------------------------------------------------------------------------|
worker-1 | | Active memory         |     70 {g} | {used} {g} |    900 {g} |    830 {g} |
worker-1 | |---------------------------------------------------------------------------|
worker-1 | | GPU reserved memory   |     93 {g} |     93 {g} |    100 {g} |      7 {g} |
worker-1 | |---------------------------------------------------------------------------|
worker-1 | | Non-releasable memory |   5000 {m} |     16 {g} |    900 {g} |    830 {g} |
worker-1 | |---------------------------------------------------------------------------|
worker-1 | | Non-releasable allocs |     12     |     20     |    900     |   1289 KiB |
worker-1 | |===========================================================================|
"""


@pytest.mark.parametrize("units", [("B", "MB", "GB"), ("B", "MiB", "GiB")])
def test_memory_summary_of_old_and_new_units(units: tuple[str, str, str]) -> None:
    # Public report: torchrec pull request 4584, allocated 77 and reserved 93 GiB.
    b, m, g = units
    (found,) = explain(SUMMARY.format(ooms=0, retries=3, used=77, b=b, m=m, g=g))
    assert found.verdict is Verdict.FRAGMENTATION
    assert found.figures.stranded == 16 * GIB
    assert "16.00 GiB" in found.option
    assert found.alloc_conf == "expandable_segments:True"
    (full,) = explain(SUMMARY.format(ooms=1, retries=3, used=92, b=b, m=m, g=g))
    assert full.verdict is Verdict.SHORTAGE


def test_memory_stats_printed_as_a_dictionary() -> None:
    stats = {
        "active_bytes.all.current": 5 * GIB,
        "active_bytes.all.peak": 9 * GIB,
        "reserved_bytes.all.current": 12 * GIB,
        "reserved_bytes.all.peak": 12 * GIB,
        "num_alloc_retries": 2,
        "num_ooms": 1,
    }
    (found,) = explain(f"OrderedDict({stats})")
    assert found.verdict is Verdict.FRAGMENTATION
    assert found.figures.stranded == 3 * GIB


def test_nothing_is_found_where_there_is_nothing() -> None:
    assert explain("step 10 loss 2.31 memory 12.1GiB") == ()
