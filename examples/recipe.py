"""A recipe of one's own: what it schedules, among which choices, and what it predicts of them."""

import numpy as np

import tilewright as tw


class Rows(tw.Config):
    """How many rows a thread does at a time."""

    rows: int = 4


class LargestOfProducts(tw.Recipe):
    """The greatest of products of three: rows on threads, a few at a time."""

    name, config = "largest_of_products", Rows

    def matches(self, start, machine):
        return machine.threaded and start.kernel.name == "largest"

    def space(self, start, machine):
        return [Rows(rows) for rows in (2, 4, 8)]

    def predict(self, start, machine, config):
        return 1e-6 * (1 + abs(config.rows - 4))

    def schedule(self, s, machine, config):
        loops = s.tile("products", {"i": config.rows, "k": 1})
        s.lower_computes(vector="j", lanes=8)
        s.set_kind([loops["i"]], tw.LoopKind.PARALLEL)


largest = tw.parse_kernel("""
kernel largest(in a: f32[16, 12], in b: f32[12, 24], in c: f32[12], out y: f32[16, 24]):
  compute start(i in 16, j in 24):
    y[i, j] = -inf
  compute products(i in 16, j in 24, k in 12):
    y[i, j] max= a[i, k] * b[k, j] * c[k]
""")
tw.register_recipe(LargestOfProducts())
kernel = tw.compile(largest, "x86")
tw.unregister_recipe("largest_of_products")
print(f"chosen: {kernel.config}")

rng = np.random.default_rng(0)
a, b, c = (rng.integers(-3, 4, s).astype(np.float32) for s in ((16, 12), (12, 24), 12))
wanted = (a[:, :, None] * b[None] * c[None, :, None]).max(axis=1)
assert (kernel(a=a, b=b, c=c) == wanted).all()
print("as numpy has it")
