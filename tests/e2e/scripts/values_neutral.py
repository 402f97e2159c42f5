"""Peaks of some trainings, step by step, with or without following values."""

import json
import sys

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

if sys.argv[2] == "on":
    sys.path.insert(0, sys.argv[1])
    import peakmem_inside.values as following

    values = following.install("")


class Encoder(nn.Module):
    def __init__(self, vocabulary=1000, width=128, length=64):
        super().__init__()
        self.token, self.position = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.1, batch_first=True)
        self.encoder, self.head = nn.TransformerEncoder(layer, 2), nn.Linear(width, vocabulary)

    def forward(self, x):
        places = torch.arange(x.shape[1], device=x.device)
        return self.head(self.encoder(self.token(x) + self.position(places)))


class Block(nn.Module):
    def __init__(self, width=128, heads=4):
        super().__init__()
        self.heads, self.norm, self.last = heads, nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.feed = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        b, s, d = x.shape
        q, k, v = (t.view(b, s, self.heads, -1).transpose(1, 2) for t in self.qkv(self.norm(x)).split(d, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, s, d))
        return x + self.feed(self.last(x))


def language(model, x, y):
    return F.cross_entropy(model(x).flatten(0, 1), y.flatten())


def mlp():
    model = nn.Sequential(nn.Linear(1024, 4096), nn.ReLU(), nn.Linear(4096, 10))
    return model, (torch.randn(512, 1024), torch.randint(10, (512,))), lambda m, x, y: F.cross_entropy(m(x), y)


def encoder():
    return Encoder(), (torch.randint(1000, (4, 64)), torch.randint(1000, (4, 64))), language


def tinygpt():
    model = nn.Sequential(nn.Embedding(1000, 128), Block(), Block(), nn.LayerNorm(128), nn.Linear(128, 1000))
    return model, (torch.randint(1000, (4, 128)), torch.randint(1000, (4, 128))), language


def lstm():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.rnn, self.head = nn.Embedding(500, 64), nn.LSTM(64, 64, 2, dropout=0.2), nn.Linear(64, 500)

        def forward(self, x):
            return self.head(self.rnn(self.embed(x))[0])

    return Model(), (torch.randint(500, (32, 8)), torch.randint(500, (32, 8))), language


def resnet50():
    import torchvision

    model = torchvision.models.resnet50(weights=None)
    return model, (torch.randn(4, 3, 64, 64), torch.randint(9, (4,))), lambda m, x, y: F.cross_entropy(m(x), y)


def gpt2(checkpoint=False):
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(GPT2Config())
    if checkpoint:
        model.gradient_checkpointing_enable()
    x = torch.randint(50257, (4, 512))
    return model, (x,), lambda m, x: m(input_ids=x, labels=x, use_cache=False).loss


def gpt2_checkpointed():
    return gpt2(checkpoint=True)


def gpt2_masked():
    model, (x,), _ = gpt2()
    ones = torch.ones_like(x)
    return model, (x, ones), lambda m, x, mask: m(input_ids=x, attention_mask=mask, labels=x, use_cache=False).loss


def bert():
    from transformers import BertConfig, BertForSequenceClassification

    model = BertForSequenceClassification(BertConfig(num_labels=2))
    return model, (torch.randint(30522, (16, 128)), torch.randint(2, (16,))), lambda m, x, y: m(x, labels=y).loss


def peaks(make, amp):
    torch.cuda.init()
    with torch.device("cuda"):
        model, batch, loss_of = make()
    batch = [t.cpu() for t in batch]
    optimizer = torch.optim.AdamW(model.parameters())
    scaler = torch.amp.GradScaler("cuda", enabled=amp == "float16")
    found = []
    for _ in range(3):
        torch.cuda.reset_peak_memory_stats()
        data = [t.to("cuda") for t in batch]
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=getattr(torch, amp or "float16"), enabled=bool(amp)):
            loss = loss_of(model.train(), *data)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        stats = torch.cuda.memory_stats()
        kinds = ("requested_bytes.all.peak", "allocated_bytes.all.peak", "reserved_bytes.all.peak")
        found.append([stats[kind] for kind in (*kinds, "allocation.all.allocated")])
    return found


print(json.dumps({name: peaks(globals()[name.split("-")[0]], name.partition("-")[2]) for name in sys.argv[3:]}))
