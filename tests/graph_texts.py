"""Graphs in text: layers of transformers, and control that depends on data."""

from __future__ import annotations


class Writer:
    """Collects parameters and statements."""

    def __init__(self) -> None:
        self.params: list[str] = []
        self.lines: list[str] = []

    def alloc(self, name: str, *shape: int) -> None:
        self.lines.append(f"  alloc {name}: f32[{', '.join(map(str, shape))}]")

    def compute(self, head: str, *body: str) -> None:
        self.lines += [f"  compute {head}:", *(f"    {line}" for line in body)]

    def norm(self, name: str, source: str, result: str, rows: int, size: int) -> None:
        """A layer's norm."""
        self.params += [f"in {name}_g: f32[{size}]", f"in {name}_b: f32[{size}]"]
        self.alloc(f"{name}_m", rows)
        self.alloc(f"{name}_v", rows)
        self.alloc(result, rows, size)
        near = f"(x - m * {1 / size!r})"
        self.compute(f"{name}_m0(t in {rows})", f"{name}_m[t] = 0.0")
        self.compute(
            f"{name}_m1(t in {rows}, c in {size})", f"x = {source}[t, c]", f"{name}_m[t] add= x"
        )
        self.compute(f"{name}_v0(t in {rows})", f"{name}_v[t] = 0.0")
        self.compute(
            f"{name}_v1(t in {rows}, c in {size})",
            f"x = {source}[t, c]",
            f"m = {name}_m[t]",
            f"{name}_v[t] add= {near} * {near}",
        )
        self.compute(
            f"{name}_y(t in {rows}, c in {size})",
            f"x = {source}[t, c]",
            f"m = {name}_m[t]",
            f"v = {name}_v[t]",
            f"g = {name}_g[c]",
            f"b = {name}_b[c]",
            f"{result}[t, c] = {near} * rsqrt(v * {1 / size!r} + 0.00001) * g + b",
        )

    def linear(
        self,
        name: str,
        source: str,
        result: str,
        sizes: tuple[int, int, int],
        value: str = "s + b",
        beside: str = "",
    ) -> None:
        """``result = value`` of sums ``s``, a bias ``b``, and an element ``r`` of ``beside``."""
        rows, wide, long = sizes
        self.params += [f"in {name}_w: f32[{wide}, {long}]", f"in {name}_b: f32[{long}]"]
        self.alloc(f"{name}_s", rows, long)
        self.alloc(result, rows, long)
        self.compute(f"{name}_z(t in {rows}, o in {long})", f"{name}_s[t, o] = 0.0")
        self.compute(
            f"{name}_p(t in {rows}, o in {long}, i in {wide})",
            f"x = {source}[t, i]",
            f"w = {name}_w[i, o]",
            f"{name}_s[t, o] add= x * w",
        )
        self.compute(
            f"{name}_y(t in {rows}, o in {long})",
            f"s = {name}_s[t, o]",
            f"b = {name}_b[o]",
            *([f"r = {beside}[t, o]"] if beside else []),
            f"{result}[t, o] = {value}",
        )

    def attention(self, name: str, rows: int, heads: int, size: int) -> None:
        """Of ``name_q``, ``name_k`` and ``name_v``, in heads of ``size``, to ``name_c``."""
        head, row = f"h in {heads}", f"q in {rows}"
        for buffer in ("s", "t", "e", "p"):
            self.alloc(f"{name}_{buffer}", heads, rows, rows)
        self.alloc(f"{name}_m", heads, rows)
        self.alloc(f"{name}_d", heads, rows)
        self.alloc(f"{name}_c", heads, rows, size)
        self.compute(f"{name}_s0({head}, {row}, k in {rows})", f"{name}_s[h, q, k] = 0.0")
        self.compute(
            f"{name}_s1({head}, {row}, k in {rows}, c in {size})",
            f"a = {name}_q[q, h * {size} + c]",
            f"b = {name}_k[k, h * {size} + c]",
            f"{name}_s[h, q, k] add= a * b",
        )
        self.compute(
            f"{name}_s2({head}, {row}, k in {rows})",
            f"s = {name}_s[h, q, k]",
            f"{name}_t[h, q, k] = s * {size**-0.5!r}",
        )
        self.compute(f"{name}_m0({head}, {row})", f"{name}_m[h, q] = -inf")
        self.compute(
            f"{name}_m1({head}, {row}, k in {rows})",
            f"s = {name}_t[h, q, k]",
            f"{name}_m[h, q] max= s",
        )
        self.compute(
            f"{name}_e1({head}, {row}, k in {rows})",
            f"s = {name}_t[h, q, k]",
            f"m = {name}_m[h, q]",
            f"{name}_e[h, q, k] = exp(s - m)",
        )
        self.compute(f"{name}_d0({head}, {row})", f"{name}_d[h, q] = 0.0")
        self.compute(
            f"{name}_d1({head}, {row}, k in {rows})",
            f"e = {name}_e[h, q, k]",
            f"{name}_d[h, q] add= e",
        )
        self.compute(
            f"{name}_p1({head}, {row}, k in {rows})",
            f"e = {name}_e[h, q, k]",
            f"d = {name}_d[h, q]",
            f"{name}_p[h, q, k] = e / d",
        )
        self.compute(f"{name}_c0({head}, {row}, c in {size})", f"{name}_c[h, q, c] = 0.0")
        self.compute(
            f"{name}_c1({head}, {row}, c in {size}, k in {rows})",
            f"p = {name}_p[h, q, k]",
            f"v = {name}_v[k, h * {size} + c]",
            f"{name}_c[h, q, c] add= p * v",
        )
        self.alloc(f"{name}_a", rows, heads * size)
        self.compute(
            f"{name}_a0({row}, d in {heads * size})",
            f"c = {name}_c[d // {size}, q, d % {size}]",
            f"{name}_a[q, d] = c",
        )

    def text(self, name: str) -> str:
        return f"kernel {name}({', '.join(self.params)}):\n" + "\n".join(self.lines) + "\n"


def transformer(
    layers: int = 2, rows: int = 24, size: int = 32, heads: int = 2, hidden: int = 64
) -> str:
    """Layers of a transformer that has its norms in front."""
    w = Writer()
    w.params.append(f"in x: f32[{rows}, {size}]")
    now = "x"
    for layer in range(layers):
        n = f"l{layer}"
        w.norm(f"{n}_n1", now, f"{n}_h", rows, size)
        for part in "qkv":
            w.linear(f"{n}_i{part}", f"{n}_h", f"{n}_{part}", (rows, size, size))
        w.attention(n, rows, heads, size // heads)
        w.linear(f"{n}_o", f"{n}_a", f"{n}_r", (rows, size, size), "s + b + r", now)
        w.norm(f"{n}_n2", f"{n}_r", f"{n}_g", rows, size)
        w.linear(f"{n}_f1", f"{n}_g", f"{n}_f", (rows, size, hidden), "max(s + b, 0.0)")
        w.linear(f"{n}_f2", f"{n}_f", f"{n}_y", (rows, hidden, size), "s + b + r", f"{n}_r")
        now = f"{n}_y"
    w.params.append(f"out y: f32[{rows}, {size}]")
    w.compute(f"last(t in {rows}, c in {size})", f"v = {now}[t, c]", "y[t, c] = v")
    return w.text("transformer")


# Powers of a matrix until their trace is large, and what becomes of the sign of the sum.
CONTROL = """
kernel control(in a: f32[8, 8], in limit: f32[1], out y: f32[8, 8], out steps: s32[1]):
  alloc p: f32[8, 8]
  alloc trace: f32[1]
  compute first(i in 8, j in 8):
    x = a[i, j]
    p[i, j] = x
  compute none(i in 1):
    steps[i] = s32(0)
    trace[i] = 0.0
  while trace[0] < limit[0] and steps[0] < s32(9):
    alloc q: f32[8, 8]
    compute zero(i in 8, j in 8):
      q[i, j] = 0.0
    compute product(i in 8, j in 8, k in 8):
      x = p[i, k]
      z = a[k, j]
      q[i, j] add= x * z
    compute back(i in 8, j in 8):
      x = q[i, j]
      p[i, j] = x
    compute nothing(i in 1):
      trace[i] = 0.0
    compute add(i in 1, j in 8):
      x = p[j, j]
      trace[i] add= x
    compute next(i in 1):
      s = steps[i]
      steps[i] = s + s32(1)
  alloc sum: f32[1]
  compute empty(i in 1):
    sum[i] = 0.0
  compute total(o in 1, i in 8, j in 8):
    x = p[i, j]
    sum[o] add= x
  if sum[0] < 0.0:
    compute negative(i in 8, j in 8):
      x = p[i, j]
      y[i, j] = -x
  else:
    alloc half: f32[8, 8]
    compute halves(i in 8, j in 8):
      x = p[i, j]
      half[i, j] = x * 0.5
    compute turned(i in 8, j in 8):
      x = half[j, i]
      y[i, j] = x
"""
