const Queue = require("bee-queue");
const { connection, functions, play } = require("./jobs.cjs");

const queue = new Queue("jobs", { redis: connection, isWorker: process.argv[2] === "work" });

play(
  () => {
    queue.process((job) => functions[job.data.name](...job.data.words));
    return () => queue.close();
  },
  (name, ...words) => queue.createJob({ name, words }).retries(3).save(),
);
