"""A BERT classifier trained by the Trainer of Hugging Face, on random sentences."""

import tempfile

import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments


class RandomSentences(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return 16 * 6

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"input_ids": torch.randint(30522, (128,)), "labels": torch.tensor(index % 2)}


model = BertForSequenceClassification(BertConfig(num_labels=2))
arguments = TrainingArguments(
    output_dir=tempfile.mkdtemp(),
    per_device_train_batch_size=16,
    num_train_epochs=1,
    bf16=True,
    report_to=[],
    save_strategy="no",
)
Trainer(model=model, args=arguments, train_dataset=RandomSentences()).train()

print("max_memory_allocated", torch.cuda.max_memory_allocated())
print("max_memory_reserved", torch.cuda.max_memory_reserved())
