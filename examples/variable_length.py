"""A small language model on sentences of 64 to 512 tokens: every batch has a length of its own.

Reserved memory grows from step to step, since the blocks that one length leaves behind rarely fit the next.
"""

import argparse
import random

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=200)
parser.add_argument("--batch", type=int, default=16)
parser.add_argument("--width", type=int, default=512)
parser.add_argument("--layers", type=int, default=6)
parser.add_argument("--vocabulary", type=int, default=32_000)
parser.add_argument("--shortest", type=int, default=64)
parser.add_argument("--longest", type=int, default=512)
parser.add_argument("--device", default="cuda")
options = parser.parse_args()


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(options.vocabulary, options.width)
        layer = nn.TransformerEncoderLayer(options.width, nhead=8, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, options.layers, enable_nested_tensor=False)
        self.head = nn.Linear(options.width, options.vocabulary)

    def forward(self, tokens):
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1], device=tokens.device)
        return self.head(self.layers(self.tokens(tokens), mask=mask, is_causal=True))


lengths = random.Random(0)
model = Model().to(options.device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
for _ in range(options.steps):
    length = lengths.randint(options.shortest, options.longest)
    tokens = torch.randint(options.vocabulary, (options.batch, length + 1), device=options.device)
    logits = model(tokens[:, :-1])
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
print("done")
