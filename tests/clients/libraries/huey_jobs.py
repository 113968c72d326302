import jobs
from huey import PriorityRedisHuey

huey = PriorityRedisHuey("jobs", port=jobs.PORT)
tasks = {function.__name__: huey.task(retries=3)(function) for function in (jobs.add, jobs.late, jobs.flaky)}


def work():
    huey.create_consumer(workers=1, initial_delay=0.05, max_delay=0.2).run()


def submit(name, *arguments):
    result = tasks[name](*arguments)
    if name == "add":
        assert result.get(blocking=True, timeout=jobs.DEADLINE_S) == 5


jobs.play(work, submit)
