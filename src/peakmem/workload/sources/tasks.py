"""What a model of transformers is trained for: the class with its head, and what it is fed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from peakmem.workload.model import Request

SECONDS_OF_SOUND = 10
SAMPLES_PER_SECOND = 16_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Values:
    """What a model is fed.

    Attributes:
        batch: statements that make the tensors on the host.
        names: keyword arguments of the model, in order; each has a `host_` tensor.
        floating: those that follow the precision.
        assumed: what was chosen, in words.
        has_tokens: whether sequences of tokens are among them.
    """

    batch: str
    names: tuple[str, ...]
    floating: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()
    has_tokens: bool = True


@dataclass(frozen=True, kw_only=True, slots=True)
class Task:
    """A head.

    Attributes:
        name: as in `--task`.
        auto: the class of transformers that makes it.
        suffixes: how the names of its architectures end.
        inputs: from the request, the configuration and the length of a sequence to what it is fed.
        settings: statements that change `config`.
        caches: whether keys and values of a text would be kept; the Trainer turns that off for training.
    """

    name: str
    auto: str
    suffixes: tuple[str, ...]
    inputs: Callable[[Request, dict[str, Any], int], Values]
    settings: tuple[str, ...] = ()
    caches: bool = False


_VOCABULARY = "config.get_text_config().vocab_size"


def _tokens(batch: int | None, *shape: int) -> str:
    size = ", ".join(map(str, (batch, *shape)))
    return f"host_input_ids = torch.randint({_VOCABULARY}, ({size},))\n"


def _language(request: Request, config: dict[str, Any], tokens: int) -> Values:
    return Values(
        batch=_tokens(request.batch, tokens) + "host_labels = host_input_ids.clone()", names=("input_ids", "labels")
    )


def _of_each_token(request: Request, config: dict[str, Any], tokens: int) -> Values:
    return Values(
        batch=_tokens(request.batch, tokens)
        + "host_attention_mask = torch.ones_like(host_input_ids)\n"
        + f"host_labels = torch.randint(config.num_labels, ({request.batch}, {tokens}))",
        names=("input_ids", "attention_mask", "labels"),
    )


def _of_a_text(request: Request, config: dict[str, Any], tokens: int) -> Values:
    return Values(
        batch=_tokens(request.batch, tokens)
        + "host_attention_mask = torch.ones_like(host_input_ids)\n"
        + f"host_labels = torch.randint(config.num_labels, ({request.batch},))",
        names=("input_ids", "attention_mask", "labels"),
    )


def _masked(request: Request, config: dict[str, Any], tokens: int) -> Values:
    return Values(
        batch=_tokens(request.batch, tokens)
        + "host_attention_mask = torch.ones_like(host_input_ids)\nhost_labels = host_input_ids.clone()",
        names=("input_ids", "attention_mask", "labels"),
    )


def _answers(request: Request, config: dict[str, Any], tokens: int) -> Values:
    return Values(
        batch=_tokens(request.batch, tokens)
        + f"host_start_positions = torch.randint({tokens}, ({request.batch},))\n"
        + f"host_end_positions = torch.randint({tokens}, ({request.batch},))",
        names=("input_ids", "start_positions", "end_positions"),
    )


def _choices(request: Request, config: dict[str, Any], tokens: int) -> Values:
    return Values(
        batch=_tokens(request.batch, 4, tokens) + f"host_labels = torch.randint(4, ({request.batch},))",
        names=("input_ids", "labels"),
        assumed=("4 choices for each question",),
    )


def _two_texts(request: Request, config: dict[str, Any], tokens: int) -> Values:
    return Values(
        batch=_tokens(request.batch, tokens)
        + f"host_labels = torch.randint({_VOCABULARY}, ({request.batch}, {tokens}))",
        names=("input_ids", "labels"),
        assumed=("the answer is as long as the text",),
    )


def _pixels(request: Request) -> str:
    if request.shape is not None:
        return f"host_pixel_values = torch.randn({', '.join(map(str, (request.batch, *request.shape)))})\n"
    return (
        'size = getattr(config, "image_size", 224)\n'
        "height, width = size if isinstance(size, (list, tuple)) else (size, size)\n"
        f'host_pixel_values = torch.randn({request.batch}, getattr(config, "num_channels", 3), height, width)\n'
    )


def _images(request: Request, config: dict[str, Any], tokens: int) -> Values:
    return Values(
        batch=_pixels(request) + f"host_labels = torch.randint(config.num_labels, ({request.batch},))",
        names=("pixel_values", "labels"),
        floating=("pixel_values",),
        has_tokens=False,
    )


def _pixel_labels(request: Request, config: dict[str, Any], tokens: int) -> Values:
    return Values(
        batch=_pixels(request)
        + f"host_labels = torch.randint(config.num_labels, ({request.batch}, *host_pixel_values.shape[2:]))",
        names=("pixel_values", "labels"),
        floating=("pixel_values",),
        has_tokens=False,
    )


def _sound(request: Request, labels: str) -> Values:
    samples = request.shape[-1] if request.shape else SECONDS_OF_SOUND * SAMPLES_PER_SECOND
    return Values(
        batch=f"host_input_values = torch.randn({request.batch}, {samples})\nhost_labels = {labels}",
        names=("input_values", "labels"),
        floating=("input_values",),
        assumed=() if request.shape else (f"{SECONDS_OF_SOUND} s of sound at 16 kHz: --input SAMPLES",),
        has_tokens=False,
    )


def _sound_class(request: Request, config: dict[str, Any], tokens: int) -> Values:
    return _sound(request, f"torch.randint(config.num_labels, ({request.batch},))")


def _sound_text(request: Request, config: dict[str, Any], tokens: int) -> Values:
    return _sound(request, f"torch.randint(1, config.vocab_size, ({request.batch}, 100))")


def _speech(request: Request, config: dict[str, Any], tokens: int) -> Values:
    size = f"{request.batch}, config.num_mel_bins, 2 * config.max_source_positions"
    length = f"{request.batch}, min({tokens}, config.max_target_positions)"
    return Values(
        batch=f"host_input_features = torch.randn({size})\nhost_labels = torch.randint(config.vocab_size, ({length}))",
        names=("input_features", "labels"),
        floating=("input_features",),
        assumed=() if request.tokens else (f"texts of {tokens} tokens, or as long as the model allows: --tokens N",),
        has_tokens=False,
    )


_ONE_LABEL = ('config.problem_type = "single_label_classification"',)
_PADDING = ('config.pad_token_id = getattr(config, "pad_token_id", None) or 0',)
_DECODER = (*_PADDING, 'config.decoder_start_token_id = getattr(config, "decoder_start_token_id", None) or 0')

TASKS = {
    task.name: task
    for task in (
        Task(name="causal-lm", auto="AutoModelForCausalLM", suffixes=("ForCausalLM", "LMHeadModel"),
             inputs=_language, caches=True),
        Task(name="masked-lm", auto="AutoModelForMaskedLM", suffixes=("ForMaskedLM", "ForPreTraining"),
             inputs=_masked),
        Task(name="sequence-classification", auto="AutoModelForSequenceClassification",
             suffixes=("ForSequenceClassification",), inputs=_of_a_text, settings=(*_ONE_LABEL, *_PADDING)),
        Task(name="token-classification", auto="AutoModelForTokenClassification",
             suffixes=("ForTokenClassification",), inputs=_of_each_token),
        Task(name="question-answering", auto="AutoModelForQuestionAnswering", suffixes=("ForQuestionAnswering",),
             inputs=_answers),
        Task(name="multiple-choice", auto="AutoModelForMultipleChoice", suffixes=("ForMultipleChoice",),
             inputs=_choices),
        Task(name="seq2seq", auto="AutoModelForSeq2SeqLM", suffixes=("ForConditionalGeneration",),
             inputs=_two_texts, settings=_DECODER, caches=True),
        Task(name="image-classification", auto="AutoModelForImageClassification",
             suffixes=("ForImageClassification",), inputs=_images, settings=_ONE_LABEL),
        Task(name="semantic-segmentation", auto="AutoModelForSemanticSegmentation",
             suffixes=("ForSemanticSegmentation",), inputs=_pixel_labels),
        Task(name="audio-classification", auto="AutoModelForAudioClassification",
             suffixes=("ForAudioClassification",), inputs=_sound_class),
        Task(name="ctc", auto="AutoModelForCTC", suffixes=("ForCTC",), inputs=_sound_text),
        Task(name="speech-seq2seq", auto="AutoModelForSpeechSeq2Seq", suffixes=("ForSpeechSeq2Seq",),
             inputs=_speech, settings=_DECODER, caches=True),
    )
}  # fmt: skip
"""Name -> task."""

_BY_KIND = {"whisper": "speech-seq2seq", "speech_to_text": "speech-seq2seq"}
"""Model types whose ForConditionalGeneration is no text to text."""


def guess_task(config: dict[str, Any]) -> Task | None:
    """The task that the architectures of a configuration tell of; None if they tell nothing that is known here."""
    if config.get("model_type") in _BY_KIND:
        return TASKS[_BY_KIND[config["model_type"]]]
    for architecture in config.get("architectures") or []:
        for task in TASKS.values():
            if str(architecture).endswith(task.suffixes):
                if task.name == "seq2seq" and ("vision_config" in config or "audio_config" in config):
                    return None
                return task
    return None
