"""Queues of a process that ends with work pending, and of one that is forked."""

from __future__ import annotations

import subprocess
import sys
import textwrap

from checkout import TESTS
from needs import HERE


def run_program(text: str) -> subprocess.CompletedProcess[str]:
    head = "import numpy as np, os, threading, time\nimport tilewright as tw\n"
    program = head + "from queue_kernels import step\n" + textwrap.dedent(text)
    return subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=TESTS,
        check=False,
    )


# Queues of all devices that are here.
ALL = ("x86", "interpreter", *(name for name in HERE if name == "spirv"))


def test_the_interpreter_ends_with_work_pending() -> None:
    """A list of kernels that is held runs, too."""
    ended = run_program(f"""
        for device in {ALL}:
            queue = tw.Queue(device)
            x = queue.buffer(np.zeros(8, np.int32))
            queue.host_task(lambda values: time.sleep(0.2), x)
            for _ in range(3):
                queue.submit(step, (8,), 8, x)
            queue.host_task(lambda values: os.write(1, b'%d\\n' % values[0]), x)
            queue.start_fusion()
            queue.submit(step, (8,), 8, x)
            other = tw.Queue(device)
            behind = np.zeros(8, np.int32)
            other.host_task(lambda values, last: os.write(1, b'%d\\n' % values[0]), x, behind)
            other.start_fusion()
            other.submit(step, (8,), 8, x)
        queue.host_task(lambda: 1 / 0)
        access = x.host()
        threading.Thread(target=lambda: None).start()
    """)
    assert ended.returncode == 0
    assert sorted(ended.stdout.split()) == sorted(["31", "156"] * len(ALL))
    assert "an error of a queue that nobody waited for" in ended.stderr
    assert "ZeroDivisionError" in ended.stderr


def test_a_forked_child() -> None:
    ended = run_program(f"""
        devices = {ALL}
        queues = [tw.Queue(device) for device in devices]
        queue = queues[0]
        x = queue.buffer(np.zeros(8, np.int32))
        ys = [each.buffer(np.zeros(8, np.int32)) for each in queues]
        for each, y in zip(queues, ys):
            each.submit(step, (8,), 8, y).wait()
        gate = threading.Event()
        pending = queue.host_task(lambda values: gate.wait(20), x)
        z = queues[1].buffer(np.zeros(8, np.int32))
        queues[1].start_fusion()
        held = queues[1].submit(step, (8,), 8, z)
        child = os.fork()
        if child == 0:
            assert not held.done
            own = tw.Queue(devices[1])
            for refused in (
                lambda: queue.submit(step, (8,), 8, ys[0]),
                pending.wait,
                x.numpy,
                lambda: queues[1].submit(step, (8,), 8, z),
                held.wait,
                queues[1].complete_fusion,
                lambda: own.fill(z, 1, depends_on=[held]),
            ):
                try:
                    refused()
                    print("not refused", flush=True)
                except tw.QueueError as error:
                    print(error.what, flush=True)
            for device, y in zip(devices, ys):
                print(y.numpy()[0], flush=True)
                own = tw.Queue(device)
                try:
                    own.submit(step, (8,), 8, y).wait()
                    print(y.numpy()[0], flush=True)
                except tw.TilewrightError as error:
                    print(error.what, flush=True)
            for each in queues:
                each.close()
            os._exit(0)
        os.waitpid(child, 0)
        gate.set()
        queue.submit(step, (8,), 8, x)
        print(x.numpy()[0], z.numpy()[0])
    """)
    assert ended.stderr == ""
    assert ended.stdout.splitlines() == [
        "the queue is of the process that forked this one",
        "host task <lambda> was not finished when the process was forked",
        "host task <lambda> was not finished when the process was forked",
        "the queue is of the process that forked this one",
        "a fusion was not finished when the process was forked",
        "the queue is of the process that forked this one",
        "a fusion was not finished when the process was forked",
        *["1", "6"] * 2,
        *["1", "OpenCL was in use when this process was forked"] * (len(ALL) - 2),
        "1 1",
    ]
