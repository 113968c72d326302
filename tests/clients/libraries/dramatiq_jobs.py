import signal

import dramatiq
import jobs
from dramatiq.brokers.redis import RedisBroker

broker = RedisBroker(url=jobs.URL)
dramatiq.set_broker(broker)

for function in (jobs.add, jobs.late, jobs.flaky):
    dramatiq.actor(function, max_retries=3, min_backoff=10, max_backoff=20)


def work():
    worker = dramatiq.Worker(broker, worker_threads=1, worker_timeout=100)
    worker.start()
    signal.sigwait({signal.SIGTERM, signal.SIGINT})
    worker.stop()


def submit(name, *arguments):
    broker.get_actor(name).send(*arguments)


signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
jobs.play(work, submit)
