"""Parsing by version: what is in force, what is refused, with which exception, and where."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peakmem.allocator.settings import REFERENCE, Call, Settings, TorchVersion, caret, parse
from peakmem.allocator.settings.options import table
from peakmem.allocator.settings.releases import MINOR_RELEASES, accepted_by
from peakmem.errors import PeakmemError
from peakmem.units import GIB, MIB


def at(version: str) -> TorchVersion:
    return TorchVersion.parse(version)


def divisions(string: str, version: str = "2.14.1") -> tuple[int, ...]:
    return parse(string, version=at(version)).require().roundup_power2_divisions


def test_every_option_resolves_to_bytes_and_numbers() -> None:
    string = (
        "max_split_size_mb:128,max_non_split_rounding_mb:40,large_segment_size_mb:30,garbage_collection_threshold:0.5,"
        "roundup_power2_divisions:8,expandable_segments:True,per_process_memory_fraction:0.9,throw_on_cudamalloc_oom:True,"
        "release_lock_on_cudamalloc:True,graph_capture_record_stream_reuse:True,pinned_use_cuda_host_register:True,"
        "pinned_num_register_threads:8,pinned_use_background_threads:True,pinned_reserve_segment_size_mb:16,"
        "pinned_max_round_threshold_mb:4,pinned_max_cached_size_mb:1024,pinned_free_catch_all:True,backend:native"
    )
    assert parse(string).require() == Settings(
        backend="native",
        max_split_size=128 * MIB,
        max_non_split_rounding=40 * MIB,
        large_segment_size=30 * MIB,
        garbage_collection_threshold=0.5,
        roundup_power2_divisions=(8,) * 16,
        expandable_segments=True,
        per_process_memory_fraction=0.9,
        throw_on_cudamalloc_oom=True,
        release_lock_on_cudamalloc=True,
        graph_capture_record_stream_reuse=True,
        pinned_use_cuda_host_register=True,
        pinned_num_register_threads=8,
        pinned_use_background_threads=True,
        pinned_reserve_segment_size=16 * MIB,
        pinned_max_round_threshold=4 * MIB,
        pinned_max_cached_size=GIB,
        pinned_free_catch_all=True,
    )
    assert parse(string).named_options() == {option.key for option in table()} - {"roundup_bypass_threshold_mb"}


def test_an_empty_string_gives_the_defaults() -> None:
    assert parse("").require() == Settings()


@pytest.mark.parametrize(
    ("string", "expected"),
    [
        # PyTorch's own test of these lists, c10/test/core/AllocatorConfig_test.cpp.
        ("[64:8,128:2,256:4,512:2,1024:4,>:1]", {32: 8, 64: 8, 128: 2, 256: 4, 512: 2, 1024: 4, 2048: 1, 8192: 1}),
        ("[128:8,256:16,512:1,2048:8,>:2]", {64: 8, 128: 8, 256: 16, 512: 1, 1024: 0, 2048: 8, 4096: 2}),
        ("[256:1,512:2,1024:4,>:8]", {1: 1, 256: 1, 512: 2, 1024: 4, 2048: 8, 32768: 8}),
        ("[>:4]", {1: 0, 2: 4, 32768: 4}),
        ("[]", {1: 0, 1024: 0}),
        ("4", {1: 4, 32768: 4}),
    ],
)
def test_the_table_of_divisions(string: str, expected: dict[int, int]) -> None:
    filled = divisions(f"roundup_power2_divisions:{string}")
    assert {size: filled[size.bit_length() - 1] for size in expected} == expected


def test_the_rest_of_a_list_begins_at_the_last_size_in_older_versions() -> None:
    string = "roundup_power2_divisions:[256:1,512:2,1024:4,>:8]"
    assert divisions(string, "2.9")[10] == 8
    assert divisions(string, "2.10")[10] == 4


@pytest.mark.parametrize(
    ("version", "string", "exception", "text", "marked"),
    [
        ("2.14.1", "foo:1", "ValueError", "Unrecognized key 'foo' in CUDA allocator config.", "foo"),
        ("2.9", "foo:1", "RuntimeError", "Unrecognized CachingAllocator option: foo", "foo"),
        ("1.13", "foo:1", "RuntimeError", "Unrecognized CachingAllocator option: foo", "foo"),
        (
            "2.14.1",
            "max_split_size_mb:19",
            "ValueError",
            "CachingAllocator option max_split_size_mb too small, must be >= 20",
            "19",
        ),
        (
            "2.6",
            "max_split_size_mb:20",
            "RuntimeError",
            "CachingAllocator option max_split_size_mb too small, must be > 20",
            "20",
        ),
        ("2.14.1", "max_split_size_mb:x", "RuntimeError", "stoull", "x"),
        ("2.6", "max_split_size_mb:x", "RuntimeError", "stoi", "x"),
        (
            "2.14.1",
            "expandable_segments:true",
            "ValueError",
            "Expected 'True' or 'False' at index 2 in ConfigTokenizer but got 'true'",
            "true",
        ),
        (
            "2.1",
            "expandable_segments:true",
            "RuntimeError",
            "Expected a single True/False argument for expandable_segments",
            "true",
        ),
        (
            "2.0",
            "expandable_segments:True",
            "RuntimeError",
            "Unrecognized CachingAllocator option: expandable_segments",
            "expandable_segments",
        ),
        (
            "2.6",
            "max_split_size_mb:64;expandable_segments:True",
            "RuntimeError",
            "Error parsing CachingAllocator settings, expected ,",
            ":",
        ),
        (
            "2.14.1",
            "garbage_collection_threshold:1",
            "ValueError",
            "garbage_collect_threshold is invalid, set it in (0.0, 1.0)",
            "1",
        ),
        (
            "2.6",
            "garbage_collection_threshold:1",
            "RuntimeError",
            "garbage_collect_threshold too big, set it 0.0~1.0",
            "1",
        ),
        (
            "2.6",
            "garbage_collection_threshold:0",
            "RuntimeError",
            "garbage_collect_threshold too small, set it 0.0~1.0",
            "0",
        ),
        (
            "2.6",
            "roundup_power2_divisions:[4:3]",
            "RuntimeError",
            "For roundups, the divisons has to be power of 2 or 0 to disable roundup ",
            "3",
        ),
        (
            "2.1",
            "roundup_power2_divisions:[4:0]",
            "RuntimeError",
            "For roundups, the divisons has to be power of 2 ",
            "0",
        ),
        ("1.13", "roundup_power2_divisions:[256:1,512:2]", "RuntimeError", "stoi", "[256"),
        (
            "2.14.1",
            "roundup_bypass_threshold_mb:64",
            "ValueError",
            "Unrecognized key 'roundup_bypass_threshold_mb' in CUDA allocator config.",
            "roundup_bypass_threshold_mb",
        ),
        (
            "2.14.1",
            "backend:foo",
            "ValueError",
            "Unknown allocator backend, options are native and cudaMallocAsync",
            "foo",
        ),
    ],
)
def test_a_refusal_names_exception_text_and_place(
    version: str, string: str, exception: str, text: str, marked: str
) -> None:
    refusal = parse(string, version=at(version)).refusal
    assert refusal is not None
    assert (refusal.exception, refusal.text) == (exception, text)
    assert string[refusal.start : refusal.end] == marked


def test_the_class_of_a_bad_number_depends_on_the_way_it_came() -> None:
    def exception(string: str, call: Call) -> str:
        refusal = parse(string, call=call).refusal
        assert refusal is not None
        return refusal.exception

    assert exception("max_split_size_mb:x", Call.RUN_TIME) == "ValueError"
    assert exception("max_split_size_mb:99999999999999999999", Call.RUN_TIME) == "IndexError"
    assert exception("max_split_size_mb:x", Call.ENVIRONMENT) == "RuntimeError"


@pytest.mark.parametrize(
    ("string", "suggestion"),
    [
        ("max_split_mb:128", "did you mean max_split_size_mb?"),
        ("max_split_size:128", "did you mean max_split_size_mb?"),
        ("expandable_segment:True", "did you mean expandable_segments?"),
        ("gc_threshold:0.8", "did you mean garbage_collection_threshold?"),
        ("Max_Split_Size_MB:64", "did you mean max_split_size_mb?"),
        ("max_split_size_mb=64", "write max_split_size_mb:64"),
        ("expandable_segments=True", "write expandable_segments:True"),
        ("'max_split_size_mb:512'", "remove the quotes"),
        ("expandable_segments:true", "write expandable_segments:True"),
        ("expandable_segments:0", "write expandable_segments:False"),
        ("max_split_size_mb:", "write max_split_size_mb:VALUE"),
        ("roundup_bypass_threshold_mb:5", "use roundup_power2_divisions as a list"),
    ],
)
def test_a_refusal_suggests_what_to_write(string: str, suggestion: str) -> None:
    refusal = parse(string).refusal
    assert refusal is not None
    assert suggestion in refusal.suggestion


@pytest.mark.parametrize(
    "string", ["max_split_size_mb", "max_split_size_mb:", "foo", ",", "roundup_power2_divisions:["]
)
def test_a_string_that_ends_too_early_aborts_the_import_of_torch(string: str) -> None:
    refusal = parse(string).refusal
    assert refusal is not None
    assert refusal.aborts
    late = parse(string, call=Call.RUN_TIME).refusal
    assert late is not None
    assert not late.aborts
    old = parse(string, version=at("2.9")).refusal
    assert old is None or not old.aborts


@pytest.mark.parametrize(
    ("version", "string", "backend"),
    [
        ("2.14.1", "backend:cudaMallocAsync", "cudaMallocAsync"),
        ("2.6", "backend:cudaMallocAsync", "cudaMallocAsync"),
        # The parser that chooses the backend splits at blanks, the one that checks it does not.
        ("2.6", "backend: cudaMallocAsync", None),
        ("2.14.1", "backend: cudaMallocAsync", "cudaMallocAsync"),
        ("2.14.1", "backend:native,backend:cudaMallocAsync", None),
    ],
)
def test_the_backend_is_chosen_at_load(version: str, string: str, backend: str | None) -> None:
    result = parse(string, version=at(version))
    assert (result.settings.backend if result.accepted else None) == backend


def test_the_caret_stands_under_the_fault() -> None:
    assert caret(parse("max_split_size_mb:64,foo:1")) == (
        "  max_split_size_mb:64,foo:1\n"
        "                       ^^^"
    )  # fmt: skip
    assert caret(parse("max_split_size_mb:64")) == ""
    assert caret(parse("max_split_size_mb:")).splitlines()[1].index("^") == 2 + len("max_split_size_mb:")


def test_an_unclosed_list_reads_beyond_its_end_in_older_versions() -> None:
    refusal = parse("roundup_power2_divisions:[256:1", version=at("2.6")).refusal
    assert refusal is not None
    assert refusal.exception == ""
    assert "crashes" in refusal.reason


def test_a_refused_string_leaves_what_stands_before_the_fault_in_force() -> None:
    string = "garbage_collection_threshold:0.5,max_split_size_mb:64,roundup_power2_divisions:4,max_split_size_mb:5"
    result = parse(string, call=Call.RUN_TIME)
    assert not result.accepted
    assert result.settings.garbage_collection_threshold == 0.5
    assert result.settings.max_split_size == 64 * MIB
    assert result.settings.roundup_power2_divisions == (4,) * 16
    with pytest.raises(PeakmemError, match=r"(?s)refuses .*\^"):
        result.require()


def test_a_run_time_call_resets_four_options_and_keeps_the_rest() -> None:
    before = parse(
        "max_split_size_mb:64,garbage_collection_threshold:0.5,roundup_power2_divisions:4,max_non_split_rounding_mb:50,"
        "expandable_segments:True,large_segment_size_mb:30,throw_on_cudamalloc_oom:True"
    ).require()
    after = parse("pinned_num_register_threads:2", call=Call.RUN_TIME, before=before).require()
    assert after.max_split_size is None
    assert after.garbage_collection_threshold == 0
    assert after.roundup_power2_divisions == (0,) * 16
    assert after.max_non_split_rounding == 30 * MIB
    assert after.expandable_segments
    assert after.throw_on_cudamalloc_oom
    assert after.large_segment_size == 30 * MIB


def test_the_limits_of_sizes_follow_the_large_segment_wherever_it_stands() -> None:
    for string in ("large_segment_size_mb:40,max_split_size_mb:30", "max_split_size_mb:30,large_segment_size_mb:40"):
        refusal = parse(string).refusal
        assert refusal is not None
        assert refusal.text.endswith("must be >= 40")
    assert parse("large_segment_size_mb:11,max_split_size_mb:15").accepted


@pytest.mark.parametrize(
    ("string", "size"),
    [("64.7", 64 * MIB), ("64mb", 64 * MIB), ("+64", 64 * MIB), ("6 4", 64 * MIB), ("-1", None), ("007", "refused")],
)
def test_numbers_are_read_as_c_does(string: str, size: object) -> None:
    result = parse(f"max_split_size_mb:{string}")
    assert (result.settings.max_split_size if result.accepted else "refused") == size


def test_separators_that_are_skipped_are_told() -> None:
    result = parse("max_split_size_mb:64:garbage_collection_threshold:0.5")
    assert result.accepted
    assert [result.text[start:end] for start, end in result.ignored] == [":"]
    old = parse("max_split_size_mb=64", version=at("1.13"))
    assert old.accepted
    assert old.settings == Settings()
    assert old.ignored == ((0, 20),)


@pytest.mark.parametrize(
    ("string", "releases"),
    [
        ("", "1.10 to 2.14"),
        ("max_split_size_mb:128", "1.10 to 2.14"),
        ("max_split_size_mb:20", "2.10 to 2.14"),
        ("garbage_collection_threshold:0.5", "1.12 to 2.14"),
        ("roundup_power2_divisions:[4:2]", "2.0 to 2.14"),
        ("roundup_bypass_threshold_mb:64", "1.13"),
        ("expandable_segments:True", "2.1 to 2.14"),
        ("pinned_use_cuda_host_register:True", "2.2 to 2.14"),
        ("max_non_split_rounding_mb:40", "2.6 to 2.14"),
        ("graph_capture_record_stream_reuse:True", "2.9 to 2.14"),
        ("per_process_memory_fraction:0.5", "2.10 to 2.14"),
        ("large_segment_size_mb:40", "2.11 to 2.14"),
        ("throw_on_cudamalloc_oom:True", "2.12 to 2.14"),
        ("pinned_max_cached_size_mb:4", "2.13 to 2.14"),
        ("nonsense:1", ""),
    ],
)
def test_the_releases_that_accept_a_string(string: str, releases: str) -> None:
    assert accepted_by(string) == releases


ANYTHING = st.one_of(
    st.text(max_size=60),
    st.text(alphabet=",:[]>= \tTrue0123456789.-_max_split_size_mb", max_size=60),
    st.lists(
        st.builds(
            "{}{}{}".format,
            st.sampled_from([option.key for option in table()]),
            st.sampled_from([":", "=", " : ", ""]),
            st.sampled_from(["64", "True", "0.5", "[1:2,>:4]", "native", "", "[", "x"]),
        ),
        max_size=4,
    ).map(",".join),
)


@given(ANYTHING, st.sampled_from(MINOR_RELEASES), st.sampled_from(list(Call)))
def test_every_string_gets_a_verdict_with_a_place_inside_it(string: str, release: str, call: Call) -> None:
    result = parse(string, version=at(release), call=call)
    if result.refusal is None:
        assert caret(result) == ""
    else:
        assert 0 <= result.refusal.start <= len(string)
        assert result.refusal.start < result.refusal.end <= len(string) + 1
        assert result.refusal.reason
    for start, end in result.ignored:
        assert string[start:end]
    for named in result.named:
        assert string[named.start] == named.key[0]


@given(ANYTHING)
def test_parsing_again_gives_the_same(string: str) -> None:
    first = parse(string)
    if first.accepted:
        assert parse(string, before=first.settings).settings == first.settings


@given(ANYTHING)
def test_white_space_between_tokens_changes_nothing(string: str) -> None:
    spaced = string.replace(",", " , ").replace(":", "\t:\n")
    one, other = parse(string), parse(spaced)
    assert one.accepted == other.accepted
    assert one.settings == other.settings


@pytest.mark.parametrize("text", ["", "two", "1", "2.x"])
def test_a_version_must_be_one(text: str) -> None:
    with pytest.raises(PeakmemError, match="is not a PyTorch version"):
        TorchVersion.parse(text)


def test_versions_before_the_options_are_refused() -> None:
    with pytest.raises(PeakmemError, match="has no allocator options"):
        TorchVersion.parse("1.9.1")
    assert TorchVersion.parse("v2.14.1+cu130") == REFERENCE
    assert TorchVersion.parse("2.9.0a0+git123").minor == 9
