"""Training cases as plain scripts: CASE [--optimizer NAME] [--amp fp16|bf16] [--checkpoint].

The figures that they take on a bare virtual device, without any watching, stand in test_known_figures.py. Each case
builds its model on the host and moves it, sets gradients to None before the backward pass, and copies the batch to the
device at each step.
"""

import argparse
import sys

import torch
from torch import nn
from torch.nn import functional


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(8000, 512), nn.Embedding(256, 512)
        layer = nn.TransformerEncoderLayer(512, 8, 2048, dropout=0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 4)
        self.head = nn.Linear(512, 8000)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        positions = torch.arange(x.shape[1], device=x.device)
        return self.head(self.encoder(self.tokens(x) + self.positions(positions)))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(512), nn.LayerNorm(512)
        self.qkv, self.out = nn.Linear(512, 3 * 512), nn.Linear(512, 512)
        self.mlp = nn.Sequential(nn.Linear(512, 2048), nn.GELU(), nn.Linear(2048, 512))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, s, d = x.shape
        q, k, v = (t.view(b, s, 8, d // 8).transpose(1, 2) for t in self.qkv(self.first(x)).split(d, 2))
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, s, d))
        return x + self.mlp(self.second(x))


class TinyGpt(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(8000, 512)
        self.blocks = nn.ModuleList(Block() for _ in range(4))
        self.norm, self.head = nn.LayerNorm(512), nn.Linear(512, 8000, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.tokens(x)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def language(model, batch, length):
    x, y = torch.randint(8000, (batch, length)), torch.randint(8000, (batch, length))
    return model, (x, y), lambda m, x, y: functional.cross_entropy(m(x).view(-1, 8000), y.view(-1))


def mlp():
    layers = [nn.Linear(1024, 4096), nn.ReLU(), nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, 10)]
    batch = (torch.randn(512, 1024), torch.randint(10, (512,)))
    return nn.Sequential(*layers), batch, lambda m, x, y: functional.cross_entropy(m(x), y)


def vision(name):
    def case():
        import torchvision

        batch = (torch.randn(32, 3, 224, 224), torch.randint(1000, (32,)))
        return getattr(torchvision.models, name)(weights=None), batch, lambda m, x, y: functional.cross_entropy(m(x), y)

    return case


def gpt2():
    from transformers import GPT2Config, GPT2LMHeadModel

    x = torch.randint(50257, (4, 512))
    return GPT2LMHeadModel(GPT2Config()), (x,), lambda m, x: m(input_ids=x, labels=x, use_cache=False).loss


def bert():
    from transformers import BertConfig, BertForSequenceClassification

    batch = (torch.randint(30522, (16, 128)), torch.randint(2, (16,)))
    model = BertForSequenceClassification(BertConfig(num_labels=2))
    return model, batch, lambda m, x, y: m(input_ids=x, labels=y).loss


CASES = {
    "mlp": mlp,
    "encoder": lambda: language(Encoder(), 16, 256),
    "tinygpt": lambda: language(TinyGpt(), 8, 512),
    "resnet18": vision("resnet18"),
    "resnet50": vision("resnet50"),
    "gpt2": gpt2,
    "bert": bert,
}
OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=1e-3),
    "momentum": lambda p: torch.optim.SGD(p, lr=1e-3, momentum=0.9),
    "adamw": lambda p: torch.optim.AdamW(p, lr=1e-3),
    "adamw-fused": lambda p: torch.optim.AdamW(p, lr=1e-3, fused=True),
    "adam-loop": lambda p: torch.optim.Adam(p, lr=1e-3, foreach=False),
}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("case", choices=CASES)
    parser.add_argument("--optimizer", default="adamw", choices=OPTIMIZERS)
    parser.add_argument("--amp", choices=["fp16", "bf16"])
    parser.add_argument("--checkpoint", action="store_true")
    options = parser.parse_args()
    model, batch, loss_of = CASES[options.case]()
    if options.checkpoint:
        model.gradient_checkpointing_enable()
    model = model.cuda().train()
    optimizer = OPTIMIZERS[options.optimizer](model.parameters())
    scaler = torch.amp.GradScaler("cuda", enabled=options.amp == "fp16")
    dtype = {"fp16": torch.float16, "bf16": torch.bfloat16}.get(options.amp, torch.float32)

    def step():
        data = [t.cuda() for t in batch]
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=dtype, enabled=options.amp is not None):
            loss = loss_of(model, *data)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        return loss.item()

    for _ in range(4):
        step()
    print("max_memory_allocated", torch.cuda.max_memory_allocated())
    print("max_memory_reserved", torch.cuda.max_memory_reserved())


if __name__ == "__main__":
    sys.exit(main())
