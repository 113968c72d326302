// Keys that are no streams.

import {Refused} from "./api.js";
import {bytes, copyButton, duration, h, notify} from "./dom.js";
import {valueText} from "./entries.js";
import {encode, label, text} from "./names.js";
import {nameFilter} from "./streams.js";
import {Table} from "./table.js";

export function keys(place, main) {
    const {db} = place;
    const table = place.keep(new Table({
        label: "Other keys", id: (row) => encode(row.key), sort: "key", descending: false, most: Math.max(6, Math.floor((innerHeight - 230) / 34)),
        empty: "No keys of other types exist.", open: (row) => showString(row),
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

    async function showString(row) {
        if (row.type !== "string") return;
        try {
            const {value, size} = await place.get(`string?db=${db}&key=${encode(row.key)}`);
            const dialog = h("dialog", {class: "entry", "aria-labelledby": "key-title"},
                h("form", {method: "dialog", class: "title"}, h("h2", {id: "key-title", class: "mono"}, label(row.key)),
                    h("button", {type: "submit", "aria-label": "Close"}, "Close")),
                h("p", {class: "hint"}, bytes(size)),
                h("pre", {tabindex: "0", "aria-label": "Value", class: "value"}, valueText(value)),
                value.size === undefined ? copyButton("the value", () => text(value, {lines: true})) : h("p", {class: "hint"}, "Only the first part is shown."));
            dialog.addEventListener("close", () => dialog.remove());
            document.body.append(dialog);
            dialog.showModal();
        } catch (error) {
            if (error instanceof Refused) notify(error.message, true);
            else if (error.name !== "AbortError") throw error;
        }
    }

    place.every(30000, async () => {
        const found = await place.get(`keys?db=${db}`);
        rows = found.keys;
        more.hidden = found.is_whole;
        draw();
    });
}
