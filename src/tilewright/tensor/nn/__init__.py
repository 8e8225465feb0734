"""The ops of neural networks, said once for all front ends.

In reading order: `norms` (softmax, moments, normalizations), `ordering` (places of extremes, sorts,
running sums), `pooling` (windows of images, and places of their greatest elements), `resampling`
(images of another size), `sampling` (elements between elements), `recurrent` (LSTM, GRU, RNN),
`channels` (of images, in another order),
`group_weights` (of 4 and 8 bits, with scales and zero points of groups).
"""
