"""The BFC allocator: worked examples, and what holds whatever is asked for."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from peakmem.allocator.bfc import BfcAllocator, BfcError, BfcOptions, Device
from peakmem.allocator.bfc.allocator import bin_of, rounded

MIB = 2**20
GIB = 2**30


def growing(limit: int = GIB, **options) -> BfcAllocator:
    return BfcAllocator(BfcOptions(limit=limit, growth=True, **options))


def test_requests_are_rounded_to_256_bytes():
    assert [rounded(size) for size in (1, 256, 257, 1000)] == [256, 256, 512, 1024]


def test_each_bin_holds_twice_the_size_of_the_one_before():
    assert [bin_of(size) for size in (256, 511, 512, 1023, 1024, 256 * MIB, GIB)] == [0, 0, 1, 1, 2, 20, 20]


def test_growth_splits_and_best_fit():
    bfc = growing()
    bfc.allocate(1000)
    assert (bfc.statistics.in_use, bfc.pool) == (1024, 2 * MIB)
    bfc.allocate(3 * MIB)  # a region of 4 MiB, handed out whole: 1 MiB is left, and 4 is less than twice 3
    assert (bfc.statistics.in_use, bfc.pool) == (4 * MIB + 1024, 6 * MIB)
    large = bfc.allocate(20 * MIB)  # 8 is doubled to 32
    assert (bfc.statistics.in_use, bfc.pool) == (36 * MIB + 1024, 38 * MIB)
    bfc.allocate(10 * MIB)  # 32 again, since the last one was doubled for its request; split
    assert (bfc.statistics.in_use, bfc.pool) == (46 * MIB + 1024, 70 * MIB)
    bfc.free(large)
    bfc.allocate(12 * MIB)  # the smaller of 22 and 32 MiB, whole
    assert (bfc.statistics.in_use, bfc.pool) == (36 * MIB + 1024, 70 * MIB)
    bfc.allocate(40 * MIB)
    assert bfc.pool == 134 * MIB


def test_without_growth_the_limit_is_taken_at_once():
    bfc = BfcAllocator(BfcOptions(limit=GIB))
    assert bfc.pool == 0
    bfc.allocate(1)
    assert (bfc.pool, bfc.statistics.in_use) == (GIB, 256)


def test_what_is_left_of_a_large_chunk_is_split_off_from_128_mib_on():
    for left, in_use in ((127 * MIB, 527 * MIB), (128 * MIB, 400 * MIB)):
        bfc = BfcAllocator(BfcOptions(limit=400 * MIB + left))
        bfc.allocate(400 * MIB)
        assert bfc.statistics.in_use == in_use


def test_the_split_threshold_as_a_share_of_the_limit():
    bfc = BfcAllocator(BfcOptions(limit=500 * MIB, fragmentation_fraction=0.1))
    bfc.allocate(440 * MIB)
    assert bfc.statistics.in_use == 440 * MIB


def test_nothing_takes_nothing():
    bfc = growing()
    assert bfc.allocate(0) is None
    bfc.free(None)
    assert bfc.pool == 0


def test_a_device_with_less_than_the_limit_gives_a_smaller_region_once():
    bfc = BfcAllocator(BfcOptions(limit=GIB), Device(capacity=950 * MIB))
    bfc.allocate(MIB)
    assert bfc.pool == rounded(int(GIB * 0.9))


def test_free_regions_are_given_back_for_a_larger_one():
    bfc = growing(limit=32 * MIB)
    first = bfc.allocate(14 * MIB)
    assert bfc.pool == 16 * MIB
    bfc.free(first)
    bfc.allocate(30 * MIB)
    assert bfc.pool == 32 * MIB
    without = growing(limit=32 * MIB, garbage_collection=False)
    without.free(without.allocate(14 * MIB))
    with pytest.raises(BfcError) as error:
        without.allocate(30 * MIB)
    assert error.value.requested == 30 * MIB


def test_fragmentation_is_the_share_outside_the_largest_free_chunk():
    bfc = BfcAllocator(BfcOptions(limit=10 * MIB))
    blocks = [bfc.allocate(MIB) for _ in range(8)]
    assert bfc.fragmentation == 0.0
    bfc.free(blocks[0])
    assert bfc.fragmentation == pytest.approx(1 / 3)


def test_what_is_not_in_use_can_not_be_freed():
    bfc = growing()
    address = bfc.allocate(1000)
    bfc.free(address)
    with pytest.raises(ValueError, match="no chunk in use"):
        bfc.free(address)


@pytest.mark.parametrize("wrong", [{"limit": 0}, {"limit": GIB, "fragmentation_fraction": 2.0}])
def test_options_that_mean_nothing(wrong):
    with pytest.raises(ValueError, match=r"limit|fragmentation"):
        BfcOptions(**wrong)


SIZES = st.one_of(st.integers(0, 4096), st.integers(1, 64).map(lambda n: n * MIB), st.integers(1, 200 * MIB))
REQUESTS = st.lists(st.tuples(st.booleans(), SIZES, st.integers(0, 10**6)), max_size=60)


@settings(max_examples=150, deadline=None)
@given(requests=REQUESTS, growth=st.booleans(), limit=st.integers(MIB, 2 * GIB), less=st.integers(0, 512 * MIB))
def test_books_close_and_nothing_overlaps(requests, growth, limit, less):
    device = Device(capacity=max(limit - less, MIB))
    bfc = BfcAllocator(BfcOptions(limit=limit, growth=growth), device)
    held: dict[int, int] = {}
    peak = 0
    for allocates, size, which in requests:
        if allocates or not held:
            try:
                address = bfc.allocate(size)
            except BfcError:
                assert all(chunk.in_use or chunk.size < rounded(size) for chunk in bfc.chunks())
                continue
            if address is not None:
                assert address not in held
                held[address] = size
        else:
            address = sorted(held)[which % len(held)]
            del held[address]
            bfc.free(address)
        figures = bfc.statistics
        peak = max(peak, figures.in_use)
        assert figures.requested == sum(held.values()) <= figures.in_use <= figures.pool <= limit
        assert figures.pool == device.used <= device.capacity
        assert figures.peak_in_use == peak
    _check_chunks(bfc, held)
    for address in list(held):
        bfc.free(address)
    assert bfc.statistics.in_use == 0
    # Everything is joined again: one free chunk for each region.
    assert [(c.address, c.size) for c in bfc.chunks()] == sorted(bfc.regions().items())


def _check_chunks(bfc: BfcAllocator, held: dict[int, int]) -> None:
    end, before = 0, None
    for chunk in bfc.chunks():
        assert chunk.size % 256 == 0 and chunk.size > 0
        assert chunk.address >= end
        if before is not None and before.region == chunk.region:
            assert before.address + before.size == chunk.address
            assert before.in_use or chunk.in_use  # free neighbours would have been joined
        assert chunk.in_use == (chunk.address in held)
        if chunk.in_use:
            assert chunk.requested == held[chunk.address] <= chunk.size
        end, before = chunk.address + chunk.size, chunk
    assert sum(c.size for c in bfc.chunks()) == bfc.pool
