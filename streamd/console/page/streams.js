// All streams of a database.

import {History} from "./chart.js";
import {bytes, clock, count, duration, facts, h, rate, short, timeOf} from "./dom.js";
import {encode, label} from "./names.js";
import {Table} from "./table.js";

export const streamPath = (db, key) => `#/stream?db=${db}&key=${encode(key)}`;

// A part of the name, or a pattern with * and ? for the whole of it.
export function nameFilter(written) {
    const part = written.toLowerCase();
    if (!/[*?]/.test(part)) return (name) => name.toLowerCase().includes(part);
    const pattern = new RegExp(`^${part.replace(/[.+^${}()|[\]\\]/g, "\\$&").replace(/\*/g, ".*").replace(/\?/g, ".")}$`, "su");
    return (name) => pattern.test(name.toLowerCase());
}

export function streams(place, main) {
    const history = History.of(`streams ${place.db}`);
    const table = place.keep(new Table({
        label: "Streams", id: (row) => row.id, sort: "lag", most: Math.max(6, Math.floor((innerHeight - 330) / 34)),
        empty: "There are no streams here.",
        open: (row) => { location.hash = streamPath(place.db, row.key); },
        columns: [
            {id: "key", title: "Stream", value: (row) => row.name, isText: true, width: 150, weight: 10, grows: 3,
                cell: (row) => h("a", {href: streamPath(place.db, row.key), tabindex: "-1", class: "name"}, row.name)},
            {id: "length", title: "Entries", value: (row) => row.length, cell: (row) => count(row.length), width: 100, weight: 7},
            {id: "in", title: "In/s", hint: "Entries added per second", value: (row) => row.rate, cell: (row) => rate(row.rate), width: 72, weight: 8},
            {id: "lag", title: "Lag", hint: "Entries that the slowest group has not read", value: (row) => row.groups ? row.lag : null,
                cell: (row) => row.groups ? count(row.lag) : "–", width: 90, weight: 9},
            {id: "lag_s", title: "Waits", hint: "How long the first of them has been waiting", value: (row) => row.groups ? row.lag_s : null,
                cell: (row) => row.groups ? duration(row.lag_s) : "–", width: 84, weight: 6},
            {id: "pending", title: "Pending", hint: "Delivered and not acknowledged", value: (row) => row.pending, cell: (row) => count(row.pending), width: 90, weight: 5},
            {id: "oldest", title: "Oldest", hint: "Age of the oldest pending entry", value: (row) => row.pending ? row.oldest_s : null,
                cell: (row) => row.pending ? duration(row.oldest_s) : "–", width: 84, weight: 3},
            {id: "groups", title: "Groups", value: (row) => row.groups, cell: (row) => count(row.groups), width: 76, weight: 2},
            {id: "bytes", title: "Memory", value: (row) => row.bytes, cell: (row) => bytes(row.bytes), width: 92, weight: 4},
            {id: "last", title: "Last entry", value: (row) => timeOf(row.last)?.getTime() ?? null,
                cell: (row) => row.last ? clock(timeOf(row.last)) : "–", width: 160, weight: 1},
        ],
    }));
    const filter = h("input", {type: "search", placeholder: "Name, or orders*", "aria-label": "Show streams by name", oninput: () => draw()});
    const databases = h("select", {"aria-label": "Database", onchange: () => { location.hash = `#/streams?db=${databases.value}`; }},
        h("option", {value: place.db}, `db ${place.db}`));
    const totals = h("div", {});
    const more = h("p", {class: "hint", hidden: true});
    let rows = [];

    main.append(h("div", {class: "title"}, h("h1", {}, "Streams"), h("div", {class: "tools"}, h("a", {href: `#/keys?db=${place.db}`}, "Other keys"), databases, filter)), totals, table.element, more);

    function draw() {
        table.emptyText = rows.length ? "No stream matches." : "There are no streams here.";
        const isWanted = nameFilter(filter.value);
        table.set(rows.filter((row) => isWanted(row.name)));
    }

    place.every(5000, async () => {
        const found = await place.get(`streams?db=${place.db}`);
        const time = found.now_ms / 1000;
        rows = found.streams.map((row) => {
            const name = label(row.key);
            const id = encode(row.key);
            return {...row, name, id, rate: history.rate(id, row.added, time)};
        });
        const sum = (of) => rows.reduce((total, row) => total + (of(row) ?? 0), 0);
        totals.replaceChildren(facts([
            ["Streams", count(rows.length)], ["Entries", short(sum((row) => row.length))],
            ["In/s", rows.some((row) => row.rate !== null) ? rate(sum((row) => row.rate)) : "–"],
            ["Behind", count(rows.filter((row) => row.lag > 0).length), "Streams with a group that has not read everything"],
            ["Pending", short(sum((row) => row.pending))], ["Memory", bytes(sum((row) => row.bytes))],
        ], "Of all streams"));
        more.hidden = found.is_whole;
        more.textContent = "More streams exist: the setting http-max-streams limits the list.";
        draw();
    });
    place.every(30000, async () => {
        const {keys} = await place.get("overview").catch((error) => {
            if (error.status === 403) return {keys: {}};        // who may not ask finds the database in the address
            throw error;
        });
        const found = [...new Set([...Object.keys(keys), place.db, "0"])].sort((a, b) => a - b);
        databases.replaceChildren(...found.map((db) => h("option", {value: db, selected: db === place.db}, `db ${db}`)));
    });
}
