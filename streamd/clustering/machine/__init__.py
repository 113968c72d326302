"""A cluster on this machine: a process for each node, in one folder.

cluster.json     what is recorded: the ports and the IDs of the nodes, their settings
lock             held while a command starts, stops or changes nodes
7000/, 7001/ ... the working directory of a node: nodes.conf, its data, streamd.log

record     cluster.json
process    a node as a process
checks     what is checked before anything is started
cluster    starting, stopping, adding and removing
"""
