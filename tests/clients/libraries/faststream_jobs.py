import asyncio
from contextlib import suppress

import jobs
from faststream import FastStream
from faststream.redis import RedisBroker, StreamSub
from redis.exceptions import ResponseError

broker = RedisBroker(jobs.URL)
FUNCTIONS = {"add": jobs.add, "late": jobs.late, "flaky": jobs.flaky}


@broker.subscriber(stream=StreamSub("faststream", group="workers", consumer="one", polling_interval=100))
async def handle(job: dict) -> None:
    name, *arguments = job["words"]
    for _ in range(3):
        try:
            FUNCTIONS[name](*arguments)
            break
        except RuntimeError:
            continue


async def enqueue(*words):
    # FastStream creates the group behind what is in the stream already.
    with suppress(ResponseError):
        jobs.client.xgroup_create("faststream", "workers", id="0", mkstream=True)
    await broker.connect()
    await broker.publish({"words": words}, stream="faststream")
    await broker.close()


jobs.play(lambda: asyncio.run(FastStream(broker).run()), lambda *job: asyncio.run(enqueue(*job)))
