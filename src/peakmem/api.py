"""What Python programs and notebooks use: `peakmem.predict` and `peakmem.watch`."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from peakmem.cli.forecasting import Silent
from peakmem.cli.generated import Written, steps_to_run
from peakmem.cli.planning import RunOptions
from peakmem.errors import PeakmemError
from peakmem.workload.keras.naming import is_keras, is_live_keras
from peakmem.workload.keras.training import WITHOUT_MEANING, Compiled, compiled
from peakmem.workload.model import Request, Workload
from peakmem.workload.optimizers import DEFAULT_OPTIMIZER, Optimizer
from peakmem.workload.resolving import draws_for_nothing
from peakmem.workload.shipping import name_of, shape_of, shipped_workload
from peakmem.workload.training import Precision, Quantized, Training, TrainsOn, ZeroGrad

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from peakmem.api_settings import Settings
    from peakmem.forecast.cpu import CpuForecast
    from peakmem.forecast.model import Forecast
    from peakmem.workload.watching import Watching

F = TypeVar("F", "Forecast", "CpuForecast")


@overload
def predict(what: Any, inputs: Any = ..., *, device: Literal["gpu"] = ..., **given: Unpack[Settings]) -> Forecast: ...


@overload
def predict(what: Any, inputs: Any = ..., *, device: Literal["cpu"], **given: Unpack[Settings]) -> CpuForecast: ...


def predict(
    what: Any,
    inputs: Any = None,
    *,
    device: TrainsOn = "gpu",
    targets: Any = None,
    loss: str | Callable[..., Any] | None = None,
    batch: int | None = None,
    tokens: int | None = None,
    optimizer: str | None = None,
    precision: Precision = "fp32",
    steps: int | str = 3,
    gpu: str | None = None,
    memory: str | None = None,
    alloc_conf: str | None = None,
    activation: str = "relu",
    task: str | None = None,
    checkpointing: bool = False,
    selective_checkpointing: bool = False,
    accumulate: int = 1,
    zero_grad: ZeroGrad = "start",
    keep_gradients: bool = False,
    clip: float | None = None,
    ema: bool = False,
    lora: int | None = None,
    quantize: Quantized | None = None,
    freeze: tuple[str, ...] = (),
    channels_last: bool = False,
    optimizer_in_backward: bool = False,
    offload_activations: bool = False,
    cudnn_benchmark: bool = False,
    deterministic: bool = False,
    compile: bool = False,
    cuda_graphs: bool = False,
    with_range: bool = True,
    timeout: float | None = None,
) -> Forecast | CpuForecast:
    """What training a model takes, found by training it on a virtual GPU, or the CPU, in a process of its own.

    A live model is sent to that process by its structure: its weights are neither copied nor changed, and the process
    that asks, its GPU included, is left alone.

    Args:
        what: a `torch.nn.Module`; a `keras.Model`, trained as it was compiled; a function that returns a module, or
            (module, inputs, loss); or a text such as `torchvision:resnet50`, as `peakmem predict` takes it.
        inputs: what the model is called with: a tensor (of which only shape and type count), a tuple or dict of these;
            the shape of one sample as a tuple of numbers, with `batch`; or a function that gives them for a batch size.
        device: what it trains on: `gpu`, or `cpu` for the host's memory (a `CpuForecast`), where the computing is left
            out.
        targets: a tensor, or a tuple or dict of these, that the loss is called with beside the output.
        loss: called with the output and `targets` if there are any; or a name: cross-entropy, mse, l1, bce, mean.
        batch: samples in one forward pass, where `inputs` does not say.
        tokens: length of a sequence of token ids.
        optimizer: as `peakmem predict --optimizer` takes it: `sgd:momentum=0.9`, `adamw:fused`; None: AdamW, or what a
            Keras model was compiled with.
        precision: `fp32`, `tf32`, `amp-bf16`, `amp-fp16` or `bf16`.
        steps: optimizer steps to watch, or "auto": until the peak is steady.
        gpu: the card, such as `4090`; None: an A100 with 80 GB.
        memory: total memory of the card, or of the machine, instead of its own, such as `24GiB`.
        alloc_conf: value of PYTORCH_CUDA_ALLOC_CONF.
        activation: of dense networks.
        task: head of a Hugging Face model.
        checkpointing, selective_checkpointing, accumulate, zero_grad, keep_gradients, clip, ema, lora, quantize,
        freeze, channels_last, optimizer_in_backward, offload_activations, cudnn_benchmark, deterministic, compile,
        cuda_graphs: settings, as in `workload.training.Training`.
        with_range: whether convolutional models are run thrice, for the range of what cuDNN may take.
        timeout: seconds after which to give up.

    Raises:
        PeakmemError: something that was given can't be used, or the model can't be trained so.
    """
    _check_counts(batch=batch, tokens=tokens, accumulate=accumulate)
    is_text = isinstance(what, str)
    keras = is_keras(what) if is_text else is_live_keras(what)
    shape = shape_of(inputs)
    request = Request(
        what=what if isinstance(what, str) else name_of(what),
        batch=batch,
        shape=shape,
        tokens=tokens,
        loss=loss if isinstance(loss, str) else None,
        activation=activation,
        task=task,
    )
    run = RunOptions(
        device=device,
        gpu=gpu,
        memory=memory,
        steps=str(steps),
        alloc_conf=alloc_conf,
        context=None,
        cudnn="likely",
        no_range=not with_range and device == "gpu",
        assume="",
        build_on_device=False,
        late_libraries=not compile,
        no_initial_values=isinstance(what, str) and draws_for_nothing(what),
        no_weights=False,
        output="hide",
        json_target=None,
        save_target=None,
        force=False,
        timeout=timeout,
        module=False,
        command=(),
    )
    with tempfile.TemporaryDirectory(prefix="peakmem-predict-") as folder:
        if keras:
            if device == "cpu":
                raise PeakmemError(
                    'device="cpu" is for models of PyTorch, not for those of Keras',
                    hint="peakmem run --device cpu takes a script, of Keras on torch too",
                )
            if targets is not None or callable(loss) or (inputs is not None and shape is None):
                raise PeakmemError(
                    "a Keras model is fed by peakmem itself",
                    hint="inputs may be the shape of one sample; compile the model with its loss",
                )
            given = {
                "checkpointing": checkpointing,
                "zero_grad": zero_grad,
                "keep_gradients": keep_gradients,
                "lora": lora,
                "freeze": freeze,
                "channels_last": channels_last,
                "optimizer_in_backward": optimizer_in_backward,
                "offload_activations": offload_activations,
                "cudnn_benchmark": cudnn_benchmark,
                "deterministic": deterministic,
                "selective_checkpointing": selective_checkpointing,
                "quantize": quantize,
                "cuda_graphs": cuda_graphs,
            }
            return _keras(
                request,
                compiled(
                    optimizer=optimizer,
                    loss=request.loss,
                    precision=precision,
                    accumulate=accumulate,
                    clip=clip,
                    ema=ema,
                    jit=compile,
                    without_meaning=tuple(name for name, usual in WITHOUT_MEANING.items() if given[name] != usual),
                ),
                run,
                live=None if is_text else (what, Path(folder, "model.json")),
            )
        training = Training(
            optimizer=Optimizer.parse(optimizer or DEFAULT_OPTIMIZER),
            precision=precision,
            checkpointing=checkpointing,
            selective_checkpointing=selective_checkpointing,
            accumulate=accumulate,
            zero_grad=zero_grad,
            keep_gradients=keep_gradients,
            clip=clip,
            ema=ema,
            lora=lora,
            quantize=quantize,
            freeze=freeze,
            channels_last=channels_last,
            optimizer_in_backward=optimizer_in_backward,
            offload_activations=offload_activations,
            cudnn_benchmark=cudnn_benchmark,
            deterministic=deterministic,
            compile=compile,
            cuda_graphs=cuda_graphs,
            device=device,
        )
        if is_text:
            if targets is not None or callable(loss) or (inputs is not None and shape is None):
                raise PeakmemError(
                    "a model that is named by a text is fed by peakmem itself",
                    hint="inputs may be the shape of one sample; give a function to feed a model of your own",
                )
            from peakmem.workload.resolving import workload_of

            workload = workload_of(request)
        else:
            workload = shipped_workload(Path(folder), what, request, None if shape else inputs, targets, loss)
        return train_workload(workload, training, run, request.what)


def _check_counts(**counts: int | None) -> None:
    """As the command line checks them; a batch of nothing would train, and take next to nothing."""
    for name, count in counts.items():
        if count is not None and count < 1:
            raise PeakmemError(f"{name} is {count}", hint=f"{name}=1 is the least")


@contextmanager
def watch(device: int = 0) -> Iterator[Watching]:
    """Watch training on a real GPU: `with peakmem.watch() as watched: ...`, then `watched.forecast`.

    PyTorch's memory history is kept meanwhile, which costs host memory for each allocation and some time.

    Args:
        device: index of the GPU.

    Raises:
        PeakmemError: PyTorch sees no such GPU.
    """
    from peakmem.workload.watching import Watching

    watching = Watching(device)
    watching.start()
    try:
        yield watching
    except BaseException as error:
        watching.stop(error)
        raise
    watching.stop(None)


def _keras(
    request: Request, how: Compiled, run: RunOptions, *, live: tuple[Any, Path] | None
) -> Forecast | CpuForecast:
    from peakmem.workload.keras.script import keras_workload, send_model, write_keras_script

    if live is not None:
        send_model(*live)
    place = live[1] if live is not None else None
    script = write_keras_script(request, how, steps=steps_to_run(run.steps), live=place)
    return _trained(Written(what=request.what, script=script, workload=keras_workload(request), training=how), run)


def train_workload(workload: Workload, training: Training, run: RunOptions, what: str) -> Forecast | CpuForecast:
    """Train a workload, in silence.

    Raises:
        PeakmemError: it can't be trained so.
    """
    from peakmem.workload.script import write_script

    script = write_script(workload, training, steps=steps_to_run(run.steps))
    return _trained(Written(what=what, script=script, workload=workload, training=training), run)


def _trained(written: Written, run: RunOptions) -> Forecast | CpuForecast:
    if run.device == "cpu":
        from peakmem.cli.apart import forecast_on_cpu_apart

        return _checked(forecast_on_cpu_apart(written, run), written)
    from peakmem.cli.predicting import forecast_script

    return _checked(forecast_script(written, run, Silent())[1], written)


def _checked(forecast: F, written: Written) -> F:
    if forecast.error is not None:
        title, error = written.workload.title, forecast.error
        raise PeakmemError(f"{title} failed in training: {error.type}: {error.message}")
    return forecast
