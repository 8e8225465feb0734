"""A convolution, channels last, with a bias, a residual and a ReLU in the same kernel."""

import numpy as np

import tilewright as tw

op = tw.convolution(
    "mb1ic16ih14oc32oh14kh3ph1",  # benchdnn's descriptors; what is unsaid is deduced
    src="nhwc",
    dst="nhwc",
    epilogue=[tw.bias(), tw.add("residual"), tw.relu()],
)
kernel = tw.compile(op, target="x86", threads=2)

# Shapes are logical (N, C, H, W); the layout is in the strides.
x = np.ones((1, 14, 14, 16), np.float32).transpose(0, 3, 1, 2)
residual = np.full((1, 14, 14, 32), 2.0, np.float32).transpose(0, 3, 1, 2)
weights = kernel.pack("weights", np.full((32, 16, 3, 3), 0.5, np.float32))
y = kernel(src=x, weights=weights, bias=np.zeros(32, np.float32), residual=residual)

print(f"{op.problem.descriptor()}: {y.shape}, strides {y.strides}")
print(f"in the middle {y[0, 0, 7, 7]}, in a corner {y[0, 0, 0, 0]}")
assert y[0, 0, 7, 7] == 16 * 9 * 0.5 + 2 and y[0, 0, 0, 0] == 16 * 4 * 0.5 + 2
