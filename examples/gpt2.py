"""GPT-2 (124 M parameters) from its configuration, batch 4 x 512 tokens, AdamW, bfloat16 autocast."""

import argparse

import torch
from transformers import GPT2Config, GPT2LMHeadModel

parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int, default=4)
parser.add_argument("--tokens", type=int, default=512)
parser.add_argument("--steps", type=int, default=5)
arguments = parser.parse_args()

# GPT-2 has positions for 1,024 tokens; longer sequences need more of them.
config = GPT2Config(n_positions=max(1024, arguments.tokens))
model = GPT2LMHeadModel(config).cuda().train()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)

for step in range(arguments.steps):
    tokens = torch.randint(50257, (arguments.batch, arguments.tokens)).cuda()
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = model(input_ids=tokens, labels=tokens, use_cache=False).loss
    loss.backward()
    optimizer.step()
    print(f"step {step}: loss {loss.item():.4f}")

print("max_memory_allocated", torch.cuda.max_memory_allocated())
print("max_memory_reserved", torch.cuda.max_memory_reserved())
