"""Steps of a transformer with 6.7 billion parameters, batch 1 x 2048 tokens, bfloat16, AdamW.

peakmem run --gpu b200 --build-on-device benchmarks/llama7b.py
"""

import torch
from transformers import LlamaConfig, LlamaForCausalLM

torch.set_default_dtype(torch.bfloat16)
model = LlamaForCausalLM(LlamaConfig()).cuda().train()  # the defaults are those of the model with 7 B
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)

for step in range(3):
    tokens = torch.randint(32000, (1, 2048)).cuda()
    optimizer.zero_grad()
    loss = model(input_ids=tokens, labels=tokens, use_cache=False).loss
    loss.backward()
    optimizer.step()
    print(f"step {step}: loss {loss.item():.4f}")
