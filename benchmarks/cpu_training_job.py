"""A training job for `cpu_training.py`: three steps of a model of a kind, on the CPU.

python cpu_training_job.py --model transformer --width 512 --layers 6 --batch 8 --optimizer adamw
"""

import argparse
import itertools

import torch
import torch.nn as nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--optimizer", default="adam", choices=["sgd", "momentum", "adam", "adamw"])
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--inputs", type=int, default=1000)
    parser.add_argument("--outputs", type=int, default=10)
    parser.add_argument("--size", type=int, default=64, help="side of images, length of sequences")
    parser.add_argument("--vocabulary", type=int, default=10000)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--bf16", action="store_true", help="autocast")
    parser.add_argument("--save", help="only write a checkpoint of model and optimizer to this file")
    parser.add_argument("--load", help="load a checkpoint from this file first")
    return parser.parse_args()


class Recurrent(nn.Module):
    def __init__(self, a, kind):
        super().__init__()
        self.embedding = nn.Embedding(a.vocabulary, a.width)
        self.layers = kind(a.width, a.width, a.layers, batch_first=True)
        self.head = nn.Linear(a.width, a.vocabulary)

    def forward(self, x):
        return self.head(self.layers(self.embedding(x))[0])


class Transformer(nn.Module):
    def __init__(self, a):
        super().__init__()
        self.embedding = nn.Embedding(a.vocabulary, a.width)
        layer = nn.TransformerEncoderLayer(a.width, max(1, a.width // 64), 4 * a.width, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, a.layers)
        self.head = nn.Linear(a.width, a.vocabulary)

    def forward(self, x):
        return self.head(self.encoder(self.embedding(x)))


def convolutions(a, dimensions):
    conv, norm, pool = (
        (nn.Conv2d, nn.BatchNorm2d, nn.MaxPool2d) if dimensions == 2 else (nn.Conv3d, nn.BatchNorm3d, nn.MaxPool3d)
    )
    layers, channels = [], 3 if dimensions == 2 else 1
    for i in range(a.layers):
        width = a.width * 2 ** min(i, 3)
        layers += [conv(channels, width, 3, padding=1), norm(width), nn.ReLU()]
        if i < 4:
            layers.append(pool(2))
        channels = width
    pooled = nn.AdaptiveAvgPool2d(1) if dimensions == 2 else nn.AdaptiveAvgPool3d(1)
    return nn.Sequential(*layers, pooled, nn.Flatten(), nn.Linear(channels, a.outputs))


def build(a):
    """The model, and a function that makes one sample."""
    tokens = lambda: (torch.randint(a.vocabulary, (a.size,)), torch.randint(a.vocabulary, (a.size,)))  # noqa: E731
    classes = lambda *shape: lambda: (torch.randn(*shape), torch.randint(a.outputs, ()))  # noqa: E731
    if a.model == "dense":
        widths = [a.inputs, *[a.width] * a.layers]
        hidden = [part for m, n in itertools.pairwise(widths) for part in (nn.Linear(m, n), nn.ReLU())]
        return nn.Sequential(*hidden, nn.Linear(a.width, a.outputs)), classes(a.inputs)
    if a.model == "cnn2d":
        return convolutions(a, 2), classes(3, a.size, a.size)
    if a.model == "cnn3d":
        return convolutions(a, 3), classes(1, a.size, a.size, a.size)
    if a.model in ("lstm", "gru", "rnn"):
        return Recurrent(a, {"lstm": nn.LSTM, "gru": nn.GRU, "rnn": nn.RNN}[a.model]), tokens
    if a.model == "transformer":
        return Transformer(a), tokens
    if a.model == "gpt2":
        from transformers import GPT2Config, GPT2LMHeadModel

        config = GPT2Config(
            vocab_size=a.vocabulary, n_positions=a.size, n_embd=a.width, n_layer=a.layers, n_head=max(1, a.width // 64)
        )
        return GPT2LMHeadModel(config), tokens
    import torchvision

    return torchvision.models.get_model(a.model, num_classes=a.outputs), classes(3, a.size, a.size)


def make_optimizer(a, parameters):
    if a.optimizer in ("sgd", "momentum"):
        return torch.optim.SGD(parameters, 0.01, momentum=0.9 if a.optimizer == "momentum" else 0)
    return {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[a.optimizer](parameters, 1e-4)


class Samples(Dataset):
    def __init__(self, make, n):
        self.make, self.n = make, n

    def __len__(self):
        return self.n

    def __getitem__(self, index):
        return self.make()


def main():
    a = arguments()
    torch.manual_seed(0)
    model, make = build(a)
    optimizer = make_optimizer(a, model.parameters())
    if a.load:
        state = torch.load(a.load)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        del state
    loader = DataLoader(Samples(make, a.batch * a.steps), a.batch, num_workers=a.workers)
    for x, y in loader:
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=a.bf16):
            out = model(x)
            out = out.logits if hasattr(out, "logits") else out
            loss = functional.cross_entropy(out.flatten(0, -2).float(), y.flatten())
        loss.backward()
        optimizer.step()
        print(f"loss {loss.item():.3f}", flush=True)
        if a.save:
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, a.save)
            return


if __name__ == "__main__":
    main()
