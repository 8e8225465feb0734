"""``tilewright verify``, ``check``, ``show``, ``build``, ``run`` and ``profile``: their options and
their help.

Their work is loaded when they run.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tilewright.cli import completing
from tilewright.cli.completing import FUSION, GRAPH
from tilewright.cli.knobs import Knobs, Place, Showing, with_knobs
from tilewright.cli.loading import loading
from tilewright.errors import ProblemError

_VERBOSE = "A line for each of many cases on a terminal, too."


@with_knobs
def verify_command(
    knobs: Knobs,
    random: Annotated[
        int, typer.Option("--random", min=0, help="So many random problems, or calls.")
    ] = 0,
    seed: Annotated[int, typer.Option("--seed", help="Which random problems, or data.")] = 0,
    on: Annotated[
        Place,
        typer.Option("--on", help="Run the code on the target's device, or the IR by itself."),
    ] = Place.DEVICE,
    against: Annotated[
        str, typer.Option("--against", help="torch: compare with PyTorch's results, too.")
    ] = "",
    symbolic: Annotated[
        str, typer.Option("--symbolic", help="Sizes that calls pass, as M,N: one kernel for many.")
    ] = "",
    verbose: Annotated[bool, typer.Option("--verbose", help=_VERBOSE)] = False,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write what came of each case to this file.")
    ] = None,
) -> None:
    """Check kernels: against float64 or the interpreter, and for what they write.

    A kernel from a file is called on random arrays, and on random numbers that keep what its
    parameters promise, where they are not set: 4 calls, or as many as --random says.

    With --against torch, results are compared with PyTorch's as well, within the bounds of both; a
    case that PyTorch has nothing for is skipped, and the reason says so.

    With --symbolic, a problem is compiled once, for all numbers of the sizes that it names, and
    checked at a dozen of them: MB is the minibatch; M, N and K, or IC and OC, are what the problem
    itself calls so; D0, D1 and so on are dims of a shape, where it has not one element. A case that
    has other statements for other sizes is skipped.

    A graph is checked by the checks in its file, otherwise against the interpreter; a file that is
    no graph that can be compiled is REFUSED, with the reason.

    One line for each case, PASSED, FAILED or SKIPPED (reason), and the arguments that reproduce it;
    for many on a terminal, a bar, the failed ones, and why others were skipped. Ends with 0: all
    that ran passed, 1: one failed, or none ran, 2: bad input, such as a graph that does not parse.

    Examples:

      tilewright verify conv ic64ih56oc64kh3ph1

      tilewright verify conv --dir FWD_B,BWD_D,BWD_WB --dt f32,bf16 --stag axb --set tails

      tilewright verify conv --random 2000 --seed 1

      tilewright verify conv --target nvidia:sm_80 --on interpreter mb1ic8ih6oc8kh3ph1

      tilewright verify softmax --against torch 64x1000

      tilewright verify matmul --symbolic M,N 64x512:512x256

      tilewright verify kernel --set n=64 --target spirv scale.tw

      tilewright verify graph model.tw
    """
    if knobs.driver == GRAPH:
        with loading():
            from tilewright.cli.graphs import verify_graphs
        verify_graphs(knobs, random, seed, on, against, json_file)
        return
    with loading():
        from tilewright.cli.checking import verify_cases
    verify_cases(knobs, random, seed, on, against, symbolic, verbose, json_file)


@with_knobs
def check_command(
    knobs: Knobs,
    stage: Annotated[
        str, typer.Option("--stage", help="A stage's name, or all. Default: what the target gets.")
    ] = "",
    strict: Annotated[
        bool, typer.Option("--strict", help="Bank conflicts and uncoalesced accesses fail, too.")
    ] = False,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write all findings and counts to this file.")
    ] = None,
    random: Annotated[
        int, typer.Option("--random", min=0, help="So many random problems, or calls.")
    ] = 0,
    seed: Annotated[int, typer.Option("--seed", help="Which random problems and data.")] = 0,
    verbose: Annotated[bool, typer.Option("--verbose", help=_VERBOSE)] = False,
) -> None:
    """Run kernels in the checking interpreter: no device is needed.

    Finds accesses out of bounds, reads of unwritten memory, data races, divergent barriers, uses of
    asynchronous copies before they arrive, and results other than the naive stage's. For machines
    with workgroups, a table of the statements whose accesses conflict in the banks of workgroup
    memory, or move more than twice the global memory that they need.

    Of a function in Python, numbers that are not set go together: arrays are as long as the range
    reaches. A case in which nothing was stored is skipped.

    Ends with 0: no finding, 1: findings, or every case was skipped, 2: bad input.

    Examples:

      tilewright check conv ic16ih14oc16kh3ph1

      tilewright check conv --stage all --strict --json findings.json ic16ih14oc16kh3ph1

      tilewright check matmul --random 200 --seed 1

      tilewright check kernel --target spirv:gpu --stage all scale.tw
    """
    with loading():
        from tilewright.cli.check import check_cases
    check_cases(knobs, stage, strict, json_file, random, seed, verbose)


@with_knobs
def show_command(
    knobs: Knobs,
    stage: Annotated[
        str,
        typer.Option(
            "--stage",
            help="A stage's name, all (the default), llvm, asm, schedule, config or cost.",
            autocompletion=completing.stages,
        ),
    ] = "",
    page: Annotated[
        Path | None, typer.Option("--page", help="Write all of it to this file, for a browser.")
    ] = None,
    legal: Annotated[
        bool, typer.Option("--legal", help="With --stage config: what its fields may be.")
    ] = False,
    measure: Annotated[
        bool, typer.Option("--measure", help="With --stage groups: time each group, too.")
    ] = False,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write --stage cost, or groups, to this file.")
    ] = None,
) -> None:
    """Print how a kernel came to be: its IR at each stage, LLVM's IR, assembly, config, schedule.

    Each stage is IR that parses back and runs in the interpreter. After the config follow the
    candidates that it was chosen from, with the model's predictions. The schedule is the transforms
    from the naive kernel on, as Python: --schedule takes a file of them, edited or not.

    Of a graph, the stages are graph, its passes (tidy, constants, ...), groups (each one kernel,
    with its predicted time and why it is apart), kernels, program (the launches with their arrays
    and places in memory); llvm, asm, schedule and config are those of its kernels.

    Of a fusion (a file of kernels in order), the stages are fusion, report and (fused) kernel.

    A page (one file, which needs no network) says why a kernel is as fast as it is, by its time,
    which is measured if an op runs on this processor, and has everything: the changes of each
    stage, pass and transform, side by side, the config with its candidates, the cost, LLVM's IR and
    assembly.

    Examples:

      tilewright show conv ic64ih56oc64kh3ph1

      tilewright show matmul --stage config --dt bf16 --target nvidia:sm_80 4096x4096:4096x4096

      tilewright show conv --stage config --legal ic64ih56oc64kh3ph1

      tilewright show conv --config "tile={'oc': 32}" ic64ih56oc64kh3ph1

      tilewright show matmul --stage schedule 256x256:256x256 > steps.py

      tilewright show conv --stage asm --target x86:avx2 ic64ih56oc64kh3ph1

      tilewright show kernel --target spirv:gpu scale.tw:scale

      tilewright show conv --page conv.html ic64ih56oc64kh3ph1

      tilewright show graph --stage groups --measure model.tw

      tilewright show fusion --stage report chain.tw
    """
    with loading():
        if knobs.driver == GRAPH:
            from tilewright.cli.graphs import show_graphs as show
        elif knobs.driver == FUSION:
            from tilewright.cli.fusions import show_fusions as show
        else:
            from tilewright.cli.inspecting import show_kernels as show
    show(knobs, Showing(stage, page, json_file, legal, measure))


@with_knobs
def build_command(
    knobs: Knobs,
    output: Annotated[Path, typer.Option("-o", "--output", help="The folder to write to.")],
    name: Annotated[
        str | None,
        typer.Option("--name", help="What the function and its files are called."),
    ] = None,
) -> None:
    """Write a kernel or graphs for programs without Python, and the ABI in words.

    Of a kernel, that is an object file with a C header, a SPIR-V module, or PTX and a cubin, and a
    program in C that calls it. The function is named after its problem, or as in its file, or by
    --name: several fit into one program. Several cases get a folder each, numbered from 0.

    Of graphs (.mlir, .onnx, .pt2, .tw), it is one static library with a C header, a file of
    constants, and a program in C that calls it; for devices, modules and a plan in JSON. All graphs
    of the files become one, with an entry point NAME_FUNCTION for each. NAME is the file's, or
    --name. --threads is how many threads the kernels are made for; calls may use others.

    Ends with 0: written, 2: bad input, or what cannot be compiled or written, with the reason.

    Examples:

      tilewright build conv --dt bf16 ic64ih56oc64kh3ph1 -o build

      tilewright build conv --name first_layer ic64ih56oc64kh3ph1 -o build

      tilewright build conv --target spirv:gpu ic64ih56oc64kh3ph1 -o build

      tilewright build conv --target nvidia:sm_80 ic64ih56oc64kh3ph1 -o build

      tilewright build kernel scale.tw -o build

      tilewright build graph model.onnx -o build

      tilewright build graph model.mlir:main --target x86:avx2 --name net -o build

      tilewright build graph model.mlir --target spirv -o build
    """
    if knobs.driver == GRAPH:
        with loading():
            from tilewright.cli.building import build_graphs
        build_graphs(knobs, output, name)
        return
    with loading():
        from tilewright.cli.inspecting import build_kernels
    build_kernels(knobs, output, name)


@with_knobs
def run_command(
    knobs: Knobs,
    array: Annotated[
        list[str], typer.Option("--array", "-a", help="NAME=FILE.npy, for each input.")
    ],
    output: Annotated[
        Path, typer.Option("-o", "--output", help="The folder to write NAME.npy to.")
    ],
) -> None:
    """Run a kernel on arrays from .npy files, all of the logical shape.

    Of a kernel from a file, --set gives the numbers that no array's shape determines.

    Results are written as .npy files of the logical shape. bf16 and fp8 are raw bytes there, as
    numpy has no names for them.

    Examples:

      tilewright run conv mb1ic2ih4oc2kh3 -a src=x.npy -a weights=w.npy -o results

      tilewright run kernel scale.tw --set alpha=2 -a a=x.npy -o results
    """
    with loading():
        from tilewright.cli.inspecting import run_kernel
    run_kernel(knobs, array, output)


@with_knobs
def profile_command(
    knobs: Knobs,
    trace: Annotated[
        Path | None, typer.Option("--trace", help="Write a call to this file, for Perfetto.")
    ] = None,
    calls: Annotated[
        int, typer.Option("--calls", min=1, help="So many calls, of which the median counts.")
    ] = 5,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write all figures to this file.")
    ] = None,
) -> None:
    """Say where the time of a graph goes: its kernels, beside what the roofline allows.

    A line for each kernel, the longest first: how often it runs in a call, the time of all its
    runs, the least that it can take by the peaks of this processor, measured now, and by what. Each
    launch is timed by itself, which adds some microseconds.

    Examples:

      tilewright profile graph model.tw

      tilewright profile graph --threads 1 --trace trace.json model.tw
    """
    if knobs.driver != GRAPH:
        raise ProblemError(
            f"there is no profile of {knobs.driver}",
            where="the first argument",
            why="it tells the kernels of a graph apart",
            cure="write graph FILE; of a single kernel, bench has the time and its floor",
        )
    with loading():
        from tilewright.cli.profiling import profile_graphs
    profile_graphs(knobs, trace, calls, json_file)
