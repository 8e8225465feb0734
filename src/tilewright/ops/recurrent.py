"""What users call for recurrent layers."""

from __future__ import annotations

from tilewright.calls import checked_call
from tilewright.dtypes import f32
from tilewright.ops.library import LibraryOp, Types, asked, op_of, switch
from tilewright.ops.op import LayoutSpec
from tilewright.problems import Direction
from tilewright.problems.library import RecurrentProblem


@checked_call
def rnn(
    problem: str | RecurrentProblem,
    algorithm: str = "vanilla_rnn",
    /,
    *,
    order: str | None = None,
    activation: str | None = None,
    peepholes: bool = False,
    projection: bool = False,
    direction: str | Direction = "fwd",
    dtype: Types = f32,
    src: LayoutSpec | None = None,
    weights: LayoutSpec | None = None,
    dst: LayoutSpec | None = None,
) -> LibraryOp:
    """Layers of recurrent cells, ``rnn("l1t4mb2sic16slc12dhc16", "vanilla_lstm")``: so many layers,
    steps, sequences, features of states, of src, and of results.

    ``algorithm`` is ``vanilla_rnn``, ``vanilla_lstm``, ``vanilla_gru`` or ``lbr_gru`` (linear
    before the reset gate), ``vanilla_augru`` or ``lbr_augru`` (with attention). ``order`` of the
    steps is ``left2right``, ``right2left``, or both, each with its own stack of layers: ``concat``
    puts their results side by side, ``sum`` adds them. ``activation`` of ``vanilla_rnn`` is
    ``RELU``, ``TANH`` or ``LOGISTIC``. With ``peepholes``, gates of an LSTM look at the cell state,
    too, through ``weights_peephole`` (layers, stacks, 3, hidden: of input, forget and output gate);
    with ``projection``, or another ``dic`` in the descriptor than ``dhc``, ``weights_projection``
    (layers, stacks, hidden, ``dic``) makes its states.

    Products are of numbers of the weights' type, which src has, too; the rest is computed in f32
    (f64, if types are). ``dtype`` of the states before and after may be another one. Arguments:
    ``src`` (steps, sequences, features); ``src_iter`` (layers, stacks, sequences, features), of an
    LSTM ``src_iter_c`` like it, in f32; ``weights_layer``, ``weights_iter`` (layers, stacks,
    features, gates * hidden) and ``bias`` (layers, stacks, gates * hidden) with gates in the order
    input, forget, cell, output, of GRUs update, reset, hidden, of LBR ones with a further bias of
    the hidden gate's product with the state; ``attention`` (steps, sequences, 1) after ``src``,
    where update gates are multiplied by 1 less it; ``dst`` (steps, sequences, hidden),
    ``dst_iter``, ``dst_iter_c``.

    Raises `ProblemError` or `UnsupportedError`. Source: oneDNN's developer guide, "RNN".
    """
    activation = activation.upper() if isinstance(activation, str) else activation
    flags = "P" * switch(peepholes, "peepholes") + "R" * switch(projection, "projection")
    recurrent_problem = asked(
        problem,
        RecurrentProblem,
        algorithm=algorithm,
        order=order,
        activation=activation,
        flags=flags or None,
    )
    return op_of(recurrent_problem, direction, dtype, src=src, weights=weights, dst=dst)
