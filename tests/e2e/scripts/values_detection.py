"""Train a detector of torchvision on two images with boxes."""

import json
import sys

import torch
import torchvision

sys.path.insert(0, sys.argv[1])
import peakmem_inside.values as following

values = following.install("")
make = getattr(torchvision.models.detection, sys.argv[2])
with torch.device("cuda"):
    model = make(weights=None, weights_backbone=None).train()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
peaks = []
for _ in range(2):
    torch.cuda.reset_peak_memory_stats()
    images = [torch.rand(3, 300, 400).to("cuda") for _ in range(2)]
    targets = [
        {
            "boxes": torch.tensor([[10.0, 20.0, 110.0, 130.0], [50.0, 60.0, 200.0, 250.0]]).to("cuda"),
            "labels": torch.tensor([1, 2]).to("cuda"),
            "masks": torch.ones(2, 300, 400, dtype=torch.uint8).to("cuda"),
        }
        for _ in images
    ]
    losses = model(images, targets)
    optimizer.zero_grad()
    sum(losses.values()).backward()
    optimizer.step()
    peaks.append(torch.cuda.max_memory_allocated())
wrong = torch.tensor([[10.0, 20.0, 5.0, 130.0]]).to("cuda")
try:
    model(images, [{**target, "boxes": wrong, "labels": target["labels"][:1]} for target in targets])
    refused = False
except (AssertionError, ValueError):
    refused = True
print(json.dumps({"peaks": peaks, "losses": sorted(losses), "refused": refused, "assumptions": values.assumptions()}))
