// The jobs and acts of jobs.py, for libraries of Node: `node LIBRARY.cjs ACT PORT`.

const Redis = require("ioredis");

const [, , act, port] = process.argv;
const connection = { host: "127.0.0.1", port: Number(port), maxRetriesPerRequest: null };
const client = new Redis(connection);
const DEADLINE_MS = 100_000;

const functions = {
  async add(x, y) {
    await client.set("result:add", x + y);
  },
  async flaky() {
    const tries = await client.incr("result:tries");
    if (tries < 2) throw new Error("the first try fails");
    await client.set("result:flaky", tries);
  },
  async late(x) {
    await client.set("result:late", x * x);
  },
};

async function waitFor(name) {
  const deadline = Date.now() + DEADLINE_MS;
  for (;;) {
    const found = await client.get(`result:${name}`);
    if (found !== null) return found;
    if (Date.now() > deadline) throw new Error(`no result of ${name}`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

const acts = {
  async first(submit) {
    await submit("add", 2, 3);
    console.log("add:", await waitFor("add"));
    await submit("flaky");
    console.log("tries:", await waitFor("flaky"));
  },
  async late(submit) {
    await submit("late", 9);
    console.log("late: submitted");
  },
  async second() {
    console.log("late:", await waitFor("late"));
  },
};

// work(): starts a worker and returns what stops it; submit(name, ...arguments)
exports.play = async (work, submit) => {
  if (act === "work") {
    const stop = await work();
    process.once("SIGTERM", async () => {
      await stop();
      process.exit(0);
    });
    return;
  }
  await acts[act](submit);
  process.exit(0);
};
exports.connection = connection;
exports.functions = functions;
