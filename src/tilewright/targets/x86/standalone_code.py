"""The code around the kernels of a program without Python: LLVM IR for x86 Linux.

``NAME_open`` makes a program (`standalone_entries` has its fields), and ``NAME_close`` frees it.
Workers are threads of the system, which the first parallel call starts. What one needs to begin is
in its mailbox: STATE_OF, INDEX, and THREAD, the handle by which it is waited for.
"""

from __future__ import annotations

from tilewright.config import MAX_THREADS
from tilewright.targets.standalone import HEAD, Standalone
from tilewright.targets.x86 import pool_code
from tilewright.targets.x86.standalone_entries import (
    BAD_THREADS,
    FILE,
    MEMORY,
    NULL,
    OTHER_CONSTANTS,
    PARALLEL,
    POOL,
    PROCESSOR,
    STATE,
    THREADS,
    entry_text,
    kernel_symbol,
)

INDEX, STATE_OF, THREAD = 32, 40, 48

_POOL = """
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_join(i64, ptr)
declare i32 @open(ptr, i32, ...)
declare i32 @close(i32)
declare i64 @lseek(i32, i64, i32)
declare ptr @mmap(ptr, i64, i32, i32, i32, i64)
declare i32 @munmap(ptr, i64)
declare i32 @posix_memalign(ptr, i64, i64)
declare void @free(ptr)
declare i32 @memcmp(ptr, ptr, i64)
declare ptr @memset(ptr, i32, i64)

; ptr worker(mailbox): a thread's main function
define internal ptr @worker(ptr %box) nounwind {{
  %state_p = getelementptr i8, ptr %box, i64 {state_of}
  %state = load ptr, ptr %state_p
  %index_p = getelementptr i8, ptr %box, i64 {index}
  %index = load i64, ptr %index_p
  call void @tw_worker_loop(ptr %state, ptr %box, i64 %index)
  ret ptr null
}}

; void start(state): under the pool's lock; as many workers as there can be
define internal void @start(ptr %state) nounwind {{
entry:
  %threads_p = getelementptr i8, ptr %state, i64 {threads_of_state}
  %threads = load i64, ptr %threads_p
  %workers_p = getelementptr i8, ptr %state, i64 {workers}
  br label %next
next:
  %n = phi i64 [ 1, %entry ], [ %n_next, %begun ]
  %more = icmp slt i64 %n, %threads
  br i1 %more, label %one, label %done
one:
  %before = sub i64 %n, 1
  %offset = mul i64 %before, {mailbox_bytes}
  %at = add i64 %offset, {mailbox}
  %box = getelementptr i8, ptr %state, i64 %at
  %sleep_p = getelementptr i8, ptr %box, i64 {sleep}
  store i32 {absent}, ptr %sleep_p
  %state_p = getelementptr i8, ptr %box, i64 {state_of}
  store ptr %state, ptr %state_p
  %index_p = getelementptr i8, ptr %box, i64 {index}
  store i64 %n, ptr %index_p
  %thread_p = getelementptr i8, ptr %box, i64 {thread}
  %failed = call i32 @pthread_create(ptr %thread_p, ptr null, ptr @worker, ptr %box)
  %ok = icmp eq i32 %failed, 0
  br i1 %ok, label %begun, label %done
begun:
  %n_next = add i64 %n, 1
  br label %next
done:
  %started = sub i64 %n, 1
  %count = trunc i64 %started to i32
  store i32 %count, ptr %workers_p
  ret void
}}

define void @{name}_close(ptr %program) nounwind {{
entry:
  %none = icmp eq ptr %program, null
  br i1 %none, label %end, label %dismiss
dismiss:
  %state = getelementptr i8, ptr %program, i64 {state}
  %told = call i32 @tw_dismiss(ptr %state)
  %all = icmp ne i32 %told, 0
  br i1 %all, label %dismissed, label %wait
wait:
  %yielded = call i32 @sched_yield()
  br label %dismiss
dismissed:
  %workers_p = getelementptr i8, ptr %state, i64 {workers}
  %workers_32 = load i32, ptr %workers_p
  %workers = sext i32 %workers_32 to i64
  br label %next
next:
  %n = phi i64 [ 0, %dismissed ], [ %n_next, %one ]
  %more = icmp slt i64 %n, %workers
  br i1 %more, label %one, label %joined
one:
  %offset = mul i64 %n, {mailbox_bytes}
  %at = add i64 %offset, {mailbox_thread}
  %thread_p = getelementptr i8, ptr %state, i64 %at
  %thread = load i64, ptr %thread_p
  %left = call i32 @pthread_join(i64 %thread, ptr null)
  %n_next = add i64 %n, 1
  br label %next
joined:
{unmap}
  call void @free(ptr %program)
  ret void
end:
  ret void
}}

define void @{name}_use_pool(ptr %program, ptr %parallel, ptr %pool) nounwind {{
  %parallel_p = getelementptr i8, ptr %program, i64 {parallel}
  store ptr %parallel, ptr %parallel_p
  %pool_p = getelementptr i8, ptr %program, i64 {pool}
  store ptr %pool, ptr %pool_p
  ret void
}}

define i32 @{name}_open(ptr %out, ptr %path, i64 %threads) nounwind {{
entry:
  %made_p = alloca ptr
  %none = icmp eq ptr %out, null
  br i1 %none, label %null, label %empty
empty:
  store ptr null, ptr %out
  %few = icmp slt i64 %threads, 1
  %many = icmp sgt i64 %threads, {most}
  %bad = or i1 %few, %many
  br i1 %bad, label %threads_error, label %tiles
tiles:
{tiles}
map:
{map}
ready:
  %constants = phi ptr [ {mapped}, %{mapped_in} ]
  %boxes = mul i64 %threads, {mailbox_bytes}
  %size = add i64 %boxes, {room}
  %failed = call i32 @posix_memalign(ptr %made_p, i64 128, i64 %size)
  %ok = icmp eq i32 %failed, 0
  br i1 %ok, label %made, label %memory_error
made:
  %program = load ptr, ptr %made_p
  %cleared = call ptr @memset(ptr %program, i32 0, i64 %size)
  store ptr %constants, ptr %program
  %state = getelementptr i8, ptr %program, i64 {state}
  call void @{name}_use_pool(ptr %program, ptr @tw_parallel, ptr %state)
  %threads_p = getelementptr i8, ptr %program, i64 {threads}
  store i64 %threads, ptr %threads_p
  %workers_p = getelementptr i8, ptr %state, i64 {workers}
  store i32 {not_started}, ptr %workers_p
  %starter_p = getelementptr i8, ptr %state, i64 {starter}
  store ptr @start, ptr %starter_p
  %spin_p = getelementptr i8, ptr %state, i64 {spin}
  store i64 {spin_ns}, ptr %spin_p
  store ptr %program, ptr %out
  ret i32 0
null:
  ret i32 {NULL}
threads_error:
  ret i32 {BAD_THREADS}
memory_error:
{unmap_constants}
  ret i32 {MEMORY}
tiles_error:
  ret i32 {PROCESSOR}
file_error:
  ret i32 {FILE}
constants_error:
  ret i32 {OTHER_CONSTANTS}
}}
"""

_MAP = """  %no_path = icmp eq ptr %path, null
  br i1 %no_path, label %null, label %opened
opened:
  %file = call i32 (ptr, i32, ...) @open(ptr %path, i32 {flags})
  %missing = icmp slt i32 %file, 0
  br i1 %missing, label %file_error, label %measured
measured:
  %length = call i64 @lseek(i32 %file, i64 0, i32 2)
  %fits = icmp eq i64 %length, {bytes}
  br i1 %fits, label %mapping, label %other
other:
  %closed_other = call i32 @close(i32 %file)
  br label %constants_error
mapping:
  %memory = call ptr @mmap(ptr null, i64 {bytes}, i32 1, i32 2, i32 %file, i64 0)
  %closed = call i32 @close(i32 %file)
  %nowhere = icmp eq ptr %memory, inttoptr (i64 -1 to ptr)
  br i1 %nowhere, label %file_error, label %compared
compared:
  %unlike = call i32 @memcmp(ptr %memory, ptr @head, i64 {head})
  %same = icmp eq i32 %unlike, 0
  br i1 %same, label %ready, label %unmapped
unmapped:
  %undone = call i32 @munmap(ptr %memory, i64 {bytes})
  br label %constants_error"""

# The system has to be asked for tiles, once a process: arch_prctl(ARCH_REQ_XCOMP_PERM, TILEDATA).
_TILES = """  %refused = call i64 (i64, ...) @syscall(i64 158, i64 4131, i64 18)
  %granted = icmp eq i64 %refused, 0
  br i1 %granted, label %map, label %tiles_error"""

_SPIN_NS = 100_000  # how long a worker looks for the next job before it sleeps


def module_text(standalone: Standalone, tiles: bool) -> str:
    """The module; with ``tiles``, the kernels use AMX."""
    name, constants = standalone.name, standalone.constants
    own_pool = pool_code.CODE.replace("define void @tw_", "define internal void @tw_").replace(
        "define i32 @tw_", "define internal i32 @tw_"
    )
    mapped, map_, unmap, unmap_constants = "null", "  br label %ready", "", ""
    if constants is not None:
        mapped = "%memory"
        map_ = _MAP.format(bytes=constants.size, flags=0o2000000, head=HEAD)  # O_CLOEXEC
        unmap = f"""  %constants = load ptr, ptr %program
  %unmapped = call i32 @munmap(ptr %constants, i64 {constants.size})"""
        unmap_constants = f"  %given_up = call i32 @munmap(ptr %memory, i64 {constants.size})"
    text = _POOL.format(
        name=name,
        state=STATE,
        threads=THREADS,
        threads_of_state=THREADS - STATE,
        parallel=PARALLEL,
        pool=POOL,
        index=INDEX,
        state_of=STATE_OF,
        thread=THREAD,
        workers=pool_code.WORKERS,
        starter=pool_code.STARTER,
        spin=pool_code.SPIN_NS,
        spin_ns=_SPIN_NS,
        mailbox=pool_code.MAILBOX,
        mailbox_bytes=pool_code.MAILBOX_BYTES,
        mailbox_thread=pool_code.MAILBOX + THREAD,
        sleep=pool_code.SLEEP,
        absent=pool_code.ABSENT,
        not_started=pool_code.NOT_STARTED,
        room=STATE + pool_code.MAILBOX,
        most=MAX_THREADS,
        tiles=_TILES if tiles else "  br label %map",
        map=map_,
        mapped=mapped,
        mapped_in="map" if constants is None else "compared",
        unmap=unmap,
        unmap_constants=unmap_constants,
        NULL=NULL,
        BAD_THREADS=BAD_THREADS,
        FILE=FILE,
        OTHER_CONSTANTS=OTHER_CONSTANTS,
        MEMORY=MEMORY,
        PROCESSOR=PROCESSOR,
    )
    parts = [own_pool, text]
    if constants is not None:
        data = "".join(f"\\{byte:02X}" for byte in constants.head)
        parts.append(f'@head = internal constant [{HEAD} x i8] c"{data}"')
    parts += [
        f"declare hidden void @{kernel_symbol(name, number)}(ptr, ptr, ptr, i64)"
        for number in range(len(standalone.kernels))
    ]
    parts += [entry_text(name, function) for function in standalone.functions]
    return "\n".join(parts) + "\n"
