"""Tilewright: a tensor-kernel compiler and runtime."""
