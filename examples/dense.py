"""A dense network: inputs of 1000, four hidden layers of 100, output 10; batch 256, float32, Adam."""

import torch
from torch import nn

BATCH, STEPS = 256, 5

layers: list[nn.Module] = []
width = 1000
for _ in range(4):
    layers += [nn.Linear(width, 100), nn.ReLU()]
    width = 100
model = nn.Sequential(*layers, nn.Linear(width, 10)).cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

for step in range(STEPS):
    inputs = torch.randn(BATCH, 1000).cuda()
    labels = torch.randint(10, (BATCH,)).cuda()
    loss = nn.functional.cross_entropy(model(inputs), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"step {step}: loss {loss.item():.4f}")

print("max_memory_allocated", torch.cuda.max_memory_allocated())
print("max_memory_reserved", torch.cuda.max_memory_reserved())
