// Stories for node-redis, which speaks RESP3 here. Who plays them: ../test_node.py.
"use strict";

const assert = require("node:assert/strict");
const { createClient, WatchError } = require("redis");
const { hear, play, tell, until } = require("./story.cjs");

const connect = async (port, more = {}) => {
  const client = createClient({ RESP: 3, socket: { port, host: "127.0.0.1", reconnectStrategy: () => 20 }, ...more });
  client.on("error", () => {});
  await client.connect();
  return client;
};

play({
  async streams(port) {
    const client = await connect(port);
    assert.equal((await client.hello()).proto, 3);
    const id = await client.xAdd("s", "*", { "sensor-id": "1234", temperature: "19.8" });
    assert.match(id, /^\d{13}-\d+$/);
    assert.equal(await client.xGroupCreate("s", "g", "0"), "OK");
    const read = await client.sendCommand(["XREADGROUP", "GROUP", "g", "alice", "STREAMS", "s", ">"]);
    assert.deepEqual(JSON.parse(JSON.stringify(read)), { s: [[id, ["sensor-id", "1234", "temperature", "19.8"]]] });
    assert.equal((await client.xPending("s", "g")).pending, 1);
    assert.equal(await client.xAck("s", "g", id), 1);
    assert.deepEqual((await client.xRange("s", "-", "+")).map((entry) => entry.id), [id]);
    const info = await client.xInfoStream("s");
    assert.equal(info.length, 1);
    const waiting = await connect(port);
    const next = waiting.sendCommand(["XREAD", "BLOCK", "0", "STREAMS", "s", id]);
    const second = await client.xAdd("s", "*", { f: "v" });
    assert.equal((await next).s[0][0], second);
    await assert.rejects(client.xAdd("s", "1-1", { f: "v" }), /equal or smaller than the target stream top item/);
  },

  async transactions(port) {
    const client = await connect(port);
    assert.deepEqual(await client.multi().set("k", "1").incr("k").get("k").exec(), ["OK", 2, "2"]);
    const other = await connect(port);
    await client.watch("k");
    await other.set("k", "3");
    await assert.rejects(client.multi().set("k", "4").exec(), WatchError);
    await client.watch("k");
    assert.deepEqual(await client.multi().set("k", "4").exec(), ["OK"]);
    await assert.rejects(client.multi().addCommand(["SET", "k"]).exec(), /EXECABORT|wrong number of arguments/);
    assert.equal(await client.get("k"), "4");
  },

  async patterns(port) {
    const [publisher, subscriber] = [await connect(port), await connect(port)];
    const heard = [];
    const listener = (message, channel) => heard.push([channel, message]);
    await subscriber.pSubscribe("news.*", listener);
    await subscriber.subscribe("news.art", listener);
    assert.equal(await publisher.publish("news.art", "one"), 2);
    assert.equal(await publisher.publish("news.sport", "two"), 1);
    await until(() => heard.length === 3, "three messages");
    assert.deepEqual(heard, [["news.art", "one"], ["news.art", "one"], ["news.sport", "two"]]);
    // A connection that is pushed messages goes on with its commands.
    assert.equal(await subscriber.set("k", "1"), "OK");
    assert.equal(await subscriber.publish("news.own", "three"), 1);
    await until(() => heard.length === 4, "its own message");
    await subscriber.pUnsubscribe("news.*");
    await subscriber.unsubscribe("news.art");
    assert.equal(await publisher.publish("news.art", "four"), 0);
    await subscriber.sSubscribe("shard", listener);
    assert.equal(await publisher.sPublish("shard", "five"), 1);
    await until(() => heard.length === 5, "a sharded message");
  },

  async caching(port) {
    const client = await connect(port, { clientSideCache: { ttl: 0, maxEntries: 100 } });
    const other = await connect(port);
    await other.set("k", "1");
    assert.equal(await client.get("k"), "1");
    assert.equal(await client.get("k"), "1");
    assert.equal((await other.info("clients")).match(/tracking_clients:(\d+)/)[1], "1");
    await other.set("k", "2");
    await until(async () => (await client.get("k")) === "2", "the new value");
    const before = (await other.info("commandstats")).match(/cmdstat_get:calls=(\d+)/)[1];
    for (let n = 0; n < 50; n++) assert.equal(await client.get("k"), "2");
    assert.equal((await other.info("commandstats")).match(/cmdstat_get:calls=(\d+)/)[1], before);
    await other.flushAll();
    await until(async () => (await client.get("k")) === null, "the flush");
  },

  async restart(port) {
    const [client, subscriber] = [await connect(port), await connect(port)];
    const heard = [];
    await subscriber.pSubscribe("news.*", (message) => heard.push(message));
    await client.set("k", "1");
    tell("restart the server");
    await hear("restarted");
    await until(async () => (await client.get("k").catch(() => "1")) === null, "the client is back");
    await until(async () => (await client.publish("news.art", "again")) === 1, "the subscriber is back");
    await until(() => heard.length > 0, "a message after the restart");
    assert.equal(heard[0], "again");
  },

  async killed(port) {
    const [client, other] = [await connect(port), await connect(port)];
    const id = await client.clientId();
    assert.equal(await other.clientKill({ filter: "ID", id }), 1);
    await until(async () => (await client.set("k", "1").catch(() => "")) === "OK", "the client is back");
    assert.notEqual(await client.clientId(), id);
  },
});
