import asyncio

import jobs
from streaq import StreaqRetry, Worker

worker = Worker(redis_url=jobs.URL, concurrency=1, idle_timeout=2)


@worker.task(name="add")
async def add(x: int, y: int) -> int:
    return jobs.add(x, y)


@worker.task(name="late")
async def late(x: int) -> int:
    return jobs.late(x)


@worker.task(name="flaky")
async def flaky() -> str:
    try:
        return jobs.flaky()
    except RuntimeError as error:
        raise StreaqRetry(str(error), delay=0) from None


@worker.task(name="poison")
async def poison() -> None:
    jobs.poison()


TASKS = {"add": add, "late": late, "flaky": flaky, "poison": poison}


async def enqueue(name, *arguments):
    async with worker:
        task = await TASKS[name].enqueue(*arguments)
        if name == "add":
            assert (await task.result(jobs.DEADLINE_S)).result == 5


jobs.play(worker.run_sync, lambda *job: asyncio.run(enqueue(*job)))
