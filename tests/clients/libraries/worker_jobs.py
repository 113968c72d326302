"""streamd.worker, with the redis-py of these libraries, which is older than that of the tests."""

import asyncio

import jobs
import redis.asyncio

from streamd.worker import Job, Worker, run

FUNCTIONS = {"add": jobs.add, "late": jobs.late, "flaky": jobs.flaky, "poison": jobs.poison}


def handle(job: Job) -> None:
    name, *arguments = job.fields["words"].split()
    FUNCTIONS[name](*map(int, arguments))


async def work() -> None:
    async with redis.asyncio.Redis.from_url(jobs.URL, decode_responses=True) as client:
        await run(Worker(client, "jobs", "workers", handle, lease=1))


def enqueue(*words):
    jobs.client.xadd("jobs", {"words": " ".join(map(str, words))})


jobs.play(lambda: asyncio.run(work()), enqueue)
