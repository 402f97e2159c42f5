"""Models without their weights: what loads a checkpoint builds from the configuration instead."""

import contextlib
import functools

from . import importing


class NoWeights(dict):
    """Stands in for a state dict that was not loaded; `Module.load_state_dict` takes it and does nothing."""


def install():
    """Take the place of the loading functions of torch.hub, torchvision, timm and transformers once they are there."""
    importing.when_imported("torch.nn.modules.module", _module)
    importing.when_imported("torch.hub", _hub)
    importing.when_imported("torchvision.models._api", _torchvision)
    importing.when_imported("timm.models._builder", _timm)
    importing.when_imported("transformers.modeling_utils", _transformers)


def _module(module):
    original = module.Module.load_state_dict

    @functools.wraps(original)
    def load_state_dict(self, state_dict, *args, **kwargs):
        if isinstance(state_dict, NoWeights):
            return module._IncompatibleKeys([], [])
        return original(self, state_dict, *args, **kwargs)

    module.Module.load_state_dict = load_state_dict


def _hub(module):
    module.load_state_dict_from_url = lambda *args, **kwargs: NoWeights()


def _torchvision(module):
    module.WeightsEnum.get_state_dict = lambda self, *args, **kwargs: NoWeights()


def _timm(module):
    module.load_pretrained = lambda *args, **kwargs: None


def _transformers(module):
    base = module.PreTrainedModel

    def from_pretrained(cls, name, /, *args, config=None, dtype=None, torch_dtype=None, device_map=None, **kwargs):
        if config is None or isinstance(config, str):
            keys = ("cache_dir", "revision", "local_files_only", "subfolder", "token")
            found = {key: kwargs[key] for key in keys if key in kwargs}
            config = cls.config_class.from_pretrained(config or name, **found)
        return _build(cls, config, _dtype_of(config, dtype if dtype is not None else torch_dtype), device_map, kwargs)

    base.from_pretrained = classmethod(from_pretrained)


def _dtype_of(config, dtype):
    """The type of the weights that `from_pretrained` would give."""
    import torch
    import transformers

    if dtype is None and int(transformers.__version__.split(".")[0]) >= 5:
        dtype = "auto"  # the default since transformers 5
    if dtype == "auto":
        dtype = getattr(config, "dtype", None) or getattr(config, "torch_dtype", None)
    if isinstance(dtype, str):
        dtype = getattr(torch, dtype)
    return dtype or torch.float32


def _build(cls, config, dtype, device_map, options):
    import torch

    attention = options.get("attn_implementation")
    if attention is not None:
        config._attn_implementation = attention
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with torch.device("cuda") if device_map is not None else contextlib.nullcontext():
            model = cls(config)
    finally:
        torch.set_default_dtype(before)
    model.eval()
    if options.get("output_loading_info"):
        return model, {"missing_keys": [], "unexpected_keys": [], "mismatched_keys": [], "error_msgs": []}
    return model
