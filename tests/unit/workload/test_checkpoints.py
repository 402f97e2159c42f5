"""Checkpoints: read to the last byte, never executed, and damaged ones refused in words."""

from __future__ import annotations

import io
import json
import os
import pickle
import struct
import zipfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from peakmem.errors import PeakmemError
from peakmem.workload.checkpoints.loading import ways_of_loading
from peakmem.workload.checkpoints.reading import read_checkpoint
from peakmem.workload.checkpoints.training import write_checkpoint_script
from peakmem.workload.training import Training


def safetensors(**tensors: tuple[str, list[int], int]) -> bytes:
    header, at = {}, 0
    for name, (dtype, shape, size) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
    return len(text).to_bytes(8, "little") + text + bytes(at)


SAFETENSORS = safetensors(weight=("F32", [10, 4], 160), bias=("BF16", [10], 20), position_ids=("I64", [1, 8], 64))


def gguf() -> bytes:
    def text(value: str) -> bytes:
        return struct.pack("<Q", len(value)) + value.encode()

    pairs = text("general.name") + struct.pack("<I", 8) + text("tiny")
    pairs += text("tokens") + struct.pack("<IIQ", 9, 8, 2) + text("a") + text("b")
    tensor = text("blk.0.weight") + struct.pack("<I", 2) + struct.pack("<QQ", 256, 4) + struct.pack("<IQ", 12, 0)
    return b"GGUF" + struct.pack("<IQQ", 3, 1, 2) + pairs + tensor


def varint(value: int) -> bytes:
    out = b""
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def field(number: int, content: bytes | int) -> bytes:
    if isinstance(content, int):
        return varint(number << 3) + varint(content)
    return varint(number << 3 | 2) + varint(len(content)) + content


def onnx() -> bytes:
    packed = field(1, varint(300) + varint(2)) + field(2, 1) + field(8, b"fc.weight") + field(9, bytes(2400))
    plain = field(1, 7) + field(2, 10) + field(8, b"fc.bias") + field(9, bytes(14))
    return field(1, 8) + field(7, field(2, b"graph") + field(5, packed) + field(5, plain))


def test_a_safetensors_file(tmp_path):
    path = tmp_path / "model.safetensors"
    path.write_bytes(SAFETENSORS)
    checkpoint = read_checkpoint(path)
    assert [(t.name, t.dtype, t.shape, t.size) for t in checkpoint.tensors] == [
        ("weight", "float32", (10, 4), 160),
        ("bias", "bfloat16", (10,), 20),
        ("position_ids", "int64", (1, 8), 64),
    ]
    assert [t.name for t in checkpoint.parameters] == ["weight", "bias"]
    assert checkpoint.size == 244


def test_a_gguf_file(tmp_path):
    path = tmp_path / "model.gguf"
    path.write_bytes(gguf())
    (tensor,) = read_checkpoint(path).tensors
    assert (tensor.name, tensor.dtype, tensor.shape, tensor.size) == ("blk.0.weight", "Q4_K", (4, 256), 4 * 144)
    assert tensor.trained


def test_an_onnx_file(tmp_path):
    path = tmp_path / "model.onnx"
    path.write_bytes(onnx())
    assert [(t.name, t.dtype, t.shape, t.size) for t in read_checkpoint(path).tensors] == [
        ("fc.weight", "float32", (300, 2), 2400),
        ("fc.bias", "float16", (7,), 14),
    ]


def test_shards_are_read_together_and_missing_ones_named(tmp_path):
    names = ["a.safetensors", "b.safetensors"]
    for name in names:
        (tmp_path / name).write_bytes(safetensors(**{f"{name[0]}.weight": ("F16", [8], 16)}))
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {f"{name[0]}.weight": name for name in names}}))
    assert sum(t.count for t in read_checkpoint(tmp_path).parameters) == 16
    (tmp_path / "b.safetensors").unlink()
    with pytest.raises(PeakmemError, match="1 of 2 shards are missing"):
        read_checkpoint(index)


class Harmful:
    def __reduce__(self):
        return os.system, ("touch executed",)


@pytest.mark.parametrize("form", ["zip", "legacy"])
def test_nothing_in_a_file_is_executed(tmp_path, monkeypatch, form):
    monkeypatch.chdir(tmp_path)
    content = pickle.dumps({"epoch": 1, "harm": Harmful()}, protocol=2)
    path = tmp_path / "model.pt"
    if form == "zip":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("model/data.pkl", content)
    else:
        rows = [pickle.dumps(value, protocol=2) for value in (0x1950A86A20F9469CFC6C, 1001, {})]
        path.write_bytes(b"".join([*rows, content, pickle.dumps([], protocol=2)]))
    with pytest.raises(PeakmemError, match="holds no tensors"):
        read_checkpoint(path)
    assert not Path("executed").exists()


@pytest.mark.parametrize("name", ["m.safetensors", "m.pt", "m.gguf", "m.onnx"])
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)
@given(data=st.data())
def test_damaged_files_are_refused_in_words(tmp_path, name, data):
    whole = {"m.safetensors": SAFETENSORS, "m.pt": zipped(), "m.gguf": gguf(), "m.onnx": onnx()}[name]
    cut = data.draw(st.integers(0, len(whole)))
    damaged = bytearray(whole[:cut])
    for at in data.draw(st.lists(st.integers(0, max(cut - 1, 0)), max_size=4)) if cut else []:
        damaged[at] = data.draw(st.integers(0, 255))
    path = tmp_path / name
    path.write_bytes(bytes(damaged))
    try:
        read_checkpoint(path)
    except PeakmemError as error:
        assert error.message


def zipped() -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("m/data.pkl", pickle.dumps({"a": [1, 2], "b": "text"}, protocol=2))
    return out.getvalue()


@pytest.mark.torch
class TestFilesOfTorch:
    @pytest.fixture
    def model(self):
        torch = pytest.importorskip("torch")
        model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 8))
        model[2].weight = model[0].weight
        return model

    @pytest.mark.parametrize("what", ["state dict", "legacy", "module"])
    def test_parameters_are_counted_once(self, tmp_path, model, what):
        import torch

        path = tmp_path / "model.pt"
        saved = model if what == "module" else model.state_dict()
        torch.save(saved, path, _use_new_zipfile_serialization=what != "legacy")
        parameters = read_checkpoint(path).parameters
        assert sum(t.count for t in parameters) == sum(p.numel() for p in model.parameters())
        assert [t.name for t in parameters] == ["0.weight", "0.bias", "1.weight", "1.bias", "2.bias"]

    def test_optimizer_states_are_no_parameters(self, tmp_path, model):
        import torch

        optimizer = torch.optim.AdamW(model.parameters())
        model(torch.randn(2, 8)).sum().backward()
        optimizer.step()
        path = tmp_path / "last.ckpt"
        torch.save({"state_dict": model.state_dict(), "optimizer_states": [optimizer.state_dict()], "epoch": 3}, path)
        checkpoint = read_checkpoint(path)
        assert sum(t.count for t in checkpoint.parameters) == sum(p.numel() for p in model.parameters())
        way = ways_of_loading(checkpoint)[0]
        states = sum(s.nbytes for state in optimizer.state.values() for s in state.values())
        assert way.host == 2 * way.device + states
        assert way.device == sum(t.size for t in checkpoint.unique() if t.group == "model")


def test_the_script_holds_every_shape(tmp_path):
    path = tmp_path / "model.safetensors"
    path.write_bytes(SAFETENSORS)
    script = write_checkpoint_script(read_checkpoint(path), Training(), steps=3)
    compile(script, "predict.py", "exec")
    assert "(10, 4)" in script and "(10,)" in script
    with pytest.raises(PeakmemError, match="--checkpointing needs the architecture"):
        write_checkpoint_script(read_checkpoint(path), Training(checkpointing=True), steps=3)
