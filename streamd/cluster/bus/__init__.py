"""The core of a cluster node, without I/O: packets, times and commands in; packets and decisions out (`core.ClusterCore`).

    core         ClusterCore, which the server drives: one object, all inputs and outputs
    actions      the outputs
    options      the settings that matter here, and what the core must know about the data of this server
    slots        sets of slots
    nodes        Node, Link, and State: everything that this node knows
    packets      bytes of the bus, read and written
    nodes_conf   the file of the node, read and written
    outbox       where parts leave what is to be sent, logged and done
    gossip       PING and PONG: when, to whom, about whom; what is learnt from them
    failures     which nodes fail, and whether the cluster serves
    claims       who is primary, who owns which slot; UPDATE
    elections    fail-over: requests, votes, ranks, epochs
    takeover     fail-over on request: CLUSTER FAILOVER, FORCE, TAKEOVER
    replica_migration   replicas that move to primaries without any
    receiving    what each packet does
    links, role  connections; this node becomes a primary or a replica
    administration   the CLUSTER commands that change something
    description  what CLUSTER INFO shows

Nothing here knows sockets, clocks or files, so that a simulation runs hundreds of nodes in one process.
"""
