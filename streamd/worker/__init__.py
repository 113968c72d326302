"""Workers that handle the entries of a consumer group, in asyncio: several at a time, with retries, dead letters and a graceful end.

    import asyncio
    import redis.asyncio
    from streamd.worker import Job, Rule, Worker, run

    async def handle(job: Job) -> None: ...

    client = redis.asyncio.Redis(decode_responses=True)
    rule = Rule(max_deliveries=5, dead_letter="jobs:dead", backoff=1.0, factor=2)
    asyncio.run(run(Worker(client, "jobs", "workers", handle, rule=rule)))

    job                 what a handler gets, and how it says that a job is not to be tried again
    rule                when a job is tried again, and how often: arithmetic alone
    group_requests      what a worker asks of its consumer group, which is not the same on streamd and on a Redis
    dead_letter_script  how a dead letter is moved on a Redis, in one step
    worker              the worker
    periodic            jobs that are added again and again, once for all workers
    metrics             a worker's counts for prometheus_client

It needs redis-py, of which the caller passes a client for asyncio, and works with streamd and with any Redis of release 7 or newer.
"""

from streamd.worker.job import Fatal, Job
from streamd.worker.rule import Rule
from streamd.worker.worker import Counts, Worker, WorkerError, run

__all__ = ["Counts", "Fatal", "Job", "Rule", "Worker", "WorkerError", "run"]
