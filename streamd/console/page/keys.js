// Keys that are no streams.

import {Refused, post, session} from "./api.js";
import {amount, ask, bytes, copyButton, duration, h, notify} from "./dom.js";
import {valueText} from "./entries.js";
import {encode, label, text} from "./names.js";
import {nameFilter} from "./streams.js";
import {Table} from "./table.js";

// Of a table of elements: what stands at a place of a row.
const column = (at, title, width, more = {}) => ({id: `${at}`, title, isText: true, width, weight: 9 - at, cell: ({cells}) => h("span", {class: "mono"}, label(cells[at])), ...more});
const number = (at, title) => column(at, title, 110, {isText: false, cell: ({cells}) => `${cells[at]}`});
const COLUMNS = {
    list: [number(0, "Index"), column(1, "Element", 200, {grows: 1})],
    set: [column(0, "Member", 200, {grows: 1})],
    zset: [column(0, "Member", 200, {grows: 1}), number(1, "Score")],
    hash: [column(0, "Field", 150, {grows: 1}), column(1, "Value", 200, {grows: 2}),
        column(2, "Expires in", 100, {isText: false, cell: ({cells}) => cells[2] === null ? "never" : duration(cells[2] / 1000)})],
};

export function keys(place, main) {
    const {db} = place;
    const table = place.keep(new Table({
        label: "Other keys", id: (row) => encode(row.key), sort: "key", descending: false, most: Math.max(6, Math.floor((innerHeight - 230) / 34)),
        empty: "No keys of other types exist.", open: (row) => show(row),
        columns: [
            {id: "key", title: "Key", isText: true, value: (row) => text(row.key), cell: (row) => label(row.key), width: 150, weight: 10, grows: 3},
            {id: "type", title: "Type", isText: true, value: (row) => row.type, cell: (row) => row.type, width: 90, weight: 7},
            {id: "bytes", title: "Memory", value: (row) => row.bytes, cell: (row) => bytes(row.bytes), width: 92, weight: 8},
            {id: "ttl", title: "Expires in", value: (row) => row.ttl_ms, cell: (row) => row.ttl_ms === null ? "never" : duration(row.ttl_ms / 1000), width: 100, weight: 9},
        ],
    }));
    const filter = h("input", {type: "search", placeholder: "Name, or orders*", "aria-label": "Show keys by name", oninput: () => draw()});
    const more = h("p", {class: "hint", hidden: true}, "Not all keys are listed.");
    let rows = [];
    main.append(h("nav", {class: "path", "aria-label": "Where this is"}, h("a", {href: `#/streams?db=${db}`}, "Streams"), " › ", h("span", {"aria-current": "page"}, "Other keys")),
        h("div", {class: "title"}, h("h1", {}, "Other keys"), h("div", {class: "tools"}, filter)), table.element, more);

    function draw() {
        const isWanted = nameFilter(filter.value);
        table.set(rows.filter((row) => isWanted(label(row.key))));
    }

    place.every(30000, load);

    async function load() {
        const found = await place.get(`keys?db=${db}`);
        rows = found.keys;
        more.hidden = found.is_whole;
        draw();
    }

    // What a key holds, in a dialog: a string, or pages of elements.
    async function show(row) {
        let start = 0, table = null;
        const size = h("span", {class: "hint", role: "status"});
        const value = h("div");
        const next = h("button", {type: "button", hidden: true, onclick: () => turn()}, "Next page");
        const dialog = h("dialog", {class: "entry", "aria-labelledby": "key-title"},
            h("form", {method: "dialog", class: "title"}, h("h2", {id: "key-title", class: "mono"}, label(row.key)),
                h("button", {type: "submit", "aria-label": "Close", autofocus: true}, "Close")),
            h("div", {class: "tools"}, size, next, session.writes ? h("button", {type: "button", class: "danger", onclick: () => remove()}, "Delete") : null), value);

        async function turn() {
            const page = await refusable(place.get(`contents?db=${db}&key=${encode(row.key)}&start=${start}`));
            if (page === null) return false;
            size.textContent = page.type === "string" ? bytes(page.size) : `${page.type}, ${amount(page.size, "element")}`;
            if (page.type === "string") {
                value.replaceChildren(h("pre", {tabindex: "0", "aria-label": "Value", class: "value"}, valueText(page.value)), page.value.size === undefined
                    ? copyButton("the value", () => text(page.value, {lines: true})) : h("p", {class: "hint"}, "Only the first part is shown."));
            } else {
                table ??= place.keep(new Table({label: "Elements", id: (each) => each.at, empty: "Nothing is left.", columns: COLUMNS[page.type]}));
                table.set(page.rows.map((cells, at) => ({at, cells})));
                table.body.scrollTop = 0;
                value.replaceChildren(table.element);
            }
            next.hidden = page.next === null;
            start = page.next;
            return true;
        }

        async function remove() {
            if (!await ask(`Delete ${label(row.key)}?`, [h("p", {}, "The key and all that it holds are removed.")], "Delete", {isDanger: true})) return;
            if (await refusable(post("delete-key", {db: Number(db), key: row.key})) === null) return;
            dialog.close();
            notify(`${label(row.key)} was deleted.`);
            await refusable(load());
        }

        dialog.addEventListener("close", () => dialog.remove());
        if (!await turn()) return;
        document.body.append(dialog);
        dialog.showModal();
    }
}

// What a promise gives, or null when the server refuses it, with a notice, or when the view has been left.
async function refusable(promise) {
    try {
        return await promise ?? true;
    } catch (error) {
        if (error instanceof Refused) notify(error.message, true);
        else if (error.name !== "AbortError") throw error;
        return null;
    }
}
