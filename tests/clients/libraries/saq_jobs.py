import asyncio

import jobs
from saq import Queue, Worker


async def add(ctx, *, x, y):
    return jobs.add(x, y)


async def late(ctx, *, x):
    return jobs.late(x)


async def flaky(ctx):
    return jobs.flaky()


async def start():
    queue = Queue.from_url(jobs.URL)
    await queue.connect()
    await Worker(queue, functions=[add, late, flaky], concurrency=1).start()


async def enqueue(name, *arguments):
    queue = Queue.from_url(jobs.URL)
    await queue.connect()
    await queue.enqueue(name, retries=3, **dict(zip("xy", arguments, strict=False)))
    await queue.disconnect()


jobs.play(lambda: asyncio.run(start()), lambda *job: asyncio.run(enqueue(*job)))
