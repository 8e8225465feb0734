"""DenseNet-121, which `transformers` does not have: G. Huang and others, "Densely Connected
Convolutional Networks", CVPR 2017, table 1."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

_BLOCKS, _GROWTH, _FIRST = (6, 12, 24, 16), 32, 64


def _convolved(channels: int, out: int, size: int) -> nn.Sequential:
    """A convolution of what batch norm and ReLU leave."""
    convolution = nn.Conv2d(channels, out, size, padding=size // 2, bias=False)
    return nn.Sequential(nn.BatchNorm2d(channels), nn.ReLU(), convolution)


class _Layer(nn.Module):
    """What a layer adds to its channels."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.narrow = _convolved(channels, 4 * _GROWTH, 1)
        self.wide = _convolved(4 * _GROWTH, _GROWTH, 3)

    def forward(self, x: Any) -> Any:
        return torch.cat([x, self.wide(self.narrow(x))], 1)


class DenseNet121(nn.Module):
    """Images of 224x224 to 1000 classes: a tuple with these."""

    main_input_name = "pixel_values"

    def __init__(self) -> None:
        super().__init__()
        stem = nn.Conv2d(3, _FIRST, 7, stride=2, padding=3, bias=False)
        parts: list[nn.Module] = [stem, nn.BatchNorm2d(_FIRST), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
        channels = _FIRST
        for number, count in enumerate(_BLOCKS):
            if number:
                parts += [_convolved(channels, channels // 2, 1), nn.AvgPool2d(2)]
                channels //= 2
            parts += [_Layer(channels + n * _GROWTH) for n in range(count)]
            channels += count * _GROWTH
        head = (nn.BatchNorm2d(channels), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.parts = nn.Sequential(*parts, *head, nn.Linear(channels, 1000))

    def forward(self, pixel_values: Any) -> tuple[Any, ...]:
        return (self.parts(pixel_values),)
