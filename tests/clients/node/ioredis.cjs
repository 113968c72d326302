// Stories for ioredis. Who plays them: ../test_node.py.
"use strict";

const assert = require("node:assert/strict");
const { once } = require("node:events");
const Redis = require("ioredis");
const { hear, play, tell, until } = require("./story.cjs");

/** A client that is ready: until then it may send PSUBSCRIBE before the INFO with which it looks whether the server is. */
const connect = async (port) => {
  const client = new Redis({ port, host: "127.0.0.1", retryStrategy: () => 20, maxRetriesPerRequest: null });
  await once(client, "ready");
  return client;
};

play({
  async streams(port) {
    const client = await connect(port);
    const id = await client.xadd("s", "*", "sensor-id", "1234", "temperature", "19.8");
    assert.match(id, /^\d{13}-\d+$/);
    assert.equal(await client.xlen("s"), 1);
    assert.equal(await client.xgroup("CREATE", "s", "g", "0"), "OK");
    const read = await client.xreadgroup("GROUP", "g", "alice", "COUNT", 10, "STREAMS", "s", ">");
    assert.deepEqual(read, [["s", [[id, ["sensor-id", "1234", "temperature", "19.8"]]]]]);
    assert.deepEqual(await client.xpending("s", "g"), [1, id, id, [["alice", "1"]]]);
    assert.equal(await client.xack("s", "g", id), 1);
    assert.equal(await client.xread("BLOCK", 10, "STREAMS", "s", "$"), null);
    const waiting = client.duplicate();
    const next = waiting.xread("BLOCK", 0, "STREAMS", "s", id);
    const second = await client.xadd("s", "*", "f", "v");
    assert.deepEqual(await next, [["s", [[second, ["f", "v"]]]]]);
    await assert.rejects(client.xadd("s", "1-1", "f", "v"), /equal or smaller than the target stream top item/);
  },

  async transactions(port) {
    const client = await connect(port);
    const replies = await client.multi().set("k", "1").incr("k").xadd("k", "*", "f", "v").get("k").exec();
    assert.deepEqual(replies.map(([error, value]) => (error ? error.message.split(" ")[0] : value)), ["OK", 2, "WRONGTYPE", "2"]);
    const other = await connect(port);
    await client.watch("k");
    await other.set("k", "3");
    assert.equal(await client.multi().set("k", "4").exec(), null);
    assert.equal(await client.get("k"), "3");
    await assert.rejects(client.multi().set("k").exec(), /EXECABORT/);
    assert.deepEqual(await client.pipeline().get("k").del("k").exec(), [[null, "3"], [null, 1]]);
  },

  async patterns(port) {
    const [publisher, subscriber] = [await connect(port), await connect(port)];
    const heard = [];
    subscriber.on("message", (...message) => heard.push(message));
    subscriber.on("pmessage", (...message) => heard.push(message));
    assert.equal(await subscriber.psubscribe("news.*", "[ab]?"), 2);
    assert.equal(await subscriber.subscribe("news.art"), 3);
    assert.equal(await publisher.publish("news.art", "one"), 2);
    assert.equal(await publisher.publish("a1", "two"), 1);
    assert.equal(await publisher.publish("c1", "three"), 0);
    await until(() => heard.length === 3, "three messages");
    assert.deepEqual(heard, [["news.art", "one"], ["news.*", "news.art", "one"], ["[ab]?", "a1", "two"]]);
    await assert.rejects(subscriber.get("k"), /subscriber mode/);
    assert.equal(await subscriber.punsubscribe("news.*", "[ab]?"), 1);
    assert.equal(await subscriber.unsubscribe("news.art"), 0);
    assert.equal(await subscriber.get("k"), null);
  },

  async events(port) {
    const [client, subscriber] = [await connect(port), await connect(port)];
    await client.config("SET", "notify-keyspace-events", "KEA");
    const heard = [];
    subscriber.on("pmessage", (pattern, channel, message) => heard.push([channel, message]));
    await subscriber.psubscribe("__key*@0__:*");
    await client.xadd("s", "*", "f", "v");
    await client.del("s");
    await until(() => heard.length === 4, () => `four events, but ${JSON.stringify(heard)},`);
    assert.deepEqual(heard, [
      ["__keyspace@0__:s", "xadd"], ["__keyevent@0__:xadd", "s"], ["__keyspace@0__:s", "del"], ["__keyevent@0__:del", "s"],
    ]);
    await client.config("SET", "notify-keyspace-events", "");
  },

  async restart(port) {
    const [client, subscriber] = [await connect(port), await connect(port)];
    for (const one of [client, subscriber]) one.on("error", () => {});
    const heard = [];
    subscriber.on("pmessage", (pattern, channel, message) => heard.push(message));
    await subscriber.psubscribe("news.*");
    await client.set("k", "1");
    tell("restart the server");
    await hear("restarted");
    assert.equal(await client.get("k"), null);
    await until(async () => (await client.publish("news.art", "again")) === 1, "the subscriber is back");
    await until(() => heard.length > 0, "a message after the restart");
    assert.equal(heard[0], "again");
  },

  async killed(port) {
    const [client, other] = [await connect(port), await connect(port)];
    const id = await client.client("ID");
    await client.select(3);
    assert.equal(await other.client("KILL", "ID", id), 1);
    assert.equal(await client.set("k", "1"), "OK");
    assert.notEqual(await client.client("ID"), id);
    await other.select(3);
    assert.equal(await other.get("k"), "1");
  },
});
