"""A two-layer LSTM language model, batch 32 x 128 tokens of varying length, Adam, clipped gradients."""

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

VOCABULARY = 10_000


class LanguageModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, 256)
        self.lstm = nn.LSTM(256, 512, num_layers=2, batch_first=True, dropout=0.2)
        self.head = nn.Linear(512, VOCABULARY)

    def forward(self, tokens: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        packed = pack_padded_sequence(self.embedding(tokens), lengths.cpu(), batch_first=True, enforce_sorted=False)
        output, _ = self.lstm(packed)
        return self.head(pad_packed_sequence(output, batch_first=True, total_length=tokens.shape[1])[0])


torch.manual_seed(0)
model = LanguageModel().cuda()
optimizer = torch.optim.Adam(model.parameters())
tokens = torch.randint(1, VOCABULARY, (32, 128))
lengths = torch.randint(64, 129, (32,))

for step in range(5):
    batch, batch_lengths = tokens.cuda(), lengths.cuda()
    logits = model(batch, batch_lengths)
    loss = nn.functional.cross_entropy(logits.view(-1, VOCABULARY), batch.view(-1))
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    print(f"step {step}: loss {loss.item():.4f}")

print("max_memory_allocated", torch.cuda.max_memory_allocated())
print("max_memory_reserved", torch.cuda.max_memory_reserved())
