"""The console's view of a whole cluster, from any of its nodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from support.cluster.nodes import Nodes, join, start_cluster_node
from support.pages.browser import Browser
from support.pages.console import Visitor
from support.pages.looks import CUT_FIGURES, LOW_CONTRAST, OVERLAPS, ROWS, UNNAMED, show
from support.replicas.nodes import Node, wait_until
from support.servers import free_port

pytestmark = [pytest.mark.real, pytest.mark.long]

NewNode = Callable[..., Node]


class Site:
    """Two streamd primaries with consoles and a Redis as the replica of the first; all need a password."""

    def __init__(self, new_node: NewNode) -> None:
        self.ports = [free_port(), free_port()]
        settings = {"requirepass": "secret", "masterauth": "secret", "cluster_node_timeout": "1000"}
        self.nodes = Nodes(
            start_cluster_node(new_node, kind, **settings, **({"http_port": str(port)} if port else {}))
            for kind, port in (("streamd", self.ports[0]), ("streamd", self.ports[1]), ("redis", 0))
        )
        for node, slots in zip(self.nodes, (("0", "8191"), ("8192", "16383"), None), strict=True):
            node.credentials = ("secret",)
            if slots is not None:
                node.must("CLUSTER", "ADDSLOTSRANGE", *slots)
        join(self.nodes)
        primary, replica = self.nodes[0], self.nodes[2]
        wait_until(lambda: self.nodes.id_of(primary) in self.nodes.lines(replica), "the replica knows its primary")
        replica.must("CLUSTER", "REPLICATE", self.nodes.id_of(primary))
        self.nodes.wait()

    def visit(self, at: int, user: str = "default", password: str = "secret") -> Visitor:
        visitor = Visitor(self.ports[at])
        visitor.log_in(user, password)
        assert visitor.status == 200
        return visitor


@pytest.fixture
def site(new_node: NewNode) -> Site:
    return Site(new_node)


def rows(found: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {row["node"]: row for row in found["nodes"]}


def test_any_node_shows_all_of_them_with_their_own_figures(site: Site) -> None:
    first, second, replica = site.nodes
    for key in ("bar1", "bar2"):
        first.must("XADD", f"{{bar}}{key}", "*", "f", "v")
    second.must("SET", "foo", "v" * 100_000)
    assert first.call("WAIT", "1", "60000").value == 1
    for at in (0, 1):
        visitor = site.visit(at)
        assert visitor.get("session")["is_cluster"]
        wait_until(
            lambda visitor=visitor: [row["behind"] for row in visitor.get("cluster")["nodes"]] == [None, 0, None],
            "the offsets have been announced",
        )
        found = visitor.get("cluster")
        assert found["slots"] == 16384
        seen = rows(found)
        assert [*seen] == [f"127.0.0.1:{node.port}" for node in (first, replica, second)]
        assert [row["role"] for row in seen.values()] == ["primary", "replica", "primary"]
        assert [row["slots"] for row in seen.values()] == [8192, 0, 8192]
        assert [row["keys"] for row in seen.values()] == [2, 2, 1]
        assert seen[f"127.0.0.1:{second.port}"]["used_memory"] > 100_000
        assert all(row["problem"] == "" and row["state"] == "online" for row in seen.values())
        wait_until(
            lambda visitor=visitor: all(row["commands_per_s"] for row in visitor.get("cluster")["nodes"]),
            "rates are known after a second look",
        )


def test_a_node_that_is_gone_and_its_slots_are_reported_by_the_others(site: Site) -> None:
    visitor = site.visit(0)
    assert visitor.get("cluster")["slots"] == 16384
    site.nodes[1].kill()
    wait_until(lambda: visitor.get("cluster")["slots"] == 8192, "the slots are not served any more")
    gone = rows(visitor.get("cluster"))[f"127.0.0.1:{site.nodes[1].port}"]
    assert gone["state"] == "no answer"
    assert gone["problem"]
    assert gone["used_memory"] is None


def test_the_permissions_of_the_user_apply(site: Site) -> None:
    site.nodes[0].must("ACL", "SETUSER", "reader", "on", ">word", "~*", "+@all", "-info")
    site.nodes[0].must("ACL", "SETUSER", "guest", "on", ">word", "~*", "+@all", "-cluster|shards")
    for user in ("reader", "guest"):
        visitor = site.visit(0, user, "word")
        visitor.get("cluster")
        assert visitor.status == 403


def test_without_a_cluster_there_is_no_such_view(new_node: NewNode) -> None:
    port = free_port()
    new_node("streamd", http_port=str(port))
    visitor = Visitor(port)
    assert not visitor.log_in()["is_cluster"]
    assert visitor.get("cluster")["error"] == "ERR This instance has cluster support disabled"
    assert visitor.status == 409


def test_without_a_login_for_other_nodes_the_view_says_what_is_missing(new_node: NewNode) -> None:
    port = free_port()
    node = start_cluster_node(new_node, "streamd", requirepass="secret", http_port=str(port))
    node.credentials = ("secret",)
    node.must("CLUSTER", "ADDSLOTSRANGE", "0", "16383")
    visitor = Visitor(port)
    visitor.log_in("default", "secret")
    assert "masterauth" in visitor.get("cluster")["error"]


@pytest.mark.parametrize("width", [1280, 400])
def test_the_page_shows_the_nodes_at_every_width(
    new_node: NewNode, tmp_path_factory: pytest.TempPathFactory, width: int
) -> None:
    port = free_port()
    nodes = [start_cluster_node(new_node, "streamd", **settings) for settings in ({"http_port": str(port)}, {})]
    for node, slots in zip(nodes, (("0", "8191"), ("8192", "16383")), strict=True):
        node.must("CLUSTER", "ADDSLOTSRANGE", *slots)
    join(nodes)
    Nodes(nodes).wait()
    with Browser(tmp_path_factory.mktemp("browser")) as browser:
        page = browser.open(f"http://127.0.0.1:{port}/#/overview", width=width)
        page.wait("document.querySelector('nav a[data-view=cluster]')")
        show(page, "cluster")
        page.wait(f"{ROWS} === 2")
        for looks in (OVERLAPS, CUT_FIGURES, UNNAMED, LOW_CONTRAST):
            assert page.js(looks) == []
        text = page.js("document.querySelector('main').innerText")
        assert "2 primaries, 0 replicas" in text
        assert all(f"127.0.0.1:{node.port}" in text for node in nodes)
        nodes[1].kill()
        page.wait("document.querySelector('.facts').innerText.includes('1 of 2 not online')")
        assert page.complaints == []
