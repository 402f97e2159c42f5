"""32 checkpointed layers of width 4096, then logits over 128,256 words, for 81,920 tokens in bfloat16."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

TOKENS, WIDTH, WORDS, LAYERS = 81_920, 4096, 128_256, 32

with torch.device("cuda"):
    layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH, bias=False, dtype=torch.bfloat16) for _ in range(LAYERS))
    head = nn.Linear(WIDTH, WORDS, bias=False, dtype=torch.bfloat16)
    x = torch.randn(TOKENS, WIDTH, dtype=torch.bfloat16)
    labels = torch.randint(WORDS, (TOKENS,))
optimizer = torch.optim.SGD([*layers.parameters(), *head.parameters()], lr=0.1)

for layer in layers:
    x = x + checkpoint(lambda x, layer=layer: layer(x).relu(), x, use_reentrant=False)
loss = nn.functional.cross_entropy(head(x), labels)
loss.backward()
optimizer.step()
