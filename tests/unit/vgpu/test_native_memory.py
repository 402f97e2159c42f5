"""The library's memory: capacity, addresses, reads. Each test runs in a process of its own."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

MIB = 2**20
Native = Callable[..., Any]


def test_a_block_takes_whole_pages_of_the_capacity(native: Native) -> None:
    code = "a = malloc(1); before = memory(); free(a);"
    code += "result = [before, memory(), malloc(100 * MIB + 1), malloc(100 * MIB) > 0]"
    before, after, too_large, fits = native(code, total_memory=100 * MIB)
    assert before == [0, 98 * MIB, 100 * MIB]
    assert after == [0, 100 * MIB, 100 * MIB]
    assert too_large == -2  # cudaErrorMemoryAllocation
    assert fits


def test_the_context_takes_its_part(native: Native) -> None:
    result = native(
        "result = [memory(), malloc(61 * MIB), malloc(60 * MIB) > 0]", total_memory=100 * MIB, context=40 * MIB
    )
    assert result == [[0, 60 * MIB, 100 * MIB], -2, True]


def test_a_capacity_above_the_total_is_no_limit_but_is_not_shown(native: Native) -> None:
    code = "result = [memory(), malloc(300 * MIB) > 0, memory()]"
    before, given, after = native(code, total_memory=100 * MIB, capacity=2**62)
    assert before == [0, 100 * MIB, 100 * MIB]
    assert given
    assert after == [0, 0, 100 * MIB]


def test_freeing_what_was_never_given_is_an_error(native: Native) -> None:
    assert native("a = malloc(1); result = [free(a + 512), free(a), free(a), free(None)]") == [1, 0, 1, 0]


def test_the_last_error_is_kept_until_it_is_asked_for(native: Native) -> None:
    code = "malloc(2**50); result = [gpu.cudaPeekAtLastError(), gpu.cudaGetLastError(), gpu.cudaGetLastError()]"
    assert native(code) == [2, 2, 0]


def test_reads_are_zeros_and_counted(native: Native) -> None:
    result = native("a = malloc(64); result = [read(a, 4), read(a, 1), report()['reads']]", bool=1)
    assert result == [[0] * 4, [1], {"answered": 0, "unknown": 2, "unknown_bytes": 5}]


def test_queued_reads_come_in_order_and_pass_over_longer_copies(native: Native) -> None:
    code = """
a = malloc(64)
gpu.peakmem_queue_reads((ctypes.c_int64 * 3)(1, -2, 300), 3)
result = [read(a, 8), read(a, 16), read(a, 2), read(a, 1), read(a, 1)]
gpu.peakmem_queue_reads((ctypes.c_int64 * 1)(7), 1)
gpu.peakmem_clear_reads()
result.append(read(a, 1))
"""
    assert native(code) == [[1] + [0] * 7, [0] * 16, [254, 255], [44], [0], [0]]


def test_stored_copies_come_back(native: Native) -> None:
    code = """
a = malloc(64)
data = ctypes.create_string_buffer(b"abcd", 4)
gpu.cudaMemcpy(ctypes.c_void_p(a), data, ctypes.c_size_t(4), 1)
result = [read(a, 4), read(a, 8), report()["reads"]["unknown"]]
"""
    assert native(code, store=4) == [[97, 98, 99, 100], [0] * 8, 1]


def test_pinned_memory_is_told_from_other_host_memory_and_from_the_device(native: Native) -> None:
    code = """
class Attributes(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("device", ctypes.c_int), ("rest", ctypes.c_char * 80)]

def kind(address):
    out = Attributes()
    gpu.cudaPointerGetAttributes(ctypes.byref(out), ctypes.c_void_p(address))
    return [out.type, out.device]

pinned = ctypes.c_void_p()
gpu.cudaHostAlloc(ctypes.byref(pinned), ctypes.c_size_t(100), 0)
plain = ctypes.create_string_buffer(10)
result = [kind(pinned.value + 99), kind(ctypes.addressof(plain)), kind(malloc(1))]
"""
    assert native(code, cuda=13000) == [[1, 0], [0, -2], [2, 0]]


def test_blocks_of_20_mib_start_at_multiples_of_32_going_down_and_small_ones_fill_the_rest(native: Native) -> None:
    code = "b = [malloc(n * MIB) for n in (20, 20, 2, 10, 10, 100, 26)];"
    code += "result = [(x - b[0]) // MIB for x in b] + [b[0] % (32 * MIB)]"
    #  the 2 goes above the newest 20; 10 fills that range (22 after its start); the next 10 the older one
    assert native(code) == [0, -32, -12, -10, 20, -160, -60, 0]


def test_an_empty_range_is_given_back_and_the_newest_one_is_filled_first(native: Native) -> None:
    code = """
a, b, c = malloc(20 * MIB), malloc(2 * MIB), malloc(20 * MIB)
free(c)
d = malloc(40 * MIB)  # takes 64, where c was and below
free(a)
e = malloc(20 * MIB)  # above d, though the older range has room too
f = malloc(20 * MIB)
result = [(x - a) // MIB for x in (b, c, d, e, f)]
"""
    assert native(code) == [20, -32, -64, -24, 0]


@pytest.mark.parametrize("order", ["driver", "up", "down", "random:3"])
def test_blocks_never_overlap(native: Native, order: str) -> None:
    code = """
import random
draw = random.Random(1)
live = {}
for _ in range(600):
    if live and draw.random() < 0.45:
        free(live.pop(draw.choice(list(live)))[0])
    else:
        size = draw.choice([2, 2, 4, 10, 20, 20, 26, 32, 50, 100, 130])
        address = malloc(size * MIB)
        assert address > 0
        live[len(live), _] = (address, size * MIB)
spans = sorted(live.values())
result = [all(a + n <= b for (a, n), (b, _) in zip(spans, spans[1:])), len(spans)]
"""
    apart, count = native(code, addresses=order, total_memory=2**40)
    assert apart
    assert count > 20


@pytest.mark.parametrize(
    ("name", "least"),
    [("transformer_forward_bf16_ctx512_torch26", 0.97), ("transformer_fullstep_ctx128_torch26", 0.98)],
)
def test_recorded_addresses_come_out_again(native: Native, tmp_path: Path, name: str, least: float) -> None:
    """Real recordings: the blocks of cudaMalloc land where they did, up to a constant for each stretch of addresses."""
    folder = os.environ.get("PEAKMEM_SNAPSHOTS")
    if not folder:
        pytest.skip("PEAKMEM_SNAPSHOTS is not set")
    with Path(folder, f"{name}.pickle").open("rb") as file:
        snapshot = pickle.load(file)
    events = [
        [entry["action"] == "segment_alloc", entry["addr"], entry["size"]]
        for entry in snapshot["device_traces"][0]
        if entry["action"] in ("segment_alloc", "segment_free")
    ]
    start = {segment["address"]: segment["total_size"] for segment in snapshot["segments"]}
    for is_alloc, address, size in reversed(events):
        if is_alloc:
            del start[address]
        else:
            start[address] = size
    # The blocks that were there when recording began, in the order in which the rule would have placed them so.
    ranges: list[tuple[int, list[int]]] = []
    for address in sorted(start):
        if ranges and address + start[address] <= ranges[-1][0]:
            ranges[-1][1].append(address)
        else:
            ranges.append((-(-(address + start[address]) // (32 * MIB)) * 32 * MIB, [address]))
    first = [[address, start[address]] for _, blocks in reversed(ranges) for address in blocks]
    (tmp_path / "events.json").write_text(json.dumps([first, events]))
    code = f"""
with open({str(tmp_path / "events.json")!r}) as file:
    first, events = json.load(file)
now = {{address: malloc(size) for address, size in first}}
offsets, same, blocks, live, ordered, pairs = set(), 0, 0, {{}}, 0, 0
for is_alloc, address, size in events:
    if not is_alloc:
        free(now.pop(address))
        live.pop(address, None)
        continue
    now[address] = malloc(size)
    blocks += 1
    same += address - now[address] in offsets
    offsets.add(address - now[address])
    ordered += sum((a < address) == (b < now[address]) for a, b in live.items())
    pairs += len(live)
    live[address] = now[address]
result = [same / blocks, ordered / pairs]
"""
    same, ordered = native(code, total_memory=2**40)
    assert same > least
    assert ordered > 0.998


def test_the_drivers_pool_grows_in_steps_and_keeps_what_it_has_until_it_is_trimmed(native: Native) -> None:
    code = """
def malloc_async(size):
    out = ctypes.c_void_p()
    error = gpu.cudaMallocAsync(ctypes.byref(out), ctypes.c_size_t(size), None)
    return out.value if error == 0 else -error

pool = ctypes.c_void_p()
gpu.cudaDeviceGetDefaultMemPool(ctypes.byref(pool), 0)

def figures():  # reserved, its peak, used, its peak
    out = ctypes.c_uint64()
    return [gpu.cudaMemPoolGetAttribute(pool, which, ctypes.byref(out)) or out.value for which in (5, 6, 7, 8)]

a, b = malloc_async(100), malloc_async(40 * MIB)
result = [figures(), memory()[1]]
free(b)
c = malloc_async(30 * MIB)
result += [figures(), malloc_async(99 * MIB)]
gpu.cudaFreeAsync(ctypes.c_void_p(c), None)
gpu.cudaMemPoolTrimTo(pool, ctypes.c_size_t(0))
result += [figures(), memory()[1]]
"""
    first, left, second, too_large, last, left_at_last = native(code, total_memory=128 * MIB)
    assert first == [64 * MIB, 64 * MIB, 40 * MIB + 512, 40 * MIB + 512]
    assert left == 64 * MIB
    assert second == [64 * MIB, 64 * MIB, 30 * MIB + 512, 40 * MIB + 512]
    assert too_large == -2
    assert last == [32 * MIB, 64 * MIB, 512, 40 * MIB + 512]
    assert left_at_last == 96 * MIB


_PINNED = """
import os, struct
def pin(size):
    out = ctypes.c_void_p()
    assert gpu.cudaHostAlloc(ctypes.byref(out), ctypes.c_size_t(size), 0) == 0
    return out.value
def published(path):
    return list(struct.unpack("5QqQ", open(path, "rb").read()))
"""


def test_pinned_memory_is_counted_in_whole_pages_and_given_back(native: Native) -> None:
    code = """
a, b = pin(1), pin(3 * MIB)
gpu.cudaFreeHost(ctypes.c_void_p(a))
result = [report()["pinned"], gpu.cudaFreeHost(ctypes.c_void_p(a)), gpu.cudaFreeHost(None)]
"""
    pinned, again, nothing = native(_PINNED + code)
    assert pinned == {
        "now": 3 * MIB,
        "peak": 3 * MIB + 4096,
        "registered": 0,
        "registered_peak": 0,
        "unread": 0,
        "allocations": 2,
        "blocks_at_peak": [[4096, 1], [3 * MIB, 1]],
    }
    assert (again, nothing) == (1, 0)


def test_pinned_memory_is_published_with_what_is_resident_of_it(native: Native, tmp_path: Path) -> None:
    code = f"""
path = {str(tmp_path / "pinned")!r}.encode()
assert gpu.peakmem_publish_pinned(path) == 1
a = pin(64 * MIB)
before = published(path)
written = lambda: os.fstat(before[5]).st_blocks * 512
untouched = written()
ctypes.memset(a, 1, 8 * MIB)
touched = written()
gpu.cudaFreeHost(ctypes.c_void_p(a))
result = [before[:5], untouched, touched, written(), published(path)[:5]]
"""
    before, untouched, touched, freed, after = native(_PINNED + code)
    assert before == [64 * MIB, 64 * MIB, 0, 0, 0]
    assert (untouched, touched, freed) == (0, 8 * MIB, 0)
    assert after == [0, 64 * MIB, 0, 0, 0]


def test_more_may_be_pinned_than_the_machine_has(native: Native) -> None:
    assert native(_PINNED + "a = pin(2**42); ctypes.memset(a, 1, 1); result = report()['pinned']['now']") == 2**42


def test_a_forked_process_neither_publishes_nor_takes_pages_from_its_parent(native: Native, tmp_path: Path) -> None:
    code = f"""
path = {str(tmp_path / "pinned")!r}.encode()
gpu.peakmem_publish_pinned(path)
a = pin(2 * MIB)
ctypes.memset(a, 7, 2 * MIB)
child = os.fork()
if not child:
    gpu.cudaFreeHost(ctypes.c_void_p(a))
    pin(MIB)
    os._exit(0)
os.waitpid(child, 0)
result = [published(path)[0], ctypes.string_at(a + MIB, 1)[0]]
"""
    assert native(_PINNED + code) == [2 * MIB, 7]


def test_registered_memory_is_counted_with_what_a_gpu_would_make_resident(native: Native, tmp_path: Path) -> None:
    code = f"""
import mmap
path = {str(tmp_path / "pinned")!r}.encode()
gpu.peakmem_publish_pinned(path)
block = mmap.mmap(-1, 4 * MIB)
address = ctypes.addressof(ctypes.c_char.from_buffer(block))
block[:MIB] = b"x" * MIB
register = lambda: gpu.cudaHostRegister(ctypes.c_void_p(address), ctypes.c_size_t(4 * MIB), 0)
register()
during = published(path)
done = [gpu.cudaHostUnregister(ctypes.c_void_p(address)), gpu.cudaHostUnregister(ctypes.c_void_p(address))]
result = [during[2:5], published(path)[2:5], done]
"""
    during, after, done = native(_PINNED + code)
    assert during == [4 * MIB, 4 * MIB, 3 * MIB]
    assert after == [0, 4 * MIB, 0]
    assert done == [0, 1]


def test_pages_that_a_copy_to_the_device_would_read_are_counted(native: Native, tmp_path: Path) -> None:
    code = f"""
import mmap
path = {str(tmp_path / "data")!r}
with open(path, "wb") as file:
    file.truncate(8 * MIB)
with open(path, "r+b") as file:
    block = mmap.mmap(file.fileno(), 8 * MIB)
address = ctypes.addressof(ctypes.c_char.from_buffer(block))
a = malloc(8 * MIB)
copy = lambda: gpu.cudaMemcpy(ctypes.c_void_p(a), ctypes.c_void_p(address), ctypes.c_size_t(8 * MIB), 1)
block.madvise(mmap.MADV_RANDOM)
written = b"x" * MIB
block[:MIB] = written
copy()
result = [report()["pinned"]["unread"], block[5 * MIB]]
"""
    assert native(code) == [7 * MIB, 0]
