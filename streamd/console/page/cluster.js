// The cluster: all its nodes, whichever of them the page came from.

import {Chart, History} from "./chart.js";
import {amount, bytes, count, facts, h, rate, short} from "./dom.js";
import {Table} from "./table.js";

const SLOTS = 16384;
const total = (rows, name) => rows.some((row) => row[name] !== null) ? rows.reduce((sum, row) => sum + (row[name] ?? 0), 0) : null;
const percent = (share) => share === null ? "–" : `${Math.round(share * 100)} %`;

export function cluster(place, main) {
    const history = History.of("cluster");
    const primaries = new Map();        // addresses by ID
    const lines = () => [...primaries.keys()];
    const charts = [
        new Chart("Commands per second of primaries", history, lines, rate, (id) => primaries.get(id)),
        new Chart("Network of all nodes, bytes per second", history, ["in", "out"], bytes),
        new Chart("Memory of all nodes", history, ["used"], bytes),
    ];
    const figures = h("div", {});
    const table = place.keep(new Table({
        label: "Nodes", id: (row) => row.id, sort: "order", descending: false, most: 20, empty: "There are no nodes.",
        columns: [
            {id: "order", title: "Node", isText: true, value: (row) => row.order, width: 150, weight: 12, grows: 1,
                cell: (row) => h("span", {class: "mono", title: row.id}, row.role === "replica" ? `↳ ${row.node}` : row.node)},
            {id: "role", title: "Role", isText: true, value: (row) => row.role, cell: (row) => row.role, width: 76, weight: 7},
            {id: "state", title: "State", isText: true, value: (row) => row.state, width: 96, weight: 11,
                cell: (row) => row.state === "online" ? row.state : h("strong", {class: "bad", title: row.problem}, row.state)},
            {id: "slots", title: "Slots", value: (row) => row.slots, width: 76, weight: 10,
                cell: (row) => h("span", {title: row.ranges.map((range) => range.join("–")).join(", ")}, row.slots ? count(row.slots) : "–")},
            {id: "keys", title: "Keys", value: (row) => row.keys, cell: (row) => short(row.keys), width: 76, weight: 4},
            {id: "memory", title: "Memory", value: (row) => row.used_memory, cell: (row) => bytes(row.used_memory), width: 90, weight: 9},
            {id: "commands", title: "Commands/s", value: (row) => row.commands_per_s, cell: (row) => rate(row.commands_per_s), width: 108, weight: 8},
            {id: "in", title: "In/s", value: (row) => row.input_bytes_per_s, cell: (row) => bytes(row.input_bytes_per_s), width: 90, weight: 6},
            {id: "out", title: "Out/s", value: (row) => row.output_bytes_per_s, cell: (row) => bytes(row.output_bytes_per_s), width: 90, weight: 5},
            {id: "cpu", title: "CPU", value: (row) => row.cpu_share, cell: (row) => percent(row.cpu_share), width: 70, weight: 3},
            {id: "clients", title: "Clients", value: (row) => row.clients, cell: (row) => count(row.clients), width: 80, weight: 1},
            {id: "behind", title: "Behind", hint: "Bytes of replication that the replica lacks", value: (row) => row.behind,
                cell: (row) => bytes(row.behind), width: 90, weight: 9.5},
        ],
    }));
    place.keep(...charts);
    main.append(h("h1", {}, "Cluster"), figures, table.element, h("div", {class: "charts"}, ...charts.map((each) => each.element)));
    place.every(3000, async () => {
        const found = await place.get("cluster");
        const nodes = found.nodes.map((row, order) => ({...row, order}));
        const serving = nodes.filter((row) => row.role === "primary");
        for (const row of serving) primaries.set(row.id, row.node);
        table.set(nodes);
        history.add(found.now_ms / 1000, {
            ...Object.fromEntries(serving.map((row) => [row.id, row.commands_per_s])),
            in: total(nodes, "input_bytes_per_s"), out: total(nodes, "output_bytes_per_s"), used: total(nodes, "used_memory"),
        });
        const down = nodes.filter((row) => row.state !== "online").length;
        const lag = nodes.reduce((most, row) => Math.max(most, row.behind ?? 0), 0);
        figures.replaceChildren(facts([
            ["Nodes", down ? h("strong", {class: "bad"}, `${down} of ${count(nodes.length)} not online`)
                : `${amount(serving.length, "primary", "primaries")}, ${amount(nodes.length - serving.length, "replica")}`],
            ["Slots served", found.slots === SLOTS ? "all" : h("strong", {class: "bad"}, `${count(found.slots)} of ${count(SLOTS)}`)],
            ["Keys", short(total(serving, "keys"))], ["Memory", bytes(total(nodes, "used_memory"))],
            ["Commands per second", rate(total(nodes, "commands_per_s"))], ["Replicas behind", bytes(lag), "The most bytes that a replica lacks"],
        ], "Of the cluster"));
        for (const chart of charts) chart.draw();
    });
}
