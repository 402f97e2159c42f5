"""Ten trainings that were set aside while forecasts on the CPU were made: `python cpu_training_held_out.py NAME`."""

import sys
import tempfile
from pathlib import Path

import torch
from torch import nn
from torch.nn.functional import cross_entropy, mse_loss, scaled_dot_product_attention

STEPS = 3


def train(model, optimizer, make_batch, loss_of):
    for _ in range(STEPS):
        inputs, targets = make_batch()
        loss = loss_of(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def wide_mlp_momentum():
    model = nn.Sequential(
        nn.Linear(4096, 8192),
        nn.GELU(),
        nn.Linear(8192, 8192),
        nn.GELU(),
        nn.Linear(8192, 4096),
        nn.GELU(),
        nn.Linear(4096, 1),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    train(model, optimizer, lambda: (torch.randn(512, 4096), torch.randn(512, 1)), mse_loss)


def mobilenet():
    import torchvision

    model = torchvision.models.mobilenet_v3_large()
    optimizer = torch.optim.AdamW(model.parameters())
    train(model, optimizer, lambda: (torch.randn(32, 3, 160, 160), torch.randint(1000, (32,))), cross_entropy)


def densenet():
    import torchvision

    model = torchvision.models.densenet121()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    train(model, optimizer, lambda: (torch.randn(8, 3, 224, 224), torch.randint(1000, (8,))), cross_entropy)


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(20_000, 300)
        self.rnn = nn.GRU(300, 512, num_layers=2, bidirectional=True, batch_first=True)
        self.head = nn.Linear(1024, 50)

    def forward(self, tokens):
        return self.head(self.rnn(self.embed(tokens))[0]).flatten(0, 1)


def gru_tagger():
    model = Tagger()
    optimizer = torch.optim.Adam(model.parameters())
    train(
        model,
        optimizer,
        lambda: (torch.randint(20_000, (64, 200)), torch.randint(50, (64 * 200,))),
        cross_entropy,
    )


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.norm2(x))


class Speaker(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.place = nn.Embedding(16_000, 512), nn.Embedding(256, 512)
        self.blocks = nn.Sequential(*[Block(512, 8) for _ in range(8)])
        self.norm, self.head = nn.LayerNorm(512), nn.Linear(512, 16_000, bias=False)

    def forward(self, tokens):
        x = self.embed(tokens) + self.place(torch.arange(tokens.shape[1]))
        return self.head(self.norm(self.blocks(x))).flatten(0, 1)


def small_gpt():
    model = Speaker()
    optimizer = torch.optim.AdamW(model.parameters())
    train(
        model,
        optimizer,
        lambda: (torch.randint(16_000, (8, 256)), torch.randint(16_000, (8 * 256,))),
        cross_entropy,
    )


def vision_transformer():
    import torchvision

    model = torchvision.models.vit_b_16()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    train(model, optimizer, lambda: (torch.randn(8, 3, 224, 224), torch.randint(1000, (8,))), cross_entropy)


def volumes():
    layers = []
    for given, made in ((1, 16), (16, 32), (32, 64)):
        layers += [nn.Conv3d(given, made, 3, padding=1), nn.BatchNorm3d(made), nn.ReLU(), nn.MaxPool3d(2)]
    model = nn.Sequential(*layers, nn.Flatten(), nn.Linear(64 * 8**3, 2))
    optimizer = torch.optim.Adam(model.parameters())
    train(model, optimizer, lambda: (torch.randn(2, 1, 64, 64, 64), torch.randint(2, (2,))), cross_entropy)


def autoencoder():
    model = nn.Sequential(
        nn.Conv2d(3, 64, 4, 2, 1), nn.BatchNorm2d(64), nn.LeakyReLU(0.2),
        nn.Conv2d(64, 128, 4, 2, 1), nn.BatchNorm2d(128), nn.LeakyReLU(0.2),
        nn.ConvTranspose2d(128, 64, 4, 2, 1), nn.BatchNorm2d(64), nn.ReLU(),
        nn.ConvTranspose2d(64, 3, 4, 2, 1), nn.Tanh(),
    )  # fmt: skip
    optimizer = torch.optim.RMSprop(model.parameters())

    def batch():
        images = torch.rand(64, 3, 128, 128)
        return images, images

    train(model, optimizer, batch, mse_loss)


def loader_with_workers():
    import torchvision
    from torch.utils.data import DataLoader, TensorDataset

    data = TensorDataset(torch.randn(256, 3, 128, 128), torch.randint(1000, (256,)))
    model = torchvision.models.resnet34()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    batches = iter(DataLoader(data, batch_size=32, num_workers=2))
    train(model, optimizer, lambda: next(batches), cross_entropy)


def mlp_of(width):
    return nn.Sequential(nn.Linear(1024, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10))


def resumed():
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "last.pt")
        torch.save(mlp_of(6000).state_dict(), path)
        model = mlp_of(6000)
        model.load_state_dict(torch.load(path))
    optimizer = torch.optim.Adam(model.parameters())
    train(model, optimizer, lambda: (torch.randn(128, 1024), torch.randint(10, (128,))), cross_entropy)


CASES = {
    function.__name__: function
    for function in (
        wide_mlp_momentum, mobilenet, densenet, gru_tagger, small_gpt, vision_transformer, volumes, autoencoder,
        loader_with_workers, resumed,
    )
}  # fmt: skip

if __name__ == "__main__":
    CASES[sys.argv[1]]()
