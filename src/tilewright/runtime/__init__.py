"""Arrays of other libraries as memory.

In reading order: `arrays` (pointer, type, shape and strides of what a caller passes), `dlpack`,
`device_arrays` (those in a GPU's memory, and streams).
"""
