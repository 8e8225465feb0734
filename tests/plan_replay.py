"""Plans of programs in JSON, replayed by pyopencl or CUDA's driver, as by other host programs."""

from __future__ import annotations

import ctypes
import json
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.dtypes import dtype
from tilewright.targets.nvidia.device import ask, load_cuda
from tilewright.targets.nvidia.device import devices as gpus
from tilewright.targets.spirv.device import find_device, load_opencl


def replayed(path: Path, function: str, arrays: Mapping[str, Any]) -> dict[str, Any]:
    """The results of one function of the plan on ``arrays``, on an OpenCL device."""
    return _OnOpenCL(path, function).run(arrays)


def replayed_on_gpu(path: Path, function: str, arrays: Mapping[str, Any]) -> dict[str, Any]:
    """The same on an NVIDIA GPU, which compiles the PTX of the plan itself."""
    with gpus()[0].current():
        return _OnNvidia(path, function).run(arrays)


def _aligned(size: int) -> Any:
    memory = np.zeros(size + 64, np.uint8)
    start = -memory.ctypes.data % 64
    return memory[start : start + size]


class _Replay:
    """What devices share: memory is the host's, each launch moves what it reads and writes."""

    def __init__(self, path: Path, function: str) -> None:
        plan = json.loads(path.read_text())
        assert plan["format"] == "tilewright plan 1"
        self.load([(path.parent / files[0]).read_bytes() for files in plan["modules"]])
        self.function = plan["functions"][function]
        self.memory: dict[str, Any] = {"arena": _aligned(self.function["arena"])}
        if plan["constants"]:
            contents = np.fromfile(path.parent / plan["constants"]["file"], np.uint8)
            self.memory["constant"] = _aligned(len(contents))
            self.memory["constant"][:] = contents

    def run(self, arrays: Mapping[str, Any]) -> dict[str, Any]:
        self.arguments = []
        results = {}
        for argument in self.function["arguments"]:
            type_ = dtype(argument["dtype"])
            memory = _aligned(argument["bytes"])
            view = memory.view(type_.numpy).reshape(argument["shape"])
            if argument["access"] != "out":
                view[...] = arrays[argument["name"]]
            if argument["access"] != "in":
                results[argument["name"]] = view
            self.arguments.append(memory)
        self.steps(self.function["steps"])
        return results

    def steps(self, steps: list[Any]) -> None:
        for step in steps:
            kind = step.get("step")
            if kind == "while":
                self.steps(step["before"])
                while self.at(step["condition"])[0]:
                    self.steps(step["body"])
                    self.steps(step["before"])
            elif kind == "if":
                self.steps(step["then" if self.at(step["condition"])[0] else "orelse"])
            else:
                self.launch(step)

    def at(self, place: Mapping[str, Any]) -> Any:
        """The memory from a place on."""
        if "argument" in place:
            return self.arguments[place["argument"]]
        ((base, offset),) = ((b, place[b]) for b in ("arena", "constant") if b in place)
        return self.memory[base][offset:]

    def load(self, modules: Sequence[bytes]) -> None:
        raise NotImplementedError

    def launch(self, step: Mapping[str, Any]) -> None:
        raise NotImplementedError


class _OnOpenCL(_Replay):
    def load(self, modules: Sequence[bytes]) -> None:
        self.cl = load_opencl()
        self.context, handle = find_device().context(2)
        self.queue = self.cl.CommandQueue(self.context, handle)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", self.cl.CompilerWarning)
            self.programs = [self.cl.Program(self.context, module).build() for module in modules]

    def launch(self, step: Mapping[str, Any]) -> None:
        kernel = self.cl.Kernel(self.programs[step["module"]], step["entry"])
        flags = self.cl.mem_flags
        buffers = []
        for number, argument in enumerate(step["arguments"]):
            if "value" in argument:
                bits = argument["value"].to_bytes(argument["bytes"], "little")
                kernel.set_arg(number, np.frombuffer(bits, f"u{argument['bytes']}")[0])
                continue
            memory = self.at(argument)[: argument["bytes"]]
            use = flags.READ_WRITE | flags.USE_HOST_PTR
            buffers.append(self.cl.Buffer(self.context, use, hostbuf=memory))
            kernel.set_arg(number, buffers[-1])
        size = step["groups"] * step["items"]
        self.cl.enqueue_nd_range_kernel(self.queue, kernel, (size,), (step["items"],))
        for buffer, argument in zip(buffers, step["arguments"], strict=False):
            if argument["access"] != "in":
                memory = self.at(argument)[: argument["bytes"]]
                self.cl.enqueue_copy(self.queue, memory, buffer)
        self.queue.finish()


class _OnNvidia(_Replay):
    def load(self, modules: Sequence[bytes]) -> None:
        self.modules = [ask("cuModuleLoadData", text + b"\0") for text in modules]

    def launch(self, step: Mapping[str, Any]) -> None:
        assert step["cluster"] == 1 and not step["maps"]
        function = ask("cuModuleGetFunction", self.modules[step["module"]], step["entry"].encode())
        if step["shared"] > 48 << 10:
            kind = load_cuda().CUfunction_attribute
            most = kind.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            ask("cuFuncSetAttribute", function, most, step["shared"])
        slots, moved = [], []
        for argument in step["arguments"]:
            if "value" in argument:
                slots.append(argument["value"])
                continue
            memory = self.at(argument)[: argument["bytes"]]
            address = int(ask("cuMemAlloc", argument["bytes"]))
            ask("cuMemcpyHtoD", address, memory.ctypes.data, argument["bytes"])
            slots.append(address)
            moved.append((memory, address, argument["access"]))
        values = (ctypes.c_uint64 * len(slots))(*slots)
        width = ctypes.sizeof(ctypes.c_uint64)
        first = ctypes.addressof(values)
        table = (ctypes.c_void_p * len(slots))(*(first + n * width for n in range(len(slots))))
        size = (step["groups"], 1, 1, step["items"], 1, 1, step["shared"])
        ask("cuLaunchKernel", function, *size, 0, ctypes.addressof(table), 0)
        ask("cuCtxSynchronize")
        for memory, address, access in moved:
            if access != "in":
                ask("cuMemcpyDtoH", memory.ctypes.data, address, memory.nbytes)
            ask("cuMemFree", address)
