const { Queue, Worker } = require("bullmq");
const { connection, functions, play } = require("./jobs.cjs");

const queue = () => new Queue("jobs", { connection });

play(
  () => {
    const worker = new Worker("jobs", (job) => functions[job.name](...job.data), { connection, drainDelay: 1 });
    return () => worker.close();
  },
  (name, ...words) => queue().add(name, words, { attempts: 3, priority: 1, backoff: { type: "fixed", delay: 10 } }),
);
