"""A 3-D U-Net on volumes of 64 x 64 x 64, batch 2, float16 autocast with a gradient scaler, Adam."""

import argparse

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int, default=2)
parser.add_argument("--side", type=int, default=64, help="of the volumes; a multiple of 2 ** (levels - 1)")
parser.add_argument("--width", type=int, default=16, help="channels of the first level; each level has twice as many")
parser.add_argument("--levels", type=int, default=4)
parser.add_argument("--steps", type=int, default=5)
arguments = parser.parse_args()


def block(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv3d(inputs, outputs, 3, padding=1),
        nn.BatchNorm3d(outputs),
        nn.ReLU(inplace=True),
        nn.Conv3d(outputs, outputs, 3, padding=1),
        nn.BatchNorm3d(outputs),
        nn.ReLU(inplace=True),
    )


class UNet3d(nn.Module):
    def __init__(self, widths: tuple[int, ...], classes: int = 3) -> None:
        super().__init__()
        self.down = nn.ModuleList(block(a, b) for a, b in zip((1, *widths[:-1]), widths, strict=True))
        self.up = nn.ModuleList(block(a + b, b) for a, b in zip(widths[:0:-1], widths[-2::-1], strict=True))
        self.widen = nn.Upsample(scale_factor=2, mode="trilinear")
        self.pool = nn.MaxPool3d(2)
        self.head = nn.Conv3d(widths[0], classes, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        skips = []
        for level in self.down[:-1]:
            x = level(x)
            skips.append(x)
            x = self.pool(x)
        x = self.down[-1](x)
        for level in self.up:
            x = level(torch.cat([self.widen(x), skips.pop()], dim=1))
        return self.head(x)


model = UNet3d(tuple(arguments.width * 2**level for level in range(arguments.levels))).cuda()
optimizer = torch.optim.Adam(model.parameters())
scaler = torch.amp.GradScaler("cuda")

size = (arguments.side,) * 3

for step in range(arguments.steps):
    volumes = torch.randn(arguments.batch, 1, *size).cuda()
    labels = torch.randint(3, (arguments.batch, *size)).cuda()
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = nn.functional.cross_entropy(model(volumes), labels)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    print(f"step {step}: loss {loss.item():.4f}")

print("max_memory_allocated", torch.cuda.max_memory_allocated())
print("max_memory_reserved", torch.cuda.max_memory_reserved())
