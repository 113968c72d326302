import asyncio
import signal
from datetime import timedelta

import jobs
from docket import Docket, Retry, Worker


async def add(x: int, y: int) -> None:
    jobs.add(x, y)


async def late(x: int) -> None:
    jobs.late(x)


async def flaky(retry: Retry = Retry(attempts=3)) -> None:  # noqa: B008  (the library's way)
    jobs.flaky()


TASKS = {function.__name__: function for function in (add, late, flaky)}


async def start():
    async with Docket(name="jobs", url=jobs.URL) as docket:
        for function in TASKS.values():
            docket.register(function)
        async with Worker(docket, minimum_check_interval=timedelta(milliseconds=50)) as worker:
            task = asyncio.ensure_future(worker.run_forever())
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
            await asyncio.wait([task])


async def enqueue(name, *arguments):
    async with Docket(name="jobs", url=jobs.URL) as docket:
        await docket.add(TASKS[name])(*arguments)


jobs.play(lambda: asyncio.run(start()), lambda *job: asyncio.run(enqueue(*job)))
