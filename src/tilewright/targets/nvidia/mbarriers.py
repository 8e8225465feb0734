"""mbarriers, fences and queues of asynchronous operations (sm_90 on).

Source: NVIDIA, PTX ISA, "mbarrier", "fence", "cp.async.bulk.wait_group" and
"wgmma.wait_group".
"""

from __future__ import annotations

from tilewright.errors import CompilationError
from tilewright.ir.expr import Expr
from tilewright.machines.nvidia.rates import REGISTERS
from tilewright.targets.llvm.calls import EmitCall
from tilewright.targets.llvm.memory import MemoryMap
from tilewright.targets.llvm.plan import CallPlan
from tilewright.targets.llvm.values import Value
from tilewright.targets.nvidia.assembler import number, one_lane, ptx, shared_address
from tilewright.targets.nvidia.warpgroups import commit_products, wait_products

_WAIT = (
    "{\\0A .reg .pred over;\\0A"
    "waiting_${:uid}:\\0A"
    " mbarrier.try_wait.parity.shared::cta.b64 over, [$0], $1;\\0A"
    " @!over bra waiting_${:uid};\\0A}"
)
# Arrives at the mbarrier of any workgroup of the cluster. An arrival orders accesses to workgroups'
# memory, not to global memory (as in the interpreter): a release to the whole cluster would also
# wait for all writes to global memory.
_ARRIVE = (
    "{\\0A .reg .b32 there;\\0A"
    " mapa.shared::cluster.u32 there, $0, $1;\\0A"
    " mbarrier.arrive.shared::cluster.b64 _, [there];\\0A}"
)


def _place(memory: MemoryMap, plan: CallPlan) -> Value:
    address = plan.addresses[0]
    assert address is not None
    return shared_address(memory.w, memory.pointer(address, plan.loads))


def _argument(memory: MemoryMap, plan: CallPlan) -> Value:
    argument = plan.stmt.args[1]
    assert isinstance(argument, Expr)
    return number(memory, memory.exprs.evaluate(argument, plan.loads))


def _emit_init(memory: MemoryMap, plan: CallPlan) -> None:
    with one_lane(memory):
        arguments = [_place(memory, plan), _argument(memory, plan)]
        ptx(memory.w, "mbarrier.init.shared::cta.b64 [$0], $1;", arguments, "rr")
        # Makes it visible to asynchronous copies.
        ptx(memory.w, "fence.mbarrier_init.release.cluster;")


def _emit_arrive(memory: MemoryMap, plan: CallPlan) -> None:
    address = plan.addresses[0]
    assert address is not None
    with one_lane(memory):
        if address.peer is None:
            text = "mbarrier.arrive.shared::cta.b64 _, [$0];"
            ptx(memory.w, text, [_place(memory, plan)], "r")
            return
        pointer = shared_address(memory.w, memory.own_pointer(address, plan.loads))
        peer = number(memory, memory.exprs.evaluate(address.peer, plan.loads))
        ptx(memory.w, _ARRIVE, [pointer, peer], "rr")


def _emit_expect(memory: MemoryMap, plan: CallPlan) -> None:
    with one_lane(memory):
        arguments = [_place(memory, plan), _argument(memory, plan)]
        text = "mbarrier.arrive.expect_tx.shared::cta.b64 _, [$0], $1;"
        ptx(memory.w, text, arguments, "rr")


def _emit_wait(memory: MemoryMap, plan: CallPlan) -> None:
    ptx(memory.w, _WAIT, [_place(memory, plan), _argument(memory, plan)], "rr")


def _emit_fence(memory: MemoryMap, plan: CallPlan) -> None:
    del plan
    ptx(memory.w, "fence.proxy.async.shared::cta;")


def _emit_commit_stores(memory: MemoryMap, plan: CallPlan) -> None:
    del plan
    with one_lane(memory):
        ptx(memory.w, "cp.async.bulk.commit_group;")


def _emit_wait_stores(memory: MemoryMap, plan: CallPlan) -> None:
    with one_lane(memory):
        ptx(memory.w, f"cp.async.bulk.wait_group.read {_constant(memory, plan)};")


def _emit_commit_products(memory: MemoryMap, plan: CallPlan) -> None:
    del plan
    commit_products(memory)


def _emit_wait_products(memory: MemoryMap, plan: CallPlan) -> None:
    wait_products(memory, _constant(memory, plan))


def _emit_give(memory: MemoryMap, plan: CallPlan) -> None:
    ptx(memory.w, f"setmaxnreg.dec.sync.aligned.u32 {_registers(memory, plan)};")


def _emit_take(memory: MemoryMap, plan: CallPlan) -> None:
    ptx(memory.w, f"setmaxnreg.inc.sync.aligned.u32 {_registers(memory, plan)};")


def _registers(memory: MemoryMap, plan: CallPlan) -> int:
    count = _constant(memory, plan)
    if count not in REGISTERS:
        raise CompilationError(
            f"a subgroup cannot go on with {count} registers a lane",
            why='registers are moved in fixed portions (PTX ISA, "setmaxnreg")',
            cure=f"choose a multiple of {REGISTERS.step} from {REGISTERS[0]} to {REGISTERS[-1]}",
        )
    return count


def _constant(memory: MemoryMap, plan: CallPlan) -> int:
    (pending,) = plan.stmt.args
    assert isinstance(pending, Expr)
    count = memory.exprs.evaluate(pending, plan.loads)
    if isinstance(count, Value):
        raise CompilationError(
            f"{plan.stmt.function} on a number that is not constant",
            why="it is part of the instruction",
            cure="write a constant",
        )
    return int(count)


MBARRIERS: dict[str, EmitCall] = {
    "mbarrier_init": _emit_init,
    "mbarrier_arrive": _emit_arrive,
    "mbarrier_expect": _emit_expect,
    "mbarrier_wait": _emit_wait,
    "fence_async": _emit_fence,
    "commit_stores": _emit_commit_stores,
    "wait_stores": _emit_wait_stores,
    "commit_products": _emit_commit_products,
    "wait_products": _emit_wait_products,
    "give_registers": _emit_give,
    "take_registers": _emit_take,
}
