// A story of ioredis and node-redis as clients of a cluster. Who plays it: ../../cluster/test_node_clients.py.
"use strict";

const assert = require("node:assert/strict");
const { hear, play, tell, until } = require("./story.cjs");

const STREAMS = Array.from({ length: 30 }, (_, number) => `stream:${number}`);

/** The few calls of the story, for each library. */
const ioredis = async (port) => {
  const { Cluster } = require("ioredis");
  const open = (options) => new Cluster([{ host: "127.0.0.1", port }], { clusterRetryStrategy: () => 50, ...options });
  const client = open({});
  const subscriber = open({ shardedSubscribers: true });
  return {
    add: (stream, n) => client.xadd(stream, "*", "n", n),
    entries: async (stream) => (await client.xrange(stream, "-", "+")).map(([, [, n]]) => n),
    group: (stream) => client.xgroup("CREATE", stream, "g", "0"),
    read: async (stream) => {
      const found = await client.xreadgroup("GROUP", "g", "c", "STREAMS", stream, ">");
      return found ? found[0][1].map(([id]) => id) : [];
    },
    ack: (stream, ids) => client.xack(stream, "g", ...ids),
    wait: (stream) => client.duplicate().xread("BLOCK", 0, "STREAMS", stream, "$"),
    subscribe: (channel, listener) => {
      subscriber.on("smessage", (from, text) => from === channel && listener(text));
      return subscriber.ssubscribe(channel);
    },
    publish: (channel, text) => client.spublish(channel, text),
  };
};

const nodeRedis = async (port) => {
  const { createCluster } = require("redis");
  const client = createCluster({ rootNodes: [{ socket: { host: "127.0.0.1", port } }]});
  client.on("error", () => {});
  await client.connect();
  const waiting = client.duplicate();
  waiting.on("error", () => {});
  await waiting.connect();
  return {
    add: (stream, n) => client.xAdd(stream, "*", { n: String(n) }),
    entries: async (stream) => (await client.xRange(stream, "-", "+")).map(({ message }) => message.n),
    group: (stream) => client.xGroupCreate(stream, "g", "0"),
    read: async (stream) => {
      const found = await client.xReadGroup("g", "c", { key: stream, id: ">" });
      return found ? found[0].messages.map(({ id }) => id) : [];
    },
    ack: (stream, ids) => client.xAck(stream, "g", ids),
    wait: (stream) => waiting.xRead({ key: stream, id: "$" }, { BLOCK: 0 }),
    subscribe: (channel, listener) => client.sSubscribe(channel, listener),
    publish: (channel, text) => client.sPublish(channel, text),
  };
};

/** Writers and readers on all nodes, while what is told happens. */
const tellStory = async (calls, events) => {
  const heard = [];
  await calls.subscribe("news", (text) => heard.push(text));
  const listens = () => until(async () => (await calls.publish("news", "hello"), heard.length > 0), "a message of a shard channel");
  await listens();
  for (const stream of STREAMS) {
    await calls.group(stream).catch(async () => (await calls.add(stream, "first"), calls.group(stream)));
  }
  const added = new Map(STREAMS.map((stream) => [stream, []]));
  let next = 0;
  const addToAll = async () => {
    const number = String(next++);
    for (const stream of STREAMS) {
      await calls.add(stream, number);
      added.get(stream).push(number);
    }
  };
  for (const what of events) {
    await addToAll();
    tell(what);
    let isDone = false;
    const done = hear("done").then(() => (isDone = true));
    while (!isDone) await addToAll().catch((error) => assert.equal(what, "kill a primary", error));
    await done;
    await until(() => addToAll().then(() => true, () => false), "all shards accept entries");
    for (const [stream, numbers] of added) {
      const there = await calls.entries(stream);
      if (what === "move slots") assert.deepEqual(there, ["first", ...numbers]);
      else assert.ok(numbers.length > 1 && there.includes(numbers.at(-1)), stream);
      const ids = await calls.read(stream);
      assert.equal(await calls.ack(stream, ids), ids.length);
    }
    heard.length = 0;
    await listens();
  }
  const found = calls.wait(STREAMS[0]);
  let isServed = false;
  found.then(() => (isServed = true));
  await until(async () => (await calls.add(STREAMS[0], "last"), isServed), "a waiting reader");
};

play({
  ioredis: async (port) => tellStory(await ioredis(port), ["move slots", "kill a primary"]),
  // node-redis 5.12 stays with a primary that has died, of Redis as well: it asks for the slots again only when a node says MOVED.
  node_redis: async (port) => tellStory(await nodeRedis(port), ["move slots"]),
});
