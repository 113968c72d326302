import jobs
from celery import Celery

app = Celery("jobs", broker=jobs.URL, backend=jobs.URL)
app.conf.update(broker_connection_retry_on_startup=True, task_acks_late=True, worker_hijack_root_logger=False)


app.task(name="add")(jobs.add)
app.task(name="late")(jobs.late)
app.task(name="flaky", autoretry_for=(RuntimeError,), max_retries=3, default_retry_delay=0)(jobs.flaky)


def work():
    app.worker_main(["worker", "--loglevel=ERROR", "--pool=solo", "--without-mingle", "--without-gossip"])


def submit(name, *arguments):
    result = app.tasks[name].delay(*arguments)
    if name == "add":
        assert result.get(timeout=jobs.DEADLINE_S) == 5


jobs.play(work, submit)
