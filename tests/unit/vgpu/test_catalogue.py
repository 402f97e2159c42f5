from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peakmem.errors import PeakmemError
from peakmem.units import GIB, MIB
from peakmem.vgpu.catalogue import Device, custom_device, devices, find_device, search_devices, sold_memory

ALL = devices()


def names_of(device: Device) -> list[str]:
    shared = [other for other in ALL if other.name == device.name]
    return [*device.aliases, *([device.name] if len(shared) == 1 else [])]


every_name = st.sampled_from([(name, device) for device in ALL for name in names_of(device)])


def test_there_are_enough_cards_of_every_generation() -> None:
    assert len(ALL) >= 45
    assert {device.architecture for device in ALL} == {
        "Pascal", "Volta", "Turing", "Ampere", "Ada", "Hopper", "Blackwell",
    }  # fmt: skip


def test_published_memory_to_the_byte() -> None:
    assert find_device("RTX 3060").total_memory == 12_622_168_064
    assert find_device("RTX 4060").total_memory == 8_318_222_336
    assert find_device("A100-SXM4-40GB").total_memory == 42_474_471_424
    assert find_device("rtx 6000 ada").total_memory == 50_865_307_648
    assert find_device("t4").total_memory == 15_828_320_256


def test_an_alias_means_one_card_only() -> None:
    squashed = Counter(re.sub(r"[^a-z0-9]", "", alias.lower()) for device in ALL for alias in device.aliases)
    assert [alias for alias, count in squashed.items() if count > 1] == []


def test_no_alias_is_the_name_of_another_card() -> None:
    for device in ALL:
        for alias in device.aliases:
            assert find_device(alias) is device


@pytest.mark.parametrize("device", ALL, ids=lambda device: device.short_name)
def test_figures_are_plausible(device: Device) -> None:
    assert 3 * GIB < device.total_memory < 300 * GIB
    # The driver keeps something back, but not much.
    if device.smi_memory is not None:
        assert 0 < device.smi_memory - device.total_memory < max(512 * MIB, device.smi_memory / 16)
    assert device.total_memory < sold_memory(device) * 1.02 * GIB
    assert device.compute_capability >= (6, 0)
    assert device.multiprocessors % 2 == 0 or device.multiprocessors in {15, 19}
    assert MIB <= device.l2_cache <= 256 * MIB
    assert device.shared_memory_per_block_optin <= device.shared_memory_per_multiprocessor
    assert device.threads_per_multiprocessor in {1024, 1536, 2048}
    assert 300_000 <= device.clock_khz <= 3_000_000
    assert device.memory_bus_width % 32 == 0
    assert device.specification


@pytest.mark.parametrize("device", ALL, ids=lambda device: device.short_name)
def test_memory_agrees_with_the_text_it_was_read_from(device: Device) -> None:
    text = device.total_memory_source.replace(",", "")
    if device.total_memory_is == "reported":
        exact = f"{device.total_memory}" in text
        fraction = f"{device.total_memory / MIB:.10g}MB" in text
        assert exact or fraction
    elif device.total_memory_is == "reported_rounded":
        mib = [float(size) for size in re.findall(r"(\d{4,6}) ?(?:MiB|MB)", text)]
        mib += [float(size) * 1024 for size in re.findall(r"(\d+\.\d+) (?:GiB|GB)", text)]
        assert any(abs(size - device.total_memory / MIB) <= 6 for size in mib)
    else:
        assert "MiB" in text or text.startswith(("as the", "the 16 GB version"))


@pytest.mark.parametrize("device", ALL, ids=lambda device: device.short_name)
def test_guesses_name_fields(device: Device) -> None:
    assert set(device.guesses) <= set(device.as_dict())


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("4090", "NVIDIA GeForce RTX 4090"),
        ("rtx4090", "NVIDIA GeForce RTX 4090"),
        ("RTX 4090 24GB", "NVIDIA GeForce RTX 4090"),
        ("GeForce RTX 4090 Laptop GPU", "NVIDIA GeForce RTX 4090 Laptop GPU"),
        ("4090 laptop", "NVIDIA GeForce RTX 4090 Laptop GPU"),
        ("a100-80", "NVIDIA A100-SXM4-80GB"),
        ("A100 80GB", "NVIDIA A100-SXM4-80GB"),
        ("a100_40gb", "NVIDIA A100-SXM4-40GB"),
        ("A100 80GB PCIe", "NVIDIA A100 80GB PCIe"),
        ("a100 pcie 40", "NVIDIA A100-PCIE-40GB"),
        ("h100", "NVIDIA H100 80GB HBM3"),
        ("H100 SXM", "NVIDIA H100 80GB HBM3"),
        ("h100 nvl", "NVIDIA H100 NVL"),
        ("V100-SXM2-32GB", "Tesla V100-SXM2-32GB"),
        ("tesla t4", "Tesla T4"),
        ("2080 Ti", "NVIDIA GeForce RTX 2080 Ti"),
        ("A6000", "NVIDIA RTX A6000"),
        ("rtx 6000 ada", "NVIDIA RTX 6000 Ada Generation"),
        ("DGX Spark", "NVIDIA GB10"),
        ("b200", "NVIDIA B200"),
    ],
)
def test_what_people_type(typed: str, meant: str) -> None:
    assert find_device(typed).name == meant


def test_cards_of_one_name_are_told_apart_by_their_memory() -> None:
    assert find_device("4060 Ti 16GB").total_memory > 15 * GIB
    assert find_device("4060ti-8").total_memory < 8 * GIB
    assert find_device("3080").multiprocessors == 68
    assert find_device("3080 12GB").multiprocessors == 70


@pytest.mark.parametrize(
    ("typed", "message", "hint"),
    [
        ("a100", "'a100' can mean 4 GPUs", "say a100-40, a100-pcie-40, a100-80 or a100-pcie-80"),
        ("NVIDIA GeForce RTX 4060 Ti", "can mean 2 GPUs", "say 4060ti-8 or 4060ti-16"),
        ("v100", "can mean 4 GPUs", "v100-16"),
        ("rtx 9090", "no GPU 'rtx 9090' in the catalogue; the nearest are NVIDIA GeForce RTX 5090", "5090, 4090"),
        ("mi300x", "no GPU 'mi300x' in the catalogue", "--memory"),
        ("", "no GPU ''", "peakmem gpus"),
    ],
)
def test_what_is_not_one_card_gets_the_nearest_suggested(typed: str, message: str, hint: str) -> None:
    with pytest.raises(PeakmemError) as caught:
        find_device(typed)
    assert message in caught.value.message
    assert hint in caught.value.hint


@given(every_name, st.data())
def test_case_and_separators_never_matter(pair: tuple[str, Device], data: st.DataObject) -> None:
    name, device = pair
    parts = re.split(r"[ -]", name)
    typed = parts[0]
    for part in parts[1:]:
        typed += data.draw(st.sampled_from([" ", "-", "_", "  "])) + part
    typed = "".join(data.draw(st.sampled_from([letter.lower(), letter.upper()])) for letter in typed)
    assert find_device(typed) is device


@given(every_name, st.sampled_from(["NVIDIA ", "nvidia-", "GeForce ", "Tesla "]))
def test_the_maker_may_stand_before_the_name(pair: tuple[str, Device], maker: str) -> None:
    name, device = pair
    assert find_device(maker + name) is device


@given(every_name)
def test_the_memory_it_is_sold_with_may_follow_a_name(pair: tuple[str, Device]) -> None:
    name, device = pair
    assert find_device(f"{name} {sold_memory(device)}GB") is device


@given(st.text(max_size=30))
def test_any_text_finds_a_card_or_says_why_not(text: str) -> None:
    try:
        found = find_device(text)
    except PeakmemError as error:
        assert error.message and error.hint
        suggested = re.findall(r"[a-z0-9-]+", error.hint.removeprefix("say ")) if error.hint.startswith("say ") else []
        assert all(find_device(name) in ALL for name in suggested if name != "or")
    else:
        assert found in ALL


@given(st.sampled_from(ALL))
def test_a_search_for_a_card_finds_it(device: Device) -> None:
    assert device in search_devices(device.short_name)
    assert device in search_devices(device.architecture)
    assert set(search_devices("")) == set(ALL)


def test_a_search_takes_all_words() -> None:
    assert {device.name for device in search_devices("ada laptop")} == {
        f"NVIDIA GeForce RTX {number} Laptop GPU" for number in (4050, 4060, 4070, 4080, 4090)
    }
    with pytest.raises(PeakmemError, match="no GPU 'zx81'"):
        search_devices("zx81")


def test_memory_of_ones_own() -> None:
    card = custom_device(memory=24 * GIB, like=find_device("4090"))
    assert (card.total_memory, card.name, card.total_memory_is) == (24 * GIB, "NVIDIA GeForce RTX 4090", "given")
    assert card.total_memory_is == "given" and card.smi_memory is None
    assert custom_device(memory=GIB, like="t4").compute_capability == (7, 5)
    nameless = custom_device(memory=24 * GIB)
    assert nameless.name == "peakmem virtual GPU (24.00 GiB)"
    assert nameless.compute_capability == (8, 0)
    assert custom_device(like="t4") is find_device("t4")
    with pytest.raises(PeakmemError, match="can't have 0 bytes"):
        custom_device(memory=0)


def test_the_file_is_read_on_first_use_only() -> None:
    code = (
        "import peakmem.vgpu.catalogue as c; assert c.devices.cache_info().misses == 0;"
        "c.devices(); c.devices(); assert c.devices.cache_info().misses == 1"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
