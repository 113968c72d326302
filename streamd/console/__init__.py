"""The console: a page that shows the server to a browser, and the port that gives it out, `http-port`.

    console_port  the capability: the port, the end of sessions
    answers       a request of HTTP, to the page's files or to the function that answers
    guard         which requests are answered at all, and the headers of answers
    sessions      who is logged in
    inner_client  a client of the server within its process
    page/         the page: HTML, CSS, JavaScript, without a build step

What is answered: cluster_nodes, doctor_findings, follow, other_keys, rule_views, search, server_figures, streams, write_actions.

Whatever the console shows or does, it asks for as a client of the server: each session has a connection of its own, authenticated
as its user, so that permissions, MONITOR, the slow log and effects are those of any client. There is no other way to the data.
"""
