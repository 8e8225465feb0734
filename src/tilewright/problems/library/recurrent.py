"""Recurrent layers. Source: oneDNN's developer guide, "RNN"; weights are those in its ``ldigo``."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from tilewright.dtypes import DType, bf16, f16, f32, f64
from tilewright.errors import ProblemError, UnsupportedError
from tilewright.problems.descriptor import tokenize
from tilewright.problems.knobs import Direction
from tilewright.problems.library.bounded import Bounded
from tilewright.problems.library.record import Record, Slot, checked_flags
from tilewright.problems.pieces import plain_name
from tilewright.problems.problem import Answer, Array, Shape, check_minibatch, name_suffix

_KEYS = ("l", "t", "mb", "sic", "slc", "dhc", "dic")
# Letters of ``--flags``, and what they stand for.
_FLAGS = {"P": "peepholes", "R": "a projection"}
# How many gates an algorithm has.
_GATES = {
    "VANILLA_RNN": 1,
    "VANILLA_LSTM": 4,
    **dict.fromkeys(("VANILLA_GRU", "LBR_GRU", "VANILLA_AUGRU", "LBR_AUGRU"), 3),
}
_ORDERS = ("left2right", "right2left", "concat", "sum")
_ACTIVATIONS = ("RELU", "TANH", "LOGISTIC")
# What functions of the library are off, in roundings.
_UNITS = 64


@dataclass(frozen=True)
class RecurrentProblem(Record):
    """``layers`` of recurrent cells over ``steps`` of a ``batch``, forward. ``order`` is that of
    the steps; of ``concat`` and ``sum`` there are layers in both orders, whose results stand beside
    one another, or are added. Features are ``slc`` of src, ``sic`` of the states before, ``dhc`` of
    the states after. ``activation`` is VANILLA_RNN's; gates of VANILLA_LSTM are input, forget,
    cell, output, of GRUs update, reset, hidden, with a further bias of the hidden gate of LBR ones,
    which the reset gate is multiplied with. AUGRUs multiply update gates by 1 less an attention, a
    number for each step and sequence. ``flags`` of an LSTM: P, input, forget and output gate look
    at the cell state, too; R, a matrix makes ``dic`` features of the ``dhc``: the states."""

    sic: int
    slc: int = 0
    dhc: int = 0
    layers: int = 1
    steps: int = 1
    batch: int = 2
    algorithm: str = "VANILLA_RNN"
    order: str = "left2right"
    activation: str = ""
    dic: int = 0
    flags: str = ""
    name: str = ""

    driver: ClassVar[str] = "rnn"
    example: ClassVar[str] = "l1t4mb2sic16slc12dhc16"
    roles: ClassVar[tuple[str, ...]] = ("src", "weights", "dst", "states")
    knobs: ClassVar[tuple[str, ...]] = ("alg", "order", "activation", "flags")
    algorithms: ClassVar[tuple[str, ...]] = tuple(_GATES)
    data_types: ClassVar[tuple[DType, ...]] = (f32, bf16, f16, f64)

    def __post_init__(self) -> None:
        self._check_algorithm()
        object.__setattr__(self, "slc", self.slc or self.sic)
        object.__setattr__(self, "dhc", self.dhc or self.sic)
        object.__setattr__(self, "dic", self.dic or self.dhc)
        self._check_flags()
        usual = "RELU" if self.algorithm == "VANILLA_RNN" else ""
        activation = self.activation or usual if usual else ""
        object.__setattr__(self, "activation", activation)
        for name, allowed in (("order", _ORDERS), ("activation", (*_ACTIVATIONS, ""))):
            if getattr(self, name) not in allowed:
                raise ProblemError(
                    f"unknown {name} {getattr(self, name)!r:.40}",
                    where=name,
                    cure=f"choose one of {', '.join(filter(None, allowed))}",
                )
        self._check_fields(
            sic=self.sic,
            slc=self.slc,
            dhc=self.dhc,
            dic=self.dic,
            layers=self.layers,
            steps=self.steps,
            batch=self.batch,
        )
        if self.sic != self.dic and (self.steps > 1 or self.layers > 1 or self._is_gru):
            raise self._unlike("sic", "states are those of the next step")
        if self.slc != self.dic and self.layers > 1:
            raise self._unlike("slc", "what a layer gives is what the next one takes")

    def _check_flags(self) -> None:
        flags = checked_flags(self.flags, _FLAGS)
        if self.dic != self.dhc:
            flags = checked_flags(flags + "R", _FLAGS)
        object.__setattr__(self, "flags", flags)

    def _unlike(self, name: str, why: str) -> UnsupportedError:
        size = "dhc" if self.dic == self.dhc else "dic"
        return UnsupportedError(
            f"{name} is {getattr(self, name)}, {size} {self.dic}",
            where=name,
            why=why,
            cure="make them one number",
        )

    @classmethod
    def parse(cls, text: str) -> Self:
        fields = tokenize(text, _KEYS)
        fields.refuse_zeros(_KEYS)
        sic = fields.require("sic", "the number of features of states")
        return cls(
            sic,
            fields.get("slc") or sic,
            fields.get("dhc") or sic,
            fields.get("l") or 1,
            fields.get("t") or 1,
            fields.get("mb") or 2,
            dic=fields.get("dic") or 0,
            name=fields.name,
        )

    def descriptor(self) -> str:
        sizes = f"l{self.layers}t{self.steps}mb{self.batch}sic{self.sic}"
        projected = f"dic{self.dic}" if self.dic != self.dhc else ""
        return f"{sizes}slc{self.slc}dhc{self.dhc}{projected}{name_suffix(self.name)}"

    @classmethod
    def drawn(cls, rng: random.Random) -> Self:
        algorithm = rng.choice(cls.algorithms)
        layers, steps = rng.choice((1, 1, 1, 2)), rng.choice((1, 2, 3))
        sic, slc, dhc = (rng.choice((1, 3, 8, 16, 20)) for _ in range(3))
        flags = rng.choice(("", "", "P", "R", "PR")) if algorithm == "VANILLA_LSTM" else ""
        dic = rng.choice((3, 8, 20)) if "R" in flags else dhc
        if steps > 1 or layers > 1 or algorithm.endswith("GRU"):
            sic = dic
        return cls(
            sic,
            dic if layers > 1 else slc,
            dhc,
            layers,
            steps,
            rng.choice((1, 2, 5, 16)),
            algorithm,
            rng.choice(_ORDERS),
            rng.choice(_ACTIVATIONS),
            dic,
            flags,
        )

    def smallest(self) -> Self:
        return replace(self, sic=1, slc=1, dhc=1, dic=1, layers=1, steps=1, batch=1)

    def with_mb(self, mb: int) -> Self:
        check_minibatch(mb)
        return self.changed(batch=mb)

    def with_option(self, name: str, text: str) -> Self:
        words = {"order": _ORDERS, "activation": _ACTIVATIONS}.get(name)
        return super().with_option(name, plain_name(text, words) if words else text)

    @property
    def has_attention(self) -> bool:
        """Whether update gates are multiplied by 1 less a number of the step."""
        return self.algorithm.endswith("AUGRU")

    @property
    def _is_linear(self) -> bool:
        """Whether the reset gate applies to a product."""
        return self.algorithm.startswith("LBR")

    @property
    def _is_gru(self) -> bool:
        return self.algorithm.endswith("GRU")

    @property
    def has_cell_states(self) -> bool:
        """Whether there are states that are no results of steps."""
        return self.algorithm == "VANILLA_LSTM"

    @property
    def gates(self) -> int:
        """How many gates a cell has."""
        return _GATES[self.algorithm]

    @property
    def reversed_orders(self) -> tuple[bool, ...]:
        """Of each stack of layers, whether its steps go from the last to the first."""
        orders = {"left2right": (False,), "right2left": (True,)}
        return orders.get(self.order, (False, True))

    @property
    def nominal_flops(self) -> int:
        cells = self.layers * len(self.reversed_orders) * self.steps
        projection = self.dhc * self.dic if "R" in self.flags else 0
        products = self.gates * self.dhc * (self.slc + self.sic) + projection
        return 2 * cells * self.batch * products

    def slots(self, direction: Direction) -> tuple[Slot, ...]:
        stacks = self.layers, len(self.reversed_orders)
        rows = self.gates * self.dhc
        wide = rows + self.dhc * self._is_linear
        channels = self.dic * (2 if self.order == "concat" else 1)
        after = (*stacks, self.batch, self.dic)
        cells = (*stacks, self.batch, self.dhc)
        result = [
            Slot("src", (self.steps, self.batch, self.slc), "in", "src", "tnc"),
            Slot("src_iter", (*stacks, self.batch, self.sic), "in", "states"),
            Slot("weights_layer", (*stacks, self.slc, rows), "in", "weights"),
            Slot("weights_iter", (*stacks, self.sic, rows), "in", "weights"),
            Slot("bias", (*stacks, wide), "in", ""),
            Slot("dst", (self.steps, self.batch, channels), "out", "dst", "tnc"),
            Slot("dst_iter", after, "out", "states"),
        ]
        last = len(result) - 3
        if "R" in self.flags:
            projection = (*stacks, self.dhc, self.dic)
            result.insert(last, Slot("weights_projection", projection, "in", "weights"))
        if "P" in self.flags:
            result.insert(last, Slot("weights_peephole", (*stacks, 3, self.dhc), "in", ""))
        if self.has_cell_states:
            result.insert(2, Slot("src_iter_c", cells, "in", ""))
            result.append(Slot("dst_iter_c", cells, "out", ""))
        if self.has_attention:
            result.insert(1, Slot("attention", (self.steps, self.batch, 1), "in", "src", "tnc"))
        return tuple(result)

    def check(self, types: Mapping[str, DType], direction: Direction) -> None:
        super().check(types, direction)
        if self.flags and not self.has_cell_states:
            raise UnsupportedError(
                f"{self.algorithm} with {_FLAGS[self.flags[0]]}",
                where="dic" if self.dic != self.dhc else "flags",
                why="only an LSTM has cell states beside its results",
                cure="choose VANILLA_LSTM, or give dic and dhc one size and no flags",
            )
        if types["src"] is not types["weights"]:
            raise UnsupportedError(
                f"rnn has src of {types['src']}, weights of {types['weights']}",
                where="weights",
                cure="give both one type",
            )

    def answers(self, arrays: Mapping[str, Array], direction: Direction) -> dict[str, Answer]:
        ends: dict[tuple[int, int], list[Bounded]] = {}
        outputs = []
        for d, backwards in enumerate(self.reversed_orders):
            x = [Bounded.exact(arrays["src"][t]) for t in range(self.steps)]
            for n in range(self.layers):
                states = [Bounded.exact(arrays["src_iter"][n, d])]
                if self.has_cell_states:
                    states.append(Bounded.exact(arrays["src_iter_c"][n, d]))
                step_values = {k: w[n, d] for k, w in arrays.items() if k[:3] in ("wei", "bia")}
                for t in reversed(range(self.steps)) if backwards else range(self.steps):
                    if self.has_attention:
                        step_values["attention"] = arrays["attention"][t]
                    states = self._step(x[t], states, step_values)
                    x[t] = states[0]
                ends[n, d] = states
            outputs.append(x)
        if self.order == "sum":
            outputs = [[a + b for a, b in zip(*outputs, strict=True)]]
        terms = self.slc + self.sic + _UNITS + (self.dhc if "R" in self.flags else 0)
        results = {"dst": _stacked([Bounded.beside(parts) for parts in zip(*outputs, strict=True)])}
        names = ("dst_iter", "dst_iter_c") if self.has_cell_states else ("dst_iter",)
        shape = self.layers, len(self.reversed_orders), self.batch
        for k, name in enumerate(names):
            value, size = _stacked([ends[key][k] for key in sorted(ends)])
            results[name] = value.reshape(*shape, -1), size.reshape(*shape, -1)
        return {
            name: Answer(value, size, terms, between="src")
            for name, (value, size) in results.items()
        }

    def _step(self, x: Bounded, states: list[Bounded], parts: Mapping[str, Array]) -> list[Bounded]:
        """The states after a step."""
        h, hidden = states[0], self.dhc
        inputs, carried, bias = parts["weights_layer"], parts["weights_iter"], parts["bias"]

        def part(array: Array, n: int) -> Array:
            return array[..., n * hidden : (n + 1) * hidden]

        def given(n: int) -> Bounded:
            return x.product(part(inputs, n)) + Bounded.exact(part(bias, n))

        def before(n: int, state: Bounded = h) -> Bounded:
            return state.product(part(carried, n))

        def opened(n: int, seen: Bounded | None = None) -> Bounded:
            total = given(n) + before(n)
            if seen is not None and "P" in self.flags:
                factors = parts["weights_peephole"][{0: 0, 1: 1, 3: 2}[n]]
                total = total + seen * Bounded.exact(factors)
            return _bent(total, "LOGISTIC")

        if self.algorithm == "VANILLA_RNN":
            return [_bent(given(0) + before(0), self.activation)]
        if self.algorithm == "VANILLA_LSTM":
            new = _bent(given(2) + before(2), "TANH")
            kept = opened(1, states[1]) * states[1] + opened(0, states[1]) * new
            shown = opened(3, kept) * _bent(kept, "TANH")
            return [
                shown.product(parts["weights_projection"]) if "R" in self.flags else shown,
                kept,
            ]
        update, reset = opened(0), opened(1)
        if self.has_attention:
            left = np.broadcast_to(1 - parts["attention"], update.value.shape)
            update = Bounded(left, np.ones_like(left)) * update
        if self._is_linear:
            inside = reset * (before(2) + Bounded.exact(part(bias, 3)))
        else:
            inside = before(2, reset * h)
        rest = Bounded(1 - update.value, update.size + 1)
        return [update * h + rest * _bent(given(2) + inside, "TANH")]

    def data(
        self, name: str, shape: Shape, dtype: DType, rng: Any, direction: Direction
    ) -> Array | None:
        # What goes through many steps neither grows nor vanishes.
        most = 2 / shape[2] ** 0.5 if name.startswith("weights") else 1.0
        return rng.uniform(0.0 if name == "attention" else -most, most, shape)

    def peer(
        self, torch: Any, arrays: Mapping[str, Any], direction: Direction
    ) -> Callable[[], Any]:
        if self._is_gru or len(self.reversed_orders) > 1 or self.order == "right2left":
            raise UnsupportedError("PyTorch has no GRUs like these, and one order of steps")
        if self.activation == "LOGISTIC" or self.sic != self.dhc or self.flags:
            raise UnsupportedError("PyTorch has no recurrent layers like these")
        params = []
        for n in range(self.layers):
            layer, carried = (arrays[f"weights_{name}"][n, 0] for name in ("layer", "iter"))
            bias = arrays["bias"][n, 0].to(layer.dtype)
            matrices = layer.t().contiguous(), carried.t().contiguous()
            params += [*matrices, bias, torch.zeros_like(bias)]
        states = arrays["src_iter"][:, 0].contiguous()
        rest = (params, True, self.layers, 0.0, False, False, False)
        if self.has_cell_states:
            cells = arrays["src_iter_c"][:, 0].to(states.dtype)
            return lambda: _with_stacks(torch.lstm(arrays["src"], (states, cells), *rest))
        run = torch.rnn_relu if self.activation == "RELU" else torch.rnn_tanh
        return lambda: _with_stacks(run(arrays["src"], states, *rest))


def _bent(x: Bounded, activation: str) -> Bounded:
    if activation == "LOGISTIC":
        return x.through(lambda value: 1 / (1 + np.exp(-value)), 0.25)
    return x.through(np.tanh if activation == "TANH" else lambda value: np.maximum(value, 0), 1)


def _stacked(parts: list[Bounded]) -> tuple[Array, Array]:
    return np.stack([part.value for part in parts]), np.stack([part.size for part in parts])


def _with_stacks(results: Any) -> Any:
    """Results of PyTorch with a dim for the one stack of layers."""
    steps, *states = results
    return steps, *(state.unsqueeze(1) for state in states)
