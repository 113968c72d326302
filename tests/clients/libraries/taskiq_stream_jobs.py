import asyncio
import os
import signal

import jobs
from taskiq import SimpleRetryMiddleware
from taskiq.api import run_receiver_task
from taskiq_redis import RedisAsyncResultBackend, RedisStreamBroker

broker = (
    RedisStreamBroker(url=jobs.URL, consumer_id="0", xread_block=200, idle_timeout=500)
    .with_result_backend(RedisAsyncResultBackend(redis_url=jobs.URL))
    .with_middlewares(SimpleRetryMiddleware(default_retry_count=3))
)
TASKS = {
    function.__name__: broker.register_task(function, task_name=function.__name__, retry_on_error=True)
    for function in (jobs.add, jobs.late, jobs.flaky, jobs.poison)
}


async def start():
    task = asyncio.ensure_future(run_receiver_task(broker, run_startup=True))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    await asyncio.wait([task])
    os._exit(0)


async def enqueue(name, *arguments):
    await broker.startup()
    task = await TASKS[name].kiq(*arguments)
    if name == "add":
        assert (await task.wait_result(timeout=jobs.DEADLINE_S)).return_value == 5
    await broker.shutdown()


jobs.play(lambda: asyncio.run(start()), lambda *job: asyncio.run(enqueue(*job)))
