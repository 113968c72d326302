"""Libraries that keep something else than jobs: `python uses.py LIBRARY PORT` prints what it has seen."""

import asyncio
import os
import sys

PORT = int(sys.argv[2])
URL = f"redis://127.0.0.1:{PORT}/0"


def django_redis():
    import django
    from django.conf import settings

    settings.configure(CACHES={"default": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": URL}})
    django.setup()
    from django.core.cache import cache

    cache.set("a", {"b": [1, 2]}, timeout=100)
    print(cache.get("a"), 95 <= cache.ttl("a") <= 100, cache.add("a", 1), cache.get_many(["a", "none"]))
    cache.set("n", 5)
    print(cache.incr("n"), cache.decr("n", 3), cache.touch("n", 10), cache.delete_pattern("*n*"), cache.get("n"))
    with cache.lock("lock", timeout=5):
        print("locked", cache.has_key("lock"))
    print(cache.sadd("set", "x", "y"), sorted(cache.smembers("set")), cache.sismember("set", "z"), cache.scard("set"))
    cache.clear()
    print(cache.get("a"))


def flask_limiter():
    import flask
    from flask_limiter import Limiter

    for strategy in ("fixed-window", "moving-window", "sliding-window-counter"):
        app = flask.Flask(__name__)
        limiter = Limiter(lambda: "somebody", app=app, storage_uri=URL, strategy=strategy, key_prefix=strategy)
        app.add_url_rule("/", "page", limiter.limit("3/hour")(lambda: "ok"))
        visitor = app.test_client()
        print(strategy, [visitor.get("/").status_code for _ in range(4)])


def channels_redis():
    from channels_redis.core import RedisChannelLayer
    from channels_redis.pubsub import RedisPubSubChannelLayer

    async def converse(kind):
        layer = kind(hosts=[URL])
        name = await layer.new_channel()
        await layer.group_add("room", name)
        await layer.group_send("room", {"type": "say", "text": "to all"})
        await layer.send(name, {"type": "say", "text": "to one"})
        print([(await layer.receive(name))["text"] for _ in range(2)])
        waiting = asyncio.ensure_future(layer.receive(name))
        await layer.group_discard("room", name)
        await layer.group_send("room", {"type": "say", "text": "unheard"})
        await layer.send(name, {"type": "say", "text": "after a wait"})
        print((await waiting)["text"])
        await layer.flush()

    for kind in (RedisChannelLayer, RedisPubSubChannelLayer):
        asyncio.run(converse(kind))


def redlock():
    from redlock import Redlock

    locks = Redlock([{"host": "127.0.0.1", "port": PORT}], retry_count=1)
    held = locks.lock("resource", 5000)
    print(bool(held), locks.lock("resource", 5000), locks.unlock(held), bool(locks.lock("resource", 5000)))


def pottery():
    import redis
    from pottery import (
        BloomFilter,
        HyperLogLog,
        NextID,
        RedisCounter,
        RedisDeque,
        RedisDict,
        RedisList,
        RedisSet,
        Redlock,
        redis_cache,
    )

    client = redis.Redis(port=PORT)
    bag = RedisDict({"a": 1}, redis=client, key="dict")
    bag["b"] = [2]
    print(dict(bag), bag.pop("a"), len(bag))
    members = RedisSet({1, 2, 3}, redis=client, key="set")
    print(sorted(members), members >= {2, 3}, 2 in members, members.discard(2), len(members))
    items = RedisList([1, 4, 9], redis=client, key="list")
    items.insert(1, 2)
    print(list(items), items[1:3], items.index(9), items.pop())
    ring = RedisDeque([1, 2, 3], redis=client, key="deque", maxlen=3)
    ring.append(4)
    ring.rotate(1)
    print(list(ring), ring.popleft())
    count = RedisCounter("abracadabra", redis=client, key="counter")
    count.update("bar")
    print(count.most_common(2))
    visitors = HyperLogLog({"ann", "bob"}, redis=client, key="visitors")
    visitors.update(["bob", "eve"], HyperLogLog({"dan"}, redis=client, key="others"))
    print(len(visitors), "eve" in visitors, "zoe" in visitors, list(visitors.contains_many("ann", "zoe")))
    seen = BloomFilter(num_elements=100, false_positives=0.01, redis=client, key="seen")
    seen.update({"rh", "mg"})
    print("rh" in seen, "zoe" in seen, len(seen))
    print([next(NextID(key="ids", masters={client})) for _ in range(3)])
    with Redlock(key="printer", masters={client}, auto_release_time=5) as lock:
        print(bool(lock.locked()))

    @redis_cache(redis=client, key="cache")
    def square(x):
        return x * x

    print(square(4), square(4), square.cache_info().hits)


def redis_om():
    os.environ["REDIS_OM_URL"] = f"{URL}?decode_responses=True"
    from redis_om import HashModel, get_redis_connection

    class Reading(HashModel, index=True):
        sensor: str
        value: float

        class Meta:
            database = get_redis_connection()

    reading = Reading(sensor="a", value=19.8).save()
    again = Reading.get(reading.pk)
    print(again.sensor, again.value)
    again.update(value=20.5)
    print(Reading.get(reading.pk).value, len(list(Reading.all_pks())), reading.expire(100))
    print(Reading.delete(reading.pk), len(list(Reading.all_pks())))


globals()[sys.argv[1]]()
