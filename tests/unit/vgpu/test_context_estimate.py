from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peakmem.errors import PeakmemError
from peakmem.units import GIB, MIB
from peakmem.vgpu.catalogue import Device, devices, find_device
from peakmem.vgpu.context import estimate_context

PUBLISHED = {"3090": 256, "3080ti": 250, "a100-80": 382, "6000ada": 426, "h100": 534, "h200": 528, "b200": 628}


@pytest.mark.parametrize(("name", "mib"), PUBLISHED.items())
def test_a_card_with_a_figure_of_its_own_gets_it(name: str, mib: int) -> None:
    estimate = estimate_context(find_device(name), "12.8", libraries_used=())
    assert estimate.size == estimate.idle == mib * MIB
    assert estimate.error <= 30 * MIB
    assert len(estimate.sources) == 1


def test_a_figure_that_was_taken_after_work_is_met_after_work() -> None:
    t4 = estimate_context(find_device("t4"), "12.4", libraries_used={"cublas"})
    assert abs(t4.size - 140.875 * MIB) < MIB
    assert t4.idle < t4.size


def test_convolutions_on_an_a100_agree_with_published_trainings() -> None:
    estimate = estimate_context(find_device("a100-40"), "12.1", libraries_used={"cublas", "cudnn"})
    assert abs(estimate.size - 524 * MIB) < 10 * MIB


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_card_without_a_figure_is_within_the_stated_error(name: str) -> None:
    from peakmem.vgpu import context

    table = context._table()
    device = find_device(name)
    others = [row for row in table.contexts if row.lazy_loading and row.device.name != device.name]
    predicted = context._line(table, others)(context._threads(device))
    stated = estimate_context(find_device("4090"), "12.8", libraries_used=()).error
    assert abs(predicted - PUBLISHED[name] * MIB) <= stated
    assert stated < 150 * MIB


@given(
    st.sampled_from(devices()), st.sampled_from(["11.8", "12.4", "13.0"]), st.sets(st.sampled_from(["cublas", "cudnn"]))
)
def test_the_books_close(device: Device, cuda: str, libraries: set[str]) -> None:
    estimate = estimate_context(device, cuda, libraries_used=libraries)
    assert estimate.size == estimate.idle + sum(size for _, size in estimate.libraries)
    assert {name for name, _ in estimate.libraries} == libraries
    assert 0 < estimate.error <= estimate.size
    assert 40 * MIB < estimate.size < 1.2 * GIB
    assert all(estimate.sources)


@given(st.sampled_from(devices()))
def test_all_kernels_at_the_start_take_more(device: Device) -> None:
    eager = estimate_context(device, "12.4", lazy_loading=False)
    lazy = estimate_context(device, "12.4")
    assert eager.size > lazy.size
    assert eager.error > lazy.error
    assert eager.libraries == ()


def test_before_cuda_11_7_nothing_is_lazy() -> None:
    device = find_device("2080ti")
    assert estimate_context(device, "11.6") == estimate_context(device, "11.6", lazy_loading=False)
    assert estimate_context(device, "11.6").size == 878 * MIB
    assert estimate_context(device, "11.7").size < 500 * MIB


def test_what_is_not_known_is_said() -> None:
    with pytest.raises(ValueError, match="no figure for the library 'cufft'; known are cublas, cudnn"):
        estimate_context(find_device("t4"), "12.4", libraries_used={"cufft"})
    with pytest.raises(PeakmemError, match="'new' is not a CUDA version"):
        estimate_context(find_device("t4"), "new")
