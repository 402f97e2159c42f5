"""The training script of the examples in this folder: a small network, Adam."""

import torch
from torch import nn

model = nn.Sequential(nn.Linear(1024, 4096), nn.GELU(), nn.Linear(4096, 1024)).cuda()
optimizer = torch.optim.Adam(model.parameters())

for _ in range(5):
    inputs = torch.randn(512, 1024).cuda()
    loss = nn.functional.mse_loss(model(inputs), inputs)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
