"""What runs when on the host, and arrays of other libraries as memory.

In reading order: `steps` (the tree of launches and the control around them), `array_info` (pointer,
type, shape and strides of an array), `dlpack`, `tensors` (torch's), `arrays` (what a caller
passes), `results` (new arrays of the caller's library), `remote` (memory that the host cannot
reach), `device_arrays` (arrays in a GPU's memory, and streams).
"""
