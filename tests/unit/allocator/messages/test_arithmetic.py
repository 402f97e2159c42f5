"""The arithmetic of PyTorch's own message: each situation gets its verdict, with the figures that decide."""

from __future__ import annotations

import pytest

from peakmem.allocator.messages import Explanation, Process, Verdict, explain
from peakmem.units import GIB, MIB

HINT = (
    " If reserved but unallocated memory is large try setting "
    "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid "
    "fragmentation.  See documentation for Memory Management  "
    "(https://pytorch.org/docs/stable/notes/cuda.html#environment-variables)"
)


def message(
    size: str, total: str, free: str, allocated: str, unallocated: str, *, processes: str = "", allowed: str = ""
) -> str:
    return (
        f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {size}. GPU 0 has a total "
        f"capacity of {total} of "
        f"which {free} is free. {processes}{allowed}Of the allocated memory {allocated} is allocated by PyTorch, and "
        f"{unallocated} is reserved by PyTorch but unallocated.{HINT}"
    )


def only(text: str, **options: str) -> Explanation:
    found = explain(text, **options)
    assert len(found) == 1
    return found[0]


def test_stranded_memory_that_would_suffice_is_fragmentation_and_the_hint_is_right() -> None:
    # Public report: Tianhao-Qi/Mask2DiT issue 4.
    text = message(
        "35.60 GiB",
        "79.33 GiB",
        "26.16 GiB",
        "11.97 GiB",
        "40.69 GiB",
        processes="Process 12 has 53.16 GiB memory in use. ",
    )
    found = only(text)
    assert found.verdict is Verdict.FRAGMENTATION
    assert found.option_helps is True
    assert found.alloc_conf == "expandable_segments:True"
    assert found.figures.missing == 0
    # The one process named is this one: it holds little more than PyTorch reserved.
    assert found.figures.other_processes == ()
    assert "31.25 GiB more than asked for" in found.option


def test_a_full_card_is_a_shortage_although_the_little_that_is_stranded_would_just_suffice() -> None:
    # Public report: derrian-distro/LoRA_Easy_Training_Scripts issue 178, where the printed hint is wrong.
    found = only(message("90.00 MiB", "8.00 GiB", "0 bytes", "7.13 GiB", "127.09 MiB"))
    assert found.verdict is Verdict.SHORTAGE
    assert found.option_helps is False
    assert "activation checkpointing" in found.first
    assert "1.7%" in found.option


def test_memory_outside_the_pool_is_named() -> None:
    # Public report: CompVis/taming-transformers issue 194, run with max_split_size_mb:128.
    text = (
        "RuntimeError: CUDA out of memory. Tried to allocate 1.39 GiB (GPU 0; 6.00 GiB total "
        "capacity; 4.04 GiB already "
        "allocated; 478.00 MiB free; 4.15 GiB reserved in total by PyTorch) If reserved memory is >> "
        "allocated memory try "
        "setting max_split_size_mb to avoid fragmentation.  See documentation for Memory Management and "
        "PYTORCH_CUDA_ALLOC_CONF"
    )
    found = only(text)
    assert found.verdict is Verdict.SHORTAGE
    assert found.option_helps is False
    assert "1.38 GiB is used outside PyTorch's pool" in found.happened
    assert found.figures.outside is not None
    assert abs(found.figures.outside - 1.4 * GIB) < 0.05 * GIB


def test_missing_memory_is_counted_to_the_printed_digit() -> None:
    found = only(message("2.00 GiB", "24.00 GiB", "512.00 MiB", "22.00 GiB", "300.00 MiB"))
    assert found.verdict is Verdict.SHORTAGE
    assert found.figures.missing == 2 * GIB - 812 * MIB
    assert "1.21 GiB would be missing" in found.option


def test_another_process_that_holds_what_is_missing_is_named() -> None:
    text = message(
        "2.00 GiB",
        "24.00 GiB",
        "500.00 MiB",
        "10.00 GiB",
        "100.00 MiB",
        processes="Process 4711 has 12.50 GiB memory in use. Including non-PyTorch memory, this process has 10.60 GiB "
        "memory in use. ",
    )
    found = only(text)
    assert found.verdict is Verdict.OTHER_PROCESS
    assert found.figures.other_processes == (Process(pid=4711, used=int(12.5 * GIB)),)
    assert "process 4711 holds 12.50 GiB" in found.happened


def test_a_limit_refuses_while_the_card_has_room() -> None:
    text = message("2.00 GiB", "24.00 GiB", "17.00 GiB", "5.00 GiB", "100.00 MiB", allowed="6.00 GiB allowed; ")
    found = only(text)
    assert found.verdict is Verdict.CAP
    assert found.option_helps is False
    assert "7.10 GiB" in found.first
    assert "17.00 GiB free" in found.happened


def test_a_limit_that_a_better_packing_would_meet() -> None:
    text = message("1.00 GiB", "24.00 GiB", "17.00 GiB", "3.00 GiB", "2.90 GiB", allowed="6.00 GiB allowed; ")
    found = only(text)
    assert found.verdict is Verdict.CAP
    assert found.option_helps is True
    assert found.alloc_conf == "expandable_segments:True"


def test_a_request_larger_than_the_card_is_impossible() -> None:
    found = only(message("110.00 GiB", "23.69 GiB", "20.00 GiB", "2.00 GiB", "100.00 MiB"))
    assert found.verdict is Verdict.IMPOSSIBLE
    assert found.option_helps is False
    assert "110.00 GiB" in found.happened


def test_a_convolution_beyond_two_to_the_31_elements() -> None:
    # Public report: pytorch/pytorch issue 95024, where one voxel more asks for 110 GiB.
    text = 'File "conv.py", line 608, in _conv_forward\n    return F.conv3d(\n' + message(
        "108.20 GiB", "39.59 GiB", "30.00 GiB", "8.00 GiB", "100.00 MiB"
    )
    found = only(text)
    assert found.verdict is Verdict.IMPOSSIBLE
    assert "below 2^31 elements" in found.first


@pytest.mark.parametrize("size", ["17179869183.95 GiB", "18446744073709551616 bytes", "2048.00 TiB"])
def test_an_overflowed_size_is_called_that(size: str) -> None:
    assert only(message(size, "23.69 GiB", "20.00 GiB", "2.00 GiB", "100.00 MiB")).verdict is Verdict.OVERFLOW


def test_a_request_of_more_than_an_exbibyte() -> None:
    found = only("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate more than 1EB memory.")
    assert found.verdict is Verdict.OVERFLOW


def test_an_overflowed_process_figure_is_left_out_and_said() -> None:
    text = message(
        "2.00 GiB",
        "24.00 GiB",
        "0 bytes",
        "22.80 GiB",
        "100.00 MiB",
        processes="Including non-PyTorch memory, this process has 17179869184.00 GiB memory in use. ",
    )
    found = only(text)
    assert found.verdict is Verdict.SHORTAGE
    assert found.figures.this_process is None
    assert found.notes == ("The figure for this process is an overflowed number and was left out.",)


def test_more_allocated_than_the_card_has_is_a_spill() -> None:
    found = only(message("512.00 MiB", "8.00 GiB", "0 bytes", "14.20 GiB", "300.00 MiB"))
    assert found.verdict is Verdict.SPILL
    assert "shared memory" in found.happened
    assert "6.49 GiB" in found.happened


def test_free_memory_that_was_refused_without_a_limit() -> None:
    found = only(message("2.00 GiB", "24.00 GiB", "9.00 GiB", "10.00 GiB", "100.00 MiB"))
    assert found.verdict is Verdict.RACE
    assert found.option_helps is False


@pytest.mark.parametrize(
    "figures",
    [
        ("1.00 GiB", "8.00 GiB", "9.00 GiB", "2.00 GiB", "100.00 MiB"),
        ("1.00 GiB", "8.00 GiB", "6.00 GiB", "5.00 GiB", "1.00 GiB"),
    ],
)
def test_figures_that_do_not_add_up_are_called_inconsistent(figures: tuple[str, str, str, str, str]) -> None:
    found = only(message(*figures))
    assert found.verdict is Verdict.INCONSISTENT
    assert found.option_helps is None


def test_a_process_that_holds_less_than_its_own_pool_is_inconsistent() -> None:
    text = message(
        "1.00 GiB",
        "24.00 GiB",
        "500.00 MiB",
        "20.00 GiB",
        "1.00 GiB",
        processes="Including non-PyTorch memory, this process has 5.00 GiB memory in use. ",
    )
    assert only(text).verdict is Verdict.INCONSISTENT


def test_private_pools_are_noted() -> None:
    text = message("4.00 GiB", "80.00 GiB", "1.00 GiB", "47.00 GiB", "30.00 GiB").replace(
        "is allocated by PyTorch, and", "is allocated by PyTorch, with 46.22 GiB allocated in "
        "private pools (e.g., CUDA "
        "Graphs), and",
    )  # fmt: skip
    found = only(text)
    assert found.verdict is Verdict.FRAGMENTATION
    assert found.figures.private_pools == int(46.22 * GIB)
    assert "private pools" in found.notes[0]


def test_expandable_segments_that_are_on_already_are_not_advised_again() -> None:
    text = message("1.00 GiB", "24.00 GiB", "200.00 MiB", "18.00 GiB", "5.00 GiB")
    assert only(text).alloc_conf == "expandable_segments:True"
    for found in (
        only(text, alloc_conf="expandable_segments:True"),
        only(f"+ export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True\n{text}"),
    ):
        assert found.verdict is Verdict.FRAGMENTATION
        assert found.alloc_conf == ""
        assert "in force already" in found.option


def test_the_advice_fits_the_version_and_the_platform() -> None:
    old = (
        "CUDA out of memory. Tried to allocate 1.00 GiB (GPU 0; 24.00 GiB total capacity; 15.00 GiB already allocated; "
        "200.00 MiB free; 22.00 GiB reserved in total by PyTorch)"
    )
    assert only(old).alloc_conf == ""
    assert "newer PyTorch" in only(old).first
    hinted = f"{old} If reserved memory is >> allocated memory try setting max_split_size_mb to avoid fragmentation."
    assert only(hinted).alloc_conf == "max_split_size_mb:128"
    new = message("1.00 GiB", "24.00 GiB", "200.00 MiB", "15.00 GiB", "7.00 GiB")
    windows = f'  File "C:\\ai\\venv\\lib\\site-packages\\torch\\nn\\modules\\module.py", line 1518\n{new}'
    assert only(windows).alloc_conf == "max_split_size_mb:128"
    assert only(new.replace("CUDA out", "HIP out")).first.startswith("Start the run with PYTORCH_HIP_ALLOC_CONF=")


@pytest.mark.parametrize(
    ("frame", "expected"),
    [
        ('  File "train.py", line 9, in main\n    optimizer.step()', "optimizer's step"),
        ('  File "train.py", line 9, in main\n    state = torch.load(path)', "map_location='cpu'"),
        ('  File "train.py", line 9, in main\n    loss.backward()', "activation checkpointing"),
        ('  File "f.py", line 3, in forward\n    loss = F.cross_entropy(logits, y)', "chunked"),
    ],
)
def test_the_first_thing_to_try_follows_the_traceback(frame: str, expected: str) -> None:
    text = f"Traceback (most recent call last):\n{frame}\n" + message(
        "2.00 GiB", "24.00 GiB", "100.00 MiB", "22.80 GiB", "300.00 MiB"
    )
    assert expected in only(text).first
