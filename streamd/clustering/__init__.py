"""Clusters as their operator sees them: forming one, moving slots, adding and removing nodes; and clusters on one machine, as processes.

Everything is done with the commands of Redis (CLUSTER MEET, ADDSLOTSRANGE, REPLICATE, MIGRATION, FORGET), over the wire.

    cluster_error     what went wrong, in one line
    view              the cluster as one node sees it: CLUSTER NODES, CLUSTER INFO
    node_connection   a node over the wire
    forming           nodes that know nothing become a cluster
    shares            which slots each primary gets, and which have to move
    slot_moves        moving them
    deadline_waits    waits that end with a condition, a deadline, or a request to stop
    machine           the nodes of one folder: what is recorded, the processes, starting and stopping, adding and removing
"""
