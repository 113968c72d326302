import asyncio

import jobs
from arq import Retry, create_pool
from arq.connections import RedisSettings
from arq.worker import Worker

SETTINGS = RedisSettings(port=jobs.PORT)


async def add(ctx, x, y):
    return jobs.add(x, y)


async def late(ctx, x):
    return jobs.late(x)


async def flaky(ctx):
    try:
        return jobs.flaky()
    except RuntimeError:
        raise Retry(defer=0) from None


def work():
    Worker(functions=[add, late, flaky], redis_settings=SETTINGS, poll_delay=0.05).run()


async def enqueue(name, *arguments):
    pool = await create_pool(SETTINGS)
    await pool.enqueue_job(name, *arguments)


def submit(name, *arguments):
    asyncio.run(enqueue(name, *arguments))


jobs.play(work, submit)
