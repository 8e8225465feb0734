"""Arrays of other libraries as memory.

In reading order: `array_info` (pointer, type, shape and strides of an array), `dlpack`, `tensors`
(torch's), `arrays` (what a caller passes), `results` (new arrays of the caller's library),
`device_arrays` (arrays in a GPU's memory, and streams).
"""
