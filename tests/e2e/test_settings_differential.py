"""The settings parser against the parser of the installed PyTorch, on the virtual GPU.

One child process is given thousands of strings through `torch._C._accelerator_setAllocatorSettings`; a few dozen go
through
the environment variable, each in a fresh process. Verdict, exception class and text must be the same.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import random
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from peakmem.allocator.settings import Call, ParseResult, Settings, TorchVersion, parse
from peakmem.allocator.settings.options import table
from peakmem.allocator.settings.rounding import SMALL, block_size, segment_size
from peakmem.units import GIB, MIB

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed"),
]

ASK = """
import json, sys, torch
call = getattr(torch._C, "_accelerator_setAllocatorSettings", None)
reset = "large_segment_size_mb:20"
if call is None:
    call, reset = torch._C._cuda_cudaCachingAllocator_set_allocator_settings, ""
else:
    torch.cuda.init()
answers = []
for string in json.load(open(sys.argv[1])):
    try:
        call(reset)
    except ValueError:
        call("")
    try:
        call(string)
        answers.append(None)
    except BaseException as error:
        answers.append([type(error).__name__, str(error)])
json.dump(answers, open(sys.argv[2], "w"))
"""
ASK_ENVIRONMENT = """
import json, sys, torch
try:
    torch.cuda.init()
    torch.empty(1, device="cuda")
    answer = None
except BaseException as error:
    answer = [type(error).__name__, str(error)]
json.dump(answer, open(sys.argv[1], "w"))
import os
os._exit(0)
"""
ASSERTION = re.compile(
    r'(.*?) INTERNAL ASSERT FAILED at "[^"]*":\d+, please report a bug to PyTorch\. ([^\n]*)', re.DOTALL
)

STRINGS = [
    "",
    ",",
    " ",
    "max_split_size_mb:128",
    "max_split_size_mb:20",
    "max_split_size_mb:19",
    "max_split_size_mb:64.7",
    "max_split_size_mb:64mb",
    "max_split_size_mb:-1",
    "max_split_size_mb=64",
    "max_split_size_mb",
    "max_split_size_mb:",
    "max_split_size_mb:[64]",
    "max_split_size_mb:18446744073709551616",
    "max_split_size_mb:64,",
    "max_split_size_mb:64,,garbage_collection_threshold:0.5",
    "max_split_size_mb:64;garbage_collection_threshold:0.5",
    "max_split_size_mb:64:garbage_collection_threshold:0.5",
    "max_split_size_mb : 64 , garbage_collection_threshold:0.5",
    "max_split_size_mb:64\tgarbage_collection_threshold:0.5",
    "'max_split_size_mb:512'",
    "Max_split_size_mb:64",
    "foo:1",
    "max_split_mb:128",
    "expandable_segments:True",
    "expandable_segments:true",
    "expandable_segments=True",
    "expandable_segments",
    "expandable_segments:True,expandable_segments:False",
    "garbage_collection_threshold:0.8",
    "garbage_collection_threshold:0",
    "garbage_collection_threshold:1",
    "garbage_collection_threshold:nan",
    "garbage_collection_threshold:0x1p-1",
    "garbage_collection_threshold:1e-310",
    "garbage_collection_threshold:x",
    "roundup_power2_divisions:4",
    "roundup_power2_divisions:0",
    "roundup_power2_divisions:3",
    "roundup_power2_divisions:[256:1,512:2,1024:4,>:8]",
    "roundup_power2_divisions:[>:1]",
    "roundup_power2_divisions:[]",
    "roundup_power2_divisions:[",
    "roundup_power2_divisions:[256:1,",
    "roundup_power2_divisions:[3:1]",
    "roundup_power2_divisions:[4:3]",
    "roundup_power2_divisions:[1:1 2:2]",
    "roundup_bypass_threshold_mb:64",
    "max_non_split_rounding_mb:20",
    "max_non_split_rounding_mb:19",
    "large_segment_size_mb:10",
    "large_segment_size_mb:40,max_split_size_mb:30",
    "max_split_size_mb:30,large_segment_size_mb:40",
    "foo,large_segment_size_mb:5",
    "per_process_memory_fraction:0.5",
    "per_process_memory_fraction:1.5",
    "pinned_use_cuda_host_register:True,pinned_num_register_threads:8",
    "pinned_num_register_threads:3",
    "pinned_num_register_threads:256",
    "pinned_reserve_segment_size_mb:0",
    "pinned_max_round_threshold_mb:4,pinned_max_cached_size_mb:16",
    "pinned_max_cached_size_mb:-1",
    "release_lock_on_hipmalloc:True",
    "backend:native",
    "backend:foo",
    "backend:cudaMallocAsync",
    "expandable_segments_handle_type:posix_fd",
]
VALUES = {
    "size": ["64", "20", "19", "21", "11", "10", "0", "-1", "+64", "512mb", "99999999999999999999999", "x", ""],
    "fraction": ["0.5", "0.0", "1.0", "1.5", "nan", "1e-3", "-0.1", "x", "0x.8", ".5", "inf"],
    "flag": ["True", "False", "true", "1", "", "True"],
    "divisions": [
        "4", "1", "0", "3", "[256:1,512:2,>:4]", "[1:2]", "[>:1]", "[]", "[3:1]", "[4:3]", "[", "[256:1,", "[8:2 16:4]",
        "[4:0,>:8]", "[65536:2]", "[16:4,>:0]", "]", "[1:2]]", "[256:1",
    ],
    "threads": ["1", "2", "128", "3", "256", "0", "-2", "x"],
    "backend": ["native", "native", "foo", "cudaMallocAsync", ""],
}  # fmt: skip
NOISE = [",", ":", "[", "]", " ", "\t", "é", "=", ";", "'", "x", "1"]


def generated(count: int, seed: int) -> list[str]:
    """Strings of one to four options, most right, some spoilt."""
    chance = random.Random(seed)
    options = list(table())
    strings = []
    for _ in range(count):
        pairs = []
        for _ in range(chance.choice([1, 1, 2, 3, 4])):
            option = chance.choice(options)
            value = VALUES[option.kind][0] if chance.random() < 0.6 else chance.choice(VALUES[option.kind])
            key = chance.choice([option.key, option.key, option.key, *option.aliases])
            pairs.append(f"{key}{chance.choice([':', ':', ':', ':', ':', ':', ':', ' : ', '=', '::', ''])}{value}")
        string = pairs[0]
        for pair in pairs[1:]:
            string += chance.choice([",", ",", ",", ",", ",", ",", " , ", ";", " ", ",,", ":"]) + pair
        if chance.random() < 0.2:
            place = chance.randrange(len(string) + 1)
            string = string[:place] + chance.choice(NOISE) + string[place + chance.choice([0, 1]) :]
        strings.append(string)
    return strings


@pytest.fixture(scope="module")
def virtual_gpu() -> dict[str, str]:
    """The environment of a process that has the virtual GPU."""
    from peakmem.vgpu.build import ensure_library
    from peakmem.vgpu.catalogue import find_device
    from peakmem.vgpu.launch import environment
    from peakmem.vgpu.probe import probe

    facts = probe(sys.executable)
    base = {name: value for name, value in os.environ.items() if not name.startswith("PYTORCH_")}
    return environment(library=ensure_library(facts), device=find_device("a100-80"), facts=facts, base=base)


@pytest.fixture(scope="module")
def version() -> TorchVersion:
    return TorchVersion.parse(importlib.metadata.version("torch"))


def run(program: str, arguments: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program, *arguments], env=environment, capture_output=True, text=True, timeout=300
    )


def ask(program: str, arguments: list[str], environment: dict[str, str]) -> None:
    done = run(program, arguments, environment)
    assert done.returncode == 0, done.stderr[-2000:]


def answer_of(result: ParseResult) -> list[str] | None:
    if result.refusal is None:
        return None
    return [result.refusal.exception, result.refusal.condition, result.refusal.text]


def in_parts(answer: list[str] | None) -> list[str] | None:
    """An exception as class, condition of an internal assertion (whose place in the source differs by build), text."""
    if answer is None:
        return None
    assertion = ASSERTION.match(answer[1])
    if assertion is not None:
        return [answer[0], assertion[1], assertion[2]]
    return [answer[0], "", answer[1]]


def compare(strings: list[str], version: TorchVersion, environment: dict[str, str], folder: Path) -> int:
    """Ask PyTorch; give how many strings it accepts."""
    ours = [parse(string, version=version, call=Call.RUN_TIME, loaded_backend="native") for string in strings]
    # What reads beyond the end of PyTorch's memory can't be asked.
    asked = [result for result in ours if result.refusal is None or result.refusal.exception]
    questions, answers = folder / "questions.json", folder / "answers.json"
    questions.write_text(json.dumps([result.text for result in asked]))
    ask(ASK, [str(questions), str(answers)], environment)
    theirs = json.loads(answers.read_text())
    different = [
        (result.text, answer_of(result), in_parts(answer))
        for result, answer in zip(asked, theirs, strict=True)
        if answer_of(result) != in_parts(answer)
    ]
    assert different == []
    return sum(answer is None for answer in theirs)


def test_chosen_strings_at_run_time(virtual_gpu: dict[str, str], version: TorchVersion, tmp_path: Path) -> None:
    accepted = compare(STRINGS, version, virtual_gpu, tmp_path)
    assert 10 < accepted < len(STRINGS) - 10


def test_two_thousand_generated_strings(virtual_gpu: dict[str, str], version: TorchVersion, tmp_path: Path) -> None:
    strings = generated(2000, seed=20260729)
    accepted = compare(strings, version, virtual_gpu, tmp_path)
    assert accepted > 200


@pytest.mark.slow
def test_the_environment_variable(virtual_gpu: dict[str, str], version: TorchVersion, tmp_path: Path) -> None:
    chosen = STRINGS[3::2]
    different = []
    for string in chosen:
        target = tmp_path / "answer.json"
        result = parse(string, version=version)
        ours = answer_of(result)
        done = run(ASK_ENVIRONMENT, [str(target)], {**virtual_gpu, "PYTORCH_CUDA_ALLOC_CONF": string})
        if result.refusal is not None and result.refusal.aborts:
            if done.returncode != -signal.SIGABRT or result.refusal.text not in done.stderr:
                different.append((string, ours, done.stderr[-300:]))
            continue
        assert done.returncode == 0, (string, done.stderr[-2000:])
        theirs = in_parts(json.loads(target.read_text()))
        if ours != theirs and not (ours is not None and not ours[0]):
            different.append((string, ours, theirs))
    assert different == []


RESERVED = """
import json, sys, torch
torch.empty(int(sys.argv[1]), dtype=torch.int8, device="cuda")
json.dump(torch.cuda.memory_stats()["reserved_bytes.all.peak"], open(sys.argv[2], "w"))
"""


@pytest.mark.parametrize("string", ["roundup_power2_divisions:[>:1]", "roundup_power2_divisions:[>:2]"])
def test_a_tensor_of_514_mib_under_power_of_two_rounding(
    string: str, virtual_gpu: dict[str, str], version: TorchVersion, tmp_path: Path
) -> None:
    # Public report: pytorch/pytorch issue 161139. One division is off, two round 514 up to 768 MiB.
    target = tmp_path / "reserved.json"
    ask(RESERVED, [str(514 * MIB), str(target)], {**virtual_gpu, "PYTORCH_CUDA_ALLOC_CONF": string})
    settings = parse(string, version=version).settings
    expected = first_segment(514 * MIB, settings, version=version)
    assert json.loads(target.read_text()) == expected
    assert expected == (514 if string.endswith("1]") else 768) * MIB


def first_segment(request: int, settings: Settings, *, version: TorchVersion) -> int:
    """Reserved bytes after one request on an empty cache, with expandable segments if they are on."""
    block = block_size(request, settings, version=version)
    if not settings.expandable_segments or block == 0:
        return segment_size(block, settings)
    page = 2 * MIB if block <= SMALL else settings.large_segment_size
    return -(-block // page) * page


GROWTH = """
import json, random, sys, torch
call = torch._C._accelerator_setAllocatorSettings
torch.cuda.init()
reserved = {}
for string in json.load(open(sys.argv[1])):
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    call("expandable_segments:False")
    call(string)
    chance, live = random.Random(1), []
    for _ in range(3000):
        live.append(torch.cuda.caching_allocator_alloc(int(2**20 * 2 ** chance.uniform(2, 8.5))))
        while len(live) > 30:
            torch.cuda.caching_allocator_delete(live.pop(chance.randrange(len(live))))
    reserved[string] = [torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()]
    for address in live:
        torch.cuda.caching_allocator_delete(address)
json.dump(reserved, open(sys.argv[2], "w"))
"""


def test_the_measured_figures_that_findings_quote(
    virtual_gpu: dict[str, str], version: TorchVersion, tmp_path: Path
) -> None:
    if not version.at_least("2.10"):
        pytest.skip("the figures are those of PyTorch 2.14.1")
    strings = [
        "",
        "max_split_size_mb:64",
        "expandable_segments:True",
        "expandable_segments:True,max_split_size_mb:64",
    ]
    questions, answers = tmp_path / "questions.json", tmp_path / "answers.json"
    questions.write_text(json.dumps(strings))
    ask(GROWTH, [str(questions), str(answers)], virtual_gpu)
    seen = json.loads(answers.read_text())
    assert {string: round(reserved / GIB, 1) for string, (_, reserved) in seen.items() if string in strings[:3]} == {
        "": 8.0,
        "max_split_size_mb:64": 14.9,
        "expandable_segments:True": 5.1,
    }
    # Expandable segments with a split limit: the whole card, with a twentieth of it in use.
    allocated, reserved = seen[strings[3]]
    assert allocated < 4.3 * GIB
    assert reserved > 75 * GIB


SIZES = """
import json, sys, torch
sizes, strings = json.load(open(sys.argv[1]))
call = getattr(torch._C, "_accelerator_setAllocatorSettings", None)
call = call or torch._C._cuda_cudaCachingAllocator_set_allocator_settings
torch.cuda.init()
seen = []
for string in strings:
    call(string)
    for size in sizes:
        torch.cuda.empty_cache()
        address = torch.cuda.caching_allocator_alloc(size)
        seen.append([torch.cuda.memory_allocated(), torch.cuda.memory_reserved()])
        torch.cuda.caching_allocator_delete(address)
json.dump(seen, open(sys.argv[2], "w"))
"""


def test_the_segment_of_one_request_is_what_pytorch_reserves(
    virtual_gpu: dict[str, str], version: TorchVersion, tmp_path: Path
) -> None:
    chance = random.Random(7)
    sizes = [1, 512, 513, MIB, MIB + 1, 9 * MIB, 10 * MIB - 1, 10 * MIB, 11 * MIB, 100 * MIB + 1]
    sizes += [int(2 ** chance.uniform(0, 35)) for _ in range(100)]
    strings = [
        "",
        "roundup_power2_divisions:4",
        "roundup_power2_divisions:[256:1,512:2,1024:4,>:8]",
        "roundup_power2_divisions:[2:8,64:4,>:1]",
        "expandable_segments:True",
        "expandable_segments:True,roundup_power2_divisions:16",
    ]
    questions, answers = tmp_path / "questions.json", tmp_path / "answers.json"
    questions.write_text(json.dumps([sizes, strings]))
    ask(SIZES, [str(questions), str(answers)], virtual_gpu)
    settings = Settings()
    expected = []
    for string in strings:
        settings = parse(string, version=version, call=Call.RUN_TIME, before=settings).settings
        expected += [first_segment(size, settings, version=version) for size in sizes]
    assert [reserved for _, reserved in json.loads(answers.read_text())] == expected
