import jobs
import redis
from rq import Queue, Retry, SimpleWorker

connection = redis.Redis(port=jobs.PORT)
queue = Queue(connection=connection)


def work():
    SimpleWorker([queue], connection=connection).work(logging_level="ERROR")


def submit(name, *arguments):
    queue.enqueue(f"jobs.{name}", *arguments, retry=Retry(max=3))


jobs.play(work, submit)
