"""What XLA's allocator makes of a call, and the card as XLA is told of it; no JAX is needed."""

from __future__ import annotations

import re

from peakmem.vgpu.catalogue import find_device
from peakmem.workload.jax.analysis import JaxMemory, room_on
from peakmem.workload.jax.target import target_config

MIB = 2**20
GIB = 2**30


def call(*, arguments=(), outputs=(), aliased=0, temporary=0) -> JaxMemory:
    return JaxMemory(
        jax="0.10.2",
        target="GPU",
        why_cpu="",
        arguments=sum(arguments),
        outputs=sum(outputs),
        aliased=aliased,
        temporary=temporary,
        code=0,
        peak=0,
        argument_sizes=tuple(arguments),
        output_sizes=tuple(outputs),
    )


def test_what_is_in_use_is_the_sum_less_what_is_reused():
    memory = call(arguments=(16 * MIB, 16 * MIB), outputs=(16 * MIB,), aliased=16 * MIB, temporary=5)
    assert memory.in_use == 32 * MIB + 5


def test_the_allocator_takes_regions_that_double():
    card = find_device("a100-80")
    room = room_on(card, call(arguments=(3 * MIB, 3 * MIB), temporary=20 * MIB), usable=card.total_memory)
    # 4 MiB for the first (2 is doubled), 4 for the second, 32 for the block: 4 and 8 are doubled for their requests.
    assert room.grown == 4 * MIB + 4 * MIB + 32 * MIB
    assert room.limit == int(card.total_memory * 0.75)
    assert room.fits


def test_more_than_three_quarters_of_the_card_do_not_fit():
    card = find_device("a100-80")
    assert room_on(card, call(temporary=59 * GIB), usable=card.total_memory).fits
    assert not room_on(card, call(temporary=60 * GIB), usable=card.total_memory).fits
    assert not room_on(card, call(temporary=59 * GIB), usable=58 * GIB).fits


def test_the_card_is_told_as_it_is():
    card = find_device("4090")
    told = dict(re.findall(r"(\w+): (\S+)", target_config(card)))
    assert int(told["device_memory_size"]) == card.total_memory
    assert int(told["core_count"]) == card.multiprocessors == 128
    assert told["fpus_per_core"] == "128"
    # 1,008 GB/s by NVIDIA's data sheet of the RTX 4090.
    assert abs(int(told["memory_bandwidth"]) / 1008e9 - 1) < 0.01
