"""A model by `torch.compile`. It needs PyTorch: `pip install tilewright[torch]`."""

import torch

model = torch.nn.Sequential(
    torch.nn.Linear(64, 128), torch.nn.GELU(), torch.nn.LayerNorm(128), torch.nn.Linear(128, 10)
).eval()
fast = torch.compile(model, backend="tilewright")  # nothing has to be imported
x = torch.randn(8, 64)
with torch.no_grad():
    difference = float((fast(x) - model(x)).abs().max())
print(f"largest difference from PyTorch: {difference:.1e}")
assert difference < 1e-4
