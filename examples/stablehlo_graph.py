"""A graph from StableHLO's text: cut into kernels, compiled, called like one."""

import numpy as np

import tilewright as tw

graph = tw.from_stablehlo("""
func.func @main(%x: tensor<4x3xf32>, %w: tensor<3x2xf32>) -> tensor<4x2xf32> {
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
    : (tensor<4x3xf32>, tensor<3x2xf32>) -> tensor<4x2xf32>
  %1 = stablehlo.tanh %0 : tensor<4x2xf32>
  return %1 : tensor<4x2xf32>
}
""")
print(f"{graph.inputs} -> {graph.outputs}")
print(graph.kernel)
run = tw.compile(graph, target="x86")
x, w = np.ones((4, 3), np.float32), np.full((3, 2), 0.5, np.float32)
y = run(x, w)
print(y)
np.testing.assert_allclose(y, np.tanh(x @ w), 1e-6)
