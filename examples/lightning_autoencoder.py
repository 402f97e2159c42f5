"""An autoencoder trained by Lightning, on random images."""

import lightning
import torch
from torch import nn


class Autoencoder(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(28 * 28, 512), nn.ReLU(), nn.Linear(512, 32))
        self.decoder = nn.Sequential(nn.Linear(32, 512), nn.ReLU(), nn.Linear(512, 28 * 28))

    def training_step(self, batch: list[torch.Tensor], index: int) -> torch.Tensor:
        images = batch[0].flatten(1)
        loss = nn.functional.mse_loss(self.decoder(self.encoder(images)), images)
        self.log("loss", loss, prog_bar=True)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=1e-3)


images = torch.utils.data.TensorDataset(torch.rand(64 * 6, 28, 28))
trainer = lightning.Trainer(
    max_epochs=1, accelerator="gpu", devices=1, logger=False, enable_checkpointing=False, enable_model_summary=False
)
trainer.fit(Autoencoder(), torch.utils.data.DataLoader(images, batch_size=64))

print("max_memory_allocated", torch.cuda.max_memory_allocated())
print("max_memory_reserved", torch.cuda.max_memory_reserved())
