"""Arrays of other libraries as memory.

In reading order: `array_info` (pointer, type, shape and strides of an array), `dlpack`, `tensors`
(torch's), `arrays` (what a caller passes), `device_arrays` (arrays in a GPU's memory, and streams).
"""
