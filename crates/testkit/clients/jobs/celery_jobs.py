"""Celery at work on the server at port argv[1], as broker and as result backend: a worker process with four threads, and
calls of every kind. Prints what came of them, so that two servers can be compared line by line. Waits for results and
events only, each with a limit.

As a module it holds the tasks: the worker is this file, started by itself with the port in JOBS_PORT."""

import os
import subprocess
import sys

from celery import Celery, chain, chord, group
from celery.exceptions import TaskRevokedError

PATIENCE_S = 20

port = os.environ.get("JOBS_PORT") or sys.argv[1]
app = Celery("celery_jobs", broker=f"redis://127.0.0.1:{port}/0", backend=f"redis://127.0.0.1:{port}/1")
app.conf.update(
    task_acks_late=True,
    worker_prefetch_multiplier=1,
    broker_connection_retry_on_startup=True,
    result_expires=3600,
    worker_hijack_root_logger=False,
    task_queue_max_priority=9,
    broker_transport_options={"priority_steps": [0, 3, 6, 9], "queue_order_strategy": "priority"},
)


@app.task
def add(a, b):
    return a + b


@app.task
def total(numbers):
    return sum(numbers)


@app.task(bind=True, max_retries=3)
def stubborn(self, failures):
    if self.request.retries < failures:
        raise self.retry(countdown=0.01)
    return self.request.retries


@app.task
def broken(text):
    raise ValueError(text)


@app.task(bind=True)
def stateful(self):
    self.update_state(state="HALFWAY", meta={"done": 50})
    return self.request.id is not None


def say(what, value):
    print(f"{what}: {value}", flush=True)


def get(result):
    return result.get(timeout=PATIENCE_S, interval=0.01)


def failure(result):
    try:
        return get(result)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def calls():
    say("add", get(add.delay(2, 3)))
    say("many", sum(get(result) for result in [add.delay(n, n) for n in range(300)]))
    say("kept", len(app.backend.client.keys("celery-task-meta-*")))
    say("group", get(group(add.s(n, 1) for n in range(50))()))
    say("chain", get(chain(add.s(1, 2), add.s(3), add.s(4))()))
    say("chord", get(chord((add.s(n, n) for n in range(40)), total.s())()))
    say("chord of chords", get(chord([chord([add.s(n, 1), add.s(n, 2)], total.s()) for n in range(5)], total.s())()))
    say("chain of groups", get((group(add.s(n, n) for n in range(10)) | total.s() | add.s(100))()))
    say("map", get(add.starmap([(1, 2), (3, 4)]).delay()))
    say("chunks", get(add.chunks(zip(range(20), range(20)), 5).group()()))
    say("retried", get(stubborn.delay(2)))
    say("given up", failure(stubborn.delay(9)).split(":")[0])
    say("broken", failure(broken.delay("why")))
    say("state", get(stateful.delay()))
    say("later", get(add.apply_async((5, 6), countdown=0.3)))
    say("expired", failure(add.apply_async((1, 1), countdown=0.2, expires=0.01)))
    say("priorities", sorted(get(r) for r in [add.apply_async((n, 0), priority=n) for n in range(10)]))
    say("ignored", add.apply_async((1, 1), ignore_result=True).id is not None)
    revoked = add.apply_async((1, 1), countdown=0.5)
    app.control.revoke(revoked.id, reply=True, timeout=PATIENCE_S, limit=1)
    try:
        get(revoked)
        say("revoked", "ran")
    except TaskRevokedError:
        say("revoked", "did not run")
    forgotten = add.delay(1, 2)
    get(forgotten)
    forgotten.forget()
    say("forgotten", app.backend.client.exists(f"celery-task-meta-{forgotten.id}"))


def control():
    ask = dict(reply=True, timeout=PATIENCE_S, limit=1)
    say("ping", [list(answer.values()) for answer in app.control.broadcast("ping", **ask)])
    inspected = app.control.broadcast("registered", **ask)
    tasks = [name.split(".")[-1] for answer in inspected for names in answer.values() for name in names]
    say("registered", sorted(name for name in tasks if name in ("add", "broken", "stateful", "stubborn", "total")))
    with app.connection_for_read() as connection:
        say("left in the queue", connection.default_channel.queue_declare("celery", passive=False).message_count)
    app.control.purge()


def start_worker(log):
    here = os.path.dirname(os.path.abspath(__file__))
    words = "-A celery_jobs worker --pool threads --concurrency 4 --without-mingle --without-gossip --loglevel info".split()
    environment = {**os.environ, "JOBS_PORT": port, "PYTHONPATH": here, "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.Popen([sys.executable, "-m", "celery", *words], env=environment, stdout=log, stderr=log)


def main():
    log_path = sys.argv[2]
    with open(log_path, "wb") as log:
        worker = start_worker(log)
        try:
            calls()
            control()
        finally:
            worker.terminate()
            ended = worker.wait(timeout=PATIENCE_S)
    say("the worker ended with", ended)


if __name__ == "__main__":
    main()
