// A table of any length: only the rows that are seen are in the document. Rows are opened with Enter, the mouse or a tap; columns are
// sorted by their heads; those of least weight stand in a second line where there is no room for them.
//
//   columns  {id, title, value: (row) => what it is sorted by, cell: (row) => text or element, width: px, weight, isText, isSentence, grows}
//   id       (row) => what a row is known by, when rows are replaced

import {h} from "./dom.js";

const ROW = 34;
const TALL_ROW = 54;    // with a second line
const MARGIN = 6;       // rows beyond what is seen, for fast scrolling
let tables = 0;

export class Table {
    constructor({label, columns, id, open, sort, descending = true, most = 14, empty = "Nothing here.", selects = false}) {
        Object.assign(this, {label, columns, id, open, sort, descending, most, emptyText: empty, selects});
        this.prefix = `table-${++tables}`;
        this.rows = [];
        this.isKnown = false;       // whether rows have come: until then nothing is said to be empty
        this.sorted = [];
        this.active = null;         // the ID of the row that keys act on
        this.chosen = new Set();    // IDs
        this.pool = [];
        this.head = h("div", {class: "row head", role: "row", "aria-rowindex": "1"});
        this.space = h("div", {class: "space", role: "presentation"});
        this.body = h("div", {class: "body", role: "rowgroup", onscroll: () => this.later()}, this.space);
        this.none = h("p", {class: "none"}, empty);
        this.element = h("div", {class: "table", role: "grid", "aria-label": label, tabindex: "0",
            "aria-multiselectable": selects ? "true" : null, onkeydown: (event) => this.key(event)},
            h("div", {role: "rowgroup"}, this.head), this.body, this.none);
        this.body.addEventListener("click", (event) => this.click(event));
        this.seen = columns;
        this.below = [];
        this.height = ROW;
        this.watcher = new ResizeObserver(() => this.fit());
        this.watcher.observe(this.element);
        this.fit();
    }

    close() { this.watcher.disconnect(); }

    // --- Columns

    fit() {
        const width = this.element.clientWidth || 900;
        if (width === this.width) return;
        this.width = width;
        const byWeight = [...this.columns].sort((a, b) => (b.weight ?? 0) - (a.weight ?? 0));
        const kept = new Set();
        let left = width - (this.selects ? 40 : 0) - 16;
        for (const column of byWeight) {
            if (column.width > left && kept.size) break;
            kept.add(column);
            left -= column.width;
        }
        this.seen = this.columns.filter((column) => kept.has(column));
        this.below = byWeight.filter((column) => !kept.has(column) && column.title);
        this.height = this.below.length ? TALL_ROW : ROW;
        this.element.classList.toggle("tall", this.below.length > 0);
        const grows = this.seen.some((column) => column.grows);
        const sizes = this.seen.map((column) => column.grows || !grows ? `minmax(${column.width}px, ${column.grows ?? 1}fr)` : `${column.width}px`);
        this.element.style.setProperty("--columns", (this.selects ? "40px " : "") + sizes.join(" "));
        this.element.setAttribute("aria-colcount", String(this.columns.length));
        this.writeHead();
        for (const row of this.pool) row.remove();
        this.pool = [];
        this.draw();
    }

    writeHead() {
        const cells = this.seen.map((column) => {
            const isSorted = column.id === this.sort;
            const way = isSorted ? (this.descending ? "descending" : "ascending") : "none";
            const sign = isSorted ? (this.descending ? " ↓" : " ↑") : "";
            return h("div", {role: "columnheader", class: column.isText ? "text" : "figure", "aria-sort": column.value ? way : null,
                "aria-colindex": String(this.columns.indexOf(column) + 1)},
                column.value ? h("button", {type: "button", title: column.hint, onclick: () => this.sortBy(column)}, column.title + sign)
                    : h("span", {title: column.hint}, column.title));
        });
        if (this.selects) {
            this.all = h("input", {type: "checkbox", "aria-label": "Choose all", onchange: () => this.chooseAll(this.all.checked)});
            cells.unshift(h("div", {role: "columnheader", class: "choice"}, this.all));
        }
        const had = this.head.contains(document.activeElement) ? [...this.head.querySelectorAll("button, input")].indexOf(document.activeElement) : -1;
        this.head.replaceChildren(...cells);
        if (had >= 0) this.head.querySelectorAll("button, input")[had]?.focus();
    }

    sortBy(column) {
        this.descending = column.id === this.sort ? !this.descending : !column.isText;
        this.sort = column.id;
        this.writeHead();
        this.order();
        this.draw();
    }

    // --- Rows

    set(rows) {
        this.rows = rows;
        this.isKnown = true;
        this.order();
        this.draw();
    }

    order() {
        const column = this.columns.find((each) => each.id === this.sort);
        this.sorted = [...this.rows];
        if (column) {
            const way = this.descending ? -1 : 1;
            const keyed = this.sorted.map((row) => [column.value(row), row]);
            keyed.sort(([a], [b]) => a === b ? 0 : a === null || a === undefined ? 1 : b === null || b === undefined ? -1
                : way * (a < b ? -1 : 1));
            this.sorted = keyed.map(([, row]) => row);
        }
        const ids = new Set(this.rows.map(this.id));
        for (const each of this.chosen) if (!ids.has(each)) this.chosen.delete(each);
        this.chosenChanged?.();
    }

    later() {
        if (this.waiting) return;
        this.waiting = true;
        requestAnimationFrame(() => { this.waiting = false; this.draw(); });
    }

    draw() {
        const total = this.sorted.length;
        this.element.setAttribute("aria-rowcount", String(total + 1));
        this.none.hidden = total > 0 || !this.isKnown;
        this.none.textContent = this.emptyText;
        this.element.classList.toggle("scrolls", total > this.most);
        this.space.style.height = `${total * this.height}px`;
        this.body.style.height = `${Math.min(total, this.most) * this.height}px`;
        const first = Math.max(0, Math.floor(this.body.scrollTop / this.height) - MARGIN);
        const last = Math.min(total, first + Math.min(total, this.most) + 2 * MARGIN + 1);
        while (this.pool.length < last - first) this.pool.push(this.newRow());
        this.pool.forEach((element, at) => {
            const index = first + at;
            element.hidden = index >= last;
            if (index < last) this.write(element, index);
        });
        if (this.all) {
            this.all.checked = total > 0 && this.chosen.size === total;
            this.all.indeterminate = this.chosen.size > 0 && this.chosen.size < total;
        }
        const active = this.activeIndex();
        if (active >= first && active < last) this.element.setAttribute("aria-activedescendant", `${this.prefix}-${active}`);
        else this.element.removeAttribute("aria-activedescendant");
    }

    newRow() {
        const row = h("div", {class: "row", role: "row"}, ...(this.selects
            ? [h("div", {role: "gridcell", class: "choice"}, h("input", {type: "checkbox", tabIndex: -1}))] : []),
        ...this.seen.map((column) => h("div", {role: "gridcell", class: column.isText ? "text" : "figure",
            "aria-colindex": String(this.columns.indexOf(column) + 1)})),
        ...(this.below.length ? [h("div", {role: "gridcell", class: "below"})] : []));
        this.space.append(row);
        return row;
    }

    write(element, index) {
        const row = this.sorted[index];
        const id = this.id(row);
        element.style.transform = `translateY(${index * this.height}px)`;
        element.id = `${this.prefix}-${index}`;
        element.dataset.index = index;
        element.setAttribute("aria-rowindex", String(index + 2));
        element.classList.toggle("active", id === this.active);
        element.classList.toggle("odd", index % 2 === 1);
        if (this.selects) {
            const box = element.firstChild.firstChild;
            box.checked = this.chosen.has(id);
            box.setAttribute("aria-label", `Choose ${id}`);
            element.setAttribute("aria-selected", String(box.checked));
        }
        this.seen.forEach((column, at) => {
            const cell = element.children[at + (this.selects ? 1 : 0)];
            const content = column.cell(row);
            if (typeof content === "object") {
                if (cell.firstElementChild?.isEqualNode(content)) return;      // which may have the focus
                cell.replaceChildren(content);
                if (column.isText) cell.title = content.textContent;
            } else if (cell.textContent !== content || cell.firstElementChild) {
                cell.textContent = content;
                if (column.isText) cell.title = content;
            }
        });
        if (this.below.length) {
            const said = this.below.map((column) => [column, column.cell(row)])
                .map(([column, content]) => [column, typeof content === "object" ? content.textContent : content])
                .filter(([, content]) => content && content !== "–")
                .map(([column, content]) => [column, column.isSentence ? content : `${column.title} ${content}`]);
            const whole = said.map(([, content]) => content).join(" · ");
            if (element.lastChild.title === whole) return;
            element.lastChild.title = whole;
            // Those that do not fit go to a line that is not seen, so that no figure is cut.
            element.lastChild.replaceChildren(...said.map(([column, content]) => h("span", {class: column.isText ? "text" : "figure"}, content)));
        }
    }

    // --- Keys and the mouse

    activeIndex() {
        return this.active === null ? -1 : this.sorted.findIndex((row) => this.id(row) === this.active);
    }

    key(event) {
        if (event.target !== this.element || !this.sorted.length || event.altKey || event.ctrlKey || event.metaKey) return;
        const page = Math.max(1, Math.floor(this.body.clientHeight / this.height) - 1);
        const steps = {ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity};
        const at = this.activeIndex();
        if (event.key in steps) {
            const to = Math.max(0, Math.min(this.sorted.length - 1, at + steps[event.key]));
            this.active = this.id(this.sorted[to]);
            const top = to * this.height, bottom = top + this.height - this.body.clientHeight;
            if (this.body.scrollTop > top) this.body.scrollTop = top;
            else if (this.body.scrollTop < bottom) this.body.scrollTop = bottom;
            this.draw();
        } else if (event.key === "Enter" && at >= 0 && this.open) this.open(this.sorted[at]);
        else if (event.key === " " && at >= 0 && this.selects) this.choose(this.sorted[at]);
        else return;
        event.preventDefault();
    }

    click(event) {
        const element = event.target.closest(".row");
        if (element === null || event.target.closest("a, button")) return;
        const row = this.sorted[Number(element.dataset.index)];
        this.active = this.id(row);
        if (this.selects && event.target.closest(".choice")) this.choose(row);
        else if (this.open && !String(getSelection())) this.open(row);
        this.draw();
    }

    choose(row) {
        const id = this.id(row);
        if (!this.chosen.delete(id)) this.chosen.add(id);
        this.chosenChanged?.();
        this.draw();
    }

    chooseAll(isOn) {
        this.chosen = new Set(isOn ? this.rows.map(this.id) : []);
        this.chosenChanged?.();
        this.draw();
    }
}
