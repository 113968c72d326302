"""A server inside another program: in its own thread or its own process, on a free port, in a temporary folder.

    import streamd.embedded

    with streamd.embedded.start() as server:
        client = server.client(decode_responses=True)
        client.xadd("readings", {"sensor": "a", "celsius": "19.8"})

    async with streamd.embedded.start(own_process=True, appendonly=True) as server:
        client = server.async_client()
        await client.xlen("readings")

Made for tests, notebooks and small programs. A thread starts within milliseconds and shares the interpreter with the
program: a request waits while other threads compute. A process takes longer to start, but runs independently of the
program; `kill()` ends it with SIGKILL. For throughput, run `streamd server`.

    with streamd.embedded.start_cluster(nodes=3) as cluster:
        client = cluster.client(decode_responses=True)      # a RedisCluster of redis-py
        cluster.nodes[0].kill()

Nothing is read from the working directory or written there: the data is in a temporary folder that is removed with the
server, unless `dir` names another.
"""

from streamd.embedded.hosted_cluster import EmbeddedCluster, start_cluster
from streamd.embedded.running import EmbeddedServer, start

__all__ = ["EmbeddedCluster", "EmbeddedServer", "start", "start_cluster"]
