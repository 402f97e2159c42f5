"""`torchvision:NAME` and `timm:NAME`."""

from __future__ import annotations

from peakmem.errors import PeakmemError
from peakmem.workload.model import Request, Workload
from peakmem.workload.sources.listing import model_of

CLASSES = 1000
FRAMES = 16
"""Frames of a clip, what torchvision's video models were trained with (docs of torchvision.models.video)."""
SEGMENTED = (480, 480)
"""Crop of torchvision's reference training of segmentation models (references/segmentation/train.py)."""
DETECTED = (480, 640)
"""The commonest size of an image of COCO; the model itself scales it up."""
FLOW = (368, 496)
"""Crop of torchvision's reference training of RAFT on FlyingChairs (references/optical_flow/train.py)."""

_OUTPUTS = '''
def loss_of(outputs, targets, measure):
    """The loss of the output and, with less weight, of the auxiliary outputs that some models give in training."""
    if isinstance(outputs, dict):
        auxiliary = [outputs[key] for key in outputs if key != "out"]
        return measure(outputs["out"], targets) + sum(0.5 * measure(output, targets) for output in auxiliary)
    main, *auxiliary = outputs
    return measure(main, targets) + sum(0.4 * measure(output, targets) for output in auxiliary if output is not None)
'''


def torchvision(request: Request, name: str) -> Workload:
    """The workload of a model of torchvision.

    Raises:
        PeakmemError: torchvision has no such model, or it can't be trained.
    """
    known = model_of("torchvision", name)
    _check(request)
    if name.startswith("quantized_"):
        raise PeakmemError(
            f"{name} is a quantized model, which can't be trained",
            hint=f"torchvision:{name.removeprefix('quantized_')}",
        )
    kind, size = known["kind"], known["size"]
    if kind == "ObjectDetection":
        return _detection(request, name)
    if kind == "OpticalFlow":
        return _optical_flow(request, name)
    if kind == "SemanticSegmentation":
        return _segmentation(request, name)
    size = [size[0], size[-1]]
    shape = (3, FRAMES, *size) if kind == "VideoClassification" else (3, *size)
    shape = request.shape or shape
    model = f'model = models.get_model("{name}", weights=None)'
    if name in ("inception_v3", "googlenet"):
        model = f'model = models.get_model("{name}", weights=None, init_weights=True)'
    plain = name not in ("inception_v3", "googlenet")
    return Workload(
        title=f"torchvision's {name}",
        imports=("from torchvision import models",),
        helpers="" if plain else _OUTPUTS,
        model=model,
        batch=_images(request, shape) + f"host_labels = torch.randint({CLASSES}, ({request.batch},))",
        loss="loss = nn.functional.cross_entropy(model(images), labels)"
        if plain
        else "loss = loss_of(model(images), labels, nn.functional.cross_entropy)",
        loss_text=f"cross entropy, {CLASSES} classes" + ("" if plain else ", auxiliary outputs with a weight of 0.4"),
        tensors=("images", "labels"),
        floating=("images",),
        assumed=()
        if request.shape
        else (f"clips of {FRAMES} frames: --input 3x{FRAMES}x{size[0]}x{size[1]}",)
        if kind == "VideoClassification"
        else (),
    )


def timm(request: Request, name: str) -> Workload:
    """The workload of a model of timm.

    Raises:
        PeakmemError: timm has no such model.
    """
    known = model_of("timm", name)
    _check(request)
    shape = request.shape or tuple(known["size"] or (3, 224, 224))
    classes = known["classes"] or CLASSES
    extra = "" if known["classes"] else f", num_classes={CLASSES}"
    return Workload(
        title=f"timm's {name}",
        imports=("import timm",),
        model=f'model = timm.create_model("{name}", pretrained=False{extra})',
        batch=_images(request, shape) + f"host_labels = torch.randint({classes}, ({request.batch},))",
        loss="loss = nn.functional.cross_entropy(model(images), labels)",
        loss_text=f"cross entropy, {classes} classes",
        tensors=("images", "labels"),
        floating=("images",),
        checkpointing="model.set_grad_checkpointing()",
    )


def _check(request: Request) -> None:
    if request.batch is None:
        raise PeakmemError("how many images are in a batch?", hint="--batch 64")
    if request.loss not in (None, "cross-entropy"):
        raise PeakmemError(
            f"{request.what} is trained with its usual loss; --loss {request.loss} is not for it",
            hint="file.py:function can return a model, inputs and any loss",
        )
    if request.tokens is not None:
        raise PeakmemError(f"{request.what} takes no tokens", hint="--input 3x224x224")


def _images(request: Request, shape: tuple[int, ...]) -> str:
    return f"host_images = torch.randn({request.batch}, {', '.join(map(str, shape))})\n"


def _segmentation(request: Request, name: str) -> Workload:
    shape = request.shape or (3, *SEGMENTED)
    classes = 21
    return Workload(
        title=f"torchvision's {name}",
        imports=("from torchvision import models",),
        helpers=_OUTPUTS,
        model=f'model = models.get_model("{name}", weights=None, weights_backbone=None)',
        batch=_images(request, shape)
        + f"host_labels = torch.randint({classes}, ({request.batch}, {', '.join(map(str, shape[1:]))}))",
        loss="loss = loss_of(model(images), labels, nn.functional.cross_entropy)",
        loss_text=f"cross entropy of each pixel, {classes} classes",
        tensors=("images", "labels"),
        floating=("images",),
        assumed=() if request.shape else (f"images of {shape[1]} x {shape[2]}: --input 3xHxW",),
    )


def _detection(request: Request, name: str) -> Workload:
    channels, height, width = request.shape or (3, *DETECTED)
    boxes, classes = 8, 91
    extra = ""
    if "maskrcnn" in name:
        extra = f'        "masks": torch.zeros({boxes}, {height}, {width}, dtype=torch.uint8),\n'
    if "keypointrcnn" in name:
        classes = 2
        extra = f'        "keypoints": torch.tensor([[[{width // 4}.0, {height // 4}.0, 1.0]] * 17] * {boxes}),\n'
    return Workload(
        title=f"torchvision's {name}",
        imports=("from torchvision import models",),
        model=f'model = models.get_model("{name}", weights=None, weights_backbone=None)',
        batch=f"host_images = [torch.rand({channels}, {height}, {width}) for _ in range({request.batch})]\n"
        "host_targets = [\n    {\n"
        f'        "boxes": torch.tensor([[8.0 * i, 8.0 * i, 8.0 * i + {width // 4}, 8.0 * i + {height // 4}] '
        f"for i in range({boxes})]),\n"
        f'        "labels": torch.randint(1, {classes}, ({boxes},)),\n{extra}'
        "    }\n"
        f"    for _ in range({request.batch})\n]",
        loss="loss = sum(model(images, targets).values())",
        loss_text="the sum of the model's own losses",
        tensors=("images", "targets"),
        nested=True,
        assumed=(f"{boxes} boxes in each image",)
        + (() if request.shape else (f"images of {height} x {width}: --input 3xHxW",)),
    )


def _optical_flow(request: Request, name: str) -> Workload:
    channels, height, width = request.shape or (3, *FLOW)
    size = f"{request.batch}, {channels}, {height}, {width}"
    return Workload(
        title=f"torchvision's {name}",
        imports=("from torchvision import models",),
        model=f'model = models.get_model("{name}", weights=None)',
        batch=f"host_first = torch.rand({size})\nhost_second = torch.rand({size})\n"
        f"host_flow = torch.randn({request.batch}, 2, {height}, {width})",
        loss="loss = sum(nn.functional.l1_loss(flows, flow) for flows in model(first, second))",
        loss_text="the absolute error of each refinement",
        tensors=("first", "second", "flow"),
        floating=("first", "second", "flow"),
        assumed=() if request.shape else (f"images of {height} x {width}: --input 3xHxW",),
    )
