const Queue = require("bull");
const { connection, functions, play } = require("./jobs.cjs");

const queue = new Queue("jobs", { redis: connection });

play(
  () => {
    queue.process((job) => functions[job.data.name](...job.data.words));
    return () => queue.close();
  },
  (name, ...words) => queue.add({ name, words }, { attempts: 3, backoff: 10 }),
);
