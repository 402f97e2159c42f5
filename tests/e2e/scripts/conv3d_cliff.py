"""One half-precision 3-D convolution on a volume whose first side is given; it is not trained."""

import sys

import torch

convolution = torch.nn.Conv3d(64, 32, 3, padding=1, device="cuda", dtype=torch.float16)
volume = torch.empty(1, 64, int(sys.argv[1]), 370, 251, device="cuda", dtype=torch.float16)
with torch.no_grad():
    convolution(volume)
