"""The code of the worker pool: LLVM IR for x86 Linux, and the memory that it works on.

The state is a header and a mailbox per worker. The caller of `tw_parallel` takes the lock, writes a
job into the mailboxes, works itself, and waits until they are empty. The fields, at byte offsets:

    header   LOCK      i32  1 while a parallel region runs
             WORKERS   i32  how many mailboxes have a worker; -1: none was started yet
             STARTER   ptr  void (*)(state): called once, under the lock, when WORKERS is -1
             SPIN_NS   i64  how long a worker looks for a job before it sleeps
    mailbox  GO        i32  0: empty; 1: a job; 2: the job is being done; -1: leave
             FN, ARGS, COUNT: the job, on the cache line of GO, so that one transfer brings it
             SLEEP     i32  1: asleep; 0: awake; 2: the mailbox has no worker. On a line of its own,
                             which is not written while the worker is awake

The thread that moves GO from 1 to 2 does the job: the worker, or the caller after its own job. So
a worker that sleeps (waking it takes 3 us, and up to 150 us until it runs) or that the system has
suspended holds up no call: at worst the caller does everything alone.

A worker stores SLEEP and then loads GO; a caller stores GO and then loads SLEEP. With a full fence
between the two (xchg, fence seq_cst), at least one of them sees the other's store: no wake-up is
lost. A superfluous wake-up does no harm.

`tw_parallel` calls ``fn(args, index, count)`` for each index below count, at the same time where it
can. When the lock is taken (another thread's region, or a nested one), it calls them in turn.
"""

from __future__ import annotations

MAILBOX = 256  # offset of the first
MAILBOX_BYTES = 128
LOCK = 0
WORKERS = 64
STARTER = 72
SPIN_NS = 80
GO = 0
SLEEP = 64

NOT_STARTED = -1
ABSENT = 2

PARALLEL = "tw_parallel"
WORKER_LOOP = "tw_worker_loop"
DISMISS = "tw_dismiss"

CODE = """
declare i64 @syscall(i64, ...)
declare i32 @sched_yield()
declare i32 @clock_gettime(i32, ptr)
declare void @llvm.x86.sse2.pause()

; void tw_parallel(state, fn, args, count)
define void @tw_parallel(ptr %state, ptr %fn, ptr %args, i64 %count) nounwind {
entry:
  %alone = icmp sle i64 %count, 1
  br i1 %alone, label %serial, label %try_lock
try_lock:
  %locked = cmpxchg ptr %state, i32 0, i32 1 acquire monotonic
  %got = extractvalue { i32, i1 } %locked, 1
  br i1 %got, label %have_lock, label %serial
have_lock:
  %workers_p = getelementptr i8, ptr %state, i64 64
  %workers_0 = load i32, ptr %workers_p
  %not_started = icmp slt i32 %workers_0, 0
  br i1 %not_started, label %start, label %counted
start:
  %starter_p = getelementptr i8, ptr %state, i64 72
  %starter = load ptr, ptr %starter_p
  call void %starter(ptr %state)
  br label %counted
counted:
  %workers_1 = load i32, ptr %workers_p
  %workers = sext i32 %workers_1 to i64
  %wanted = add i64 %count, -1
  %few = icmp slt i64 %workers, %wanted
  %helpers = select i1 %few, i64 %workers, i64 %wanted
  %none = icmp sle i64 %helpers, 0
  %box_0 = getelementptr i8, ptr %state, i64 256
  br i1 %none, label %unlock_serial, label %publish
publish:
  %p = phi i64 [ 0, %counted ], [ %p_next, %publish ]
  %p_box = phi ptr [ %box_0, %counted ], [ %p_box_next, %publish ]
  %p_fn = getelementptr i8, ptr %p_box, i64 8
  store ptr %fn, ptr %p_fn
  %p_args = getelementptr i8, ptr %p_box, i64 16
  store ptr %args, ptr %p_args
  %p_count = getelementptr i8, ptr %p_box, i64 24
  store i64 %count, ptr %p_count
  store atomic i32 1, ptr %p_box release, align 4
  %p_next = add i64 %p, 1
  %p_box_next = getelementptr i8, ptr %p_box, i64 128
  %p_more = icmp slt i64 %p_next, %helpers
  br i1 %p_more, label %publish, label %published
published:
  fence seq_cst
  br label %wake
wake:
  %w = phi i64 [ 0, %published ], [ %w_next, %wake_next ]
  %w_box = phi ptr [ %box_0, %published ], [ %w_box_next, %wake_next ]
  %w_sleep_p = getelementptr i8, ptr %w_box, i64 64
  %w_sleep = load atomic i32, ptr %w_sleep_p monotonic, align 4
  %w_awake = icmp eq i32 %w_sleep, 0
  br i1 %w_awake, label %wake_next, label %wake_one
wake_one:
  call void @wake(ptr %w_sleep_p)
  br label %wake_next
wake_next:
  %w_next = add i64 %w, 1
  %w_box_next = getelementptr i8, ptr %w_box, i64 128
  %w_more = icmp slt i64 %w_next, %helpers
  br i1 %w_more, label %wake, label %own
own:
  call void %fn(ptr %args, i64 0, i64 %count)
  %extra_0 = add i64 %helpers, 1
  br label %extra
extra:  ; the indices beyond the workers
  %e = phi i64 [ %extra_0, %own ], [ %e_next, %extra_one ]
  %e_more = icmp slt i64 %e, %count
  br i1 %e_more, label %extra_one, label %claim
extra_one:
  call void %fn(ptr %args, i64 %e, i64 %count)
  %e_next = add i64 %e, 1
  br label %extra
claim:  ; jobs that no worker has begun
  %c = phi i64 [ 0, %extra ], [ %c_next, %claim_next ]
  %c_box = phi ptr [ %box_0, %extra ], [ %c_box_next, %claim_next ]
  %c_next = add i64 %c, 1
  %c_go = load atomic i32, ptr %c_box monotonic, align 4
  %c_open = icmp eq i32 %c_go, 1
  br i1 %c_open, label %claim_one, label %claim_next
claim_one:
  %c_swap = cmpxchg ptr %c_box, i32 1, i32 2 acquire monotonic
  %c_won = extractvalue { i32, i1 } %c_swap, 1
  br i1 %c_won, label %claim_run, label %claim_next
claim_run:
  call void %fn(ptr %args, i64 %c_next, i64 %count)
  store atomic i32 0, ptr %c_box release, align 4
  br label %claim_next
claim_next:
  %c_box_next = getelementptr i8, ptr %c_box, i64 128
  %c_more = icmp slt i64 %c_next, %helpers
  br i1 %c_more, label %claim, label %join
join:
  %j = phi i64 [ 0, %claim_next ], [ %j_next, %joined ]
  %j_box = phi ptr [ %box_0, %claim_next ], [ %j_box_next, %joined ]
  br label %join_look
join_look:
  %looks = phi i64 [ 0, %join ], [ %looks_1, %join_pause ], [ %looks_1, %join_yield ]
  %j_go = load atomic i32, ptr %j_box acquire, align 4
  %j_done = icmp eq i32 %j_go, 0
  br i1 %j_done, label %joined, label %join_wait
join_wait:
  call void @llvm.x86.sse2.pause()
  %looks_1 = add i64 %looks, 1
  %patient = icmp ult i64 %looks_1, 4096
  %low = and i64 %looks_1, 63
  %not_now = icmp ne i64 %low, 0
  %go_on = or i1 %patient, %not_now
  br i1 %go_on, label %join_pause, label %join_yield
join_pause:
  br label %join_look
join_yield:  ; the machine may be oversubscribed: let the worker have this core
  %yielded = call i32 @sched_yield()
  br label %join_look
joined:
  %j_next = add i64 %j, 1
  %j_box_next = getelementptr i8, ptr %j_box, i64 128
  %j_more = icmp slt i64 %j_next, %helpers
  br i1 %j_more, label %join, label %unlock
unlock:
  store atomic i32 0, ptr %state release, align 4
  ret void
unlock_serial:
  store atomic i32 0, ptr %state release, align 4
  br label %serial
serial:
  %s = phi i64 [ 0, %entry ], [ 0, %try_lock ], [ 0, %unlock_serial ], [ %s_next, %serial_one ]
  %s_more = icmp slt i64 %s, %count
  br i1 %s_more, label %serial_one, label %serial_done
serial_one:
  call void %fn(ptr %args, i64 %s, i64 %count)
  %s_next = add i64 %s, 1
  br label %serial
serial_done:
  ret void
}

; void wake(sleep), for a worker that may be asleep
define private void @wake(ptr %sleep_p) nounwind noinline {
  %was = atomicrmw xchg ptr %sleep_p, i32 0 acq_rel
  %slept = icmp eq i32 %was, 1
  br i1 %slept, label %call, label %done
call:  ; FUTEX_WAKE_PRIVATE
  %woken = call i64 (i64, ...) @syscall(i64 202, ptr %sleep_p, i32 129, i32 1)
  ret void
done:
  ret void
}

; i64 now(void): nanoseconds
define private i64 @now() nounwind {
  %time = alloca { i64, i64 }
  %ok = call i32 @clock_gettime(i32 1, ptr %time)
  %seconds = load i64, ptr %time
  %nanos_p = getelementptr i8, ptr %time, i64 8
  %nanos = load i64, ptr %nanos_p
  %scaled = mul i64 %seconds, 1000000000
  %sum = add i64 %scaled, %nanos
  ret i64 %sum
}

; void tw_worker_loop(state, mailbox, index): returns when told to leave
define void @tw_worker_loop(ptr %state, ptr %box, i64 %index) nounwind {
entry:
  %spin_p = getelementptr i8, ptr %state, i64 80
  %sleep_p = getelementptr i8, ptr %box, i64 64
  %fn_p = getelementptr i8, ptr %box, i64 8
  %args_p = getelementptr i8, ptr %box, i64 16
  %count_p = getelementptr i8, ptr %box, i64 24
  store atomic i32 0, ptr %sleep_p release, align 4
  br label %idle
idle:
  %since = call i64 @now()
  br label %look
look:
  %looks = phi i64 [ 0, %idle ], [ %looks_1, %look_again ], [ 0, %keep_on ]
  %go = load atomic i32, ptr %box acquire, align 4
  switch i32 %go, label %look_again [
    i32 1, label %job
    i32 -1, label %exit
  ]
look_again:
  call void @llvm.x86.sse2.pause()
  %looks_1 = add i64 %looks, 1
  %more = icmp ult i64 %looks_1, 64
  br i1 %more, label %look, label %check_time
check_time:
  %at = call i64 @now()
  %elapsed = sub i64 %at, %since
  %limit = load i64, ptr %spin_p
  %tired = icmp sge i64 %elapsed, %limit
  br i1 %tired, label %doze, label %still_spin
still_spin:
  %hot = icmp slt i64 %elapsed, 20000
  br i1 %hot, label %keep_on, label %yield
yield:  ; someone else may need this core more
  %yielded = call i32 @sched_yield()
  br label %keep_on
keep_on:
  br label %look
doze:
  %was = atomicrmw xchg ptr %sleep_p, i32 1 seq_cst
  %late_go = load atomic i32, ptr %box seq_cst, align 4
  switch i32 %late_go, label %wait [
    i32 1, label %get_up
    i32 -1, label %get_up
  ]
get_up:
  store atomic i32 0, ptr %sleep_p release, align 4
  br label %idle
wait:  ; FUTEX_WAIT_PRIVATE
  %waited = call i64 (i64, ...) @syscall(i64 202, ptr %sleep_p, i32 128, i32 1, ptr null)
  %sleep = load atomic i32, ptr %sleep_p acquire, align 4
  %asleep = icmp eq i32 %sleep, 1
  br i1 %asleep, label %wait, label %idle
job:
  %take = cmpxchg ptr %box, i32 1, i32 2 acquire monotonic
  %took = extractvalue { i32, i1 } %take, 1
  br i1 %took, label %run, label %idle
run:
  %fn = load ptr, ptr %fn_p
  %args = load ptr, ptr %args_p
  %count = load i64, ptr %count_p
  call void %fn(ptr %args, i64 %index, i64 %count)
  store atomic i32 0, ptr %box release, align 4
  br label %idle
exit:
  store atomic i32 0, ptr %box release, align 4
  store atomic i32 2, ptr %sleep_p release, align 4
  ret void
}

; i32 tw_dismiss(state): tells all workers to leave and keeps the lock; 0 if a parallel region runs
define i32 @tw_dismiss(ptr %state) nounwind {
entry:
  %locked = cmpxchg ptr %state, i32 0, i32 1 acquire monotonic
  %got = extractvalue { i32, i1 } %locked, 1
  br i1 %got, label %have_lock, label %busy
busy:
  ret i32 0
have_lock:
  %workers_p = getelementptr i8, ptr %state, i64 64
  %workers_0 = load i32, ptr %workers_p
  %workers = sext i32 %workers_0 to i64
  %box_0 = getelementptr i8, ptr %state, i64 256
  br label %each
each:
  %k = phi i64 [ 0, %have_lock ], [ %k_next, %tell ]
  %box = phi ptr [ %box_0, %have_lock ], [ %box_next, %tell ]
  %more = icmp slt i64 %k, %workers
  br i1 %more, label %tell, label %done
tell:
  store atomic i32 -1, ptr %box release, align 4
  fence seq_cst
  %sleep_p = getelementptr i8, ptr %box, i64 64
  call void @wake(ptr %sleep_p)
  %k_next = add i64 %k, 1
  %box_next = getelementptr i8, ptr %box, i64 128
  br label %each
done:
  ret i32 1
}
"""
