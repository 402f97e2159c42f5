"""ResNet-50 on images of 224 x 224, batch 32, SGD with momentum."""

import argparse

import torch
import torchvision
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int, default=32)
parser.add_argument("--steps", type=int, default=5)
parser.add_argument("--model", default="resnet50")
arguments = parser.parse_args()

model = getattr(torchvision.models, arguments.model)(weights=None).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
images = torch.randn(arguments.batch, 3, 224, 224)
labels = torch.randint(1000, (arguments.batch,))

for step in range(arguments.steps):
    loss = nn.functional.cross_entropy(model(images.cuda()), labels.cuda())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"step {step}: loss {loss.item():.4f}")

print("max_memory_allocated", torch.cuda.max_memory_allocated())
print("max_memory_reserved", torch.cuda.max_memory_reserved())
