// Figures over time, of the last hour and as long as the page is open, and their charts.

import {bytes, h} from "./dom.js";

const KEPT = 900;
const COLOURS = ["--line-1", "--line-2", "--line-3", "--line-4", "--line-5", "--line-6"];
const BINARY = Array.from({length: 45}, (_, power) => 2 ** power);     // steps of an axis with bytes
const histories = new Map();
const dark = matchMedia("(prefers-color-scheme: dark)");

// What was said of a thing so far: times in seconds, and values by name.
export class History {
    static of(name) {
        if (!histories.has(name)) histories.set(name, new History());
        return histories.get(name);
    }

    constructor() {
        this.times = [];
        this.values = new Map();
        this.totals = new Map();
    }

    add(time, values) {
        if (time <= (this.times.at(-1) ?? 0)) return;
        this.times.push(time);
        for (const name of Object.keys(values)) {
            if (!this.values.has(name)) this.values.set(name, new Array(this.times.length - 1).fill(null));
        }
        for (const [name, line] of this.values) line.push(values[name] ?? null);
        if (this.times.length > KEPT) {
            this.times.shift();
            for (const line of this.values.values()) line.shift();
        }
    }

    // Begin with what the server has kept: times, and a function that gives the values at each.
    begin(times, valuesAt) {
        if (this.times.length) return;
        times.forEach((time, at) => this.add(time, valuesAt(at, time)));
    }

    // How fast a total grows, in units a second; null at first.
    rate(name, total, time) {
        const [before, since, last] = this.totals.get(name) ?? [null, 0, null];
        if (total === null || total === undefined) return null;
        if (since === time) return last;
        const found = before === null || total < before ? null : (total - before) / (time - since);
        this.totals.set(name, [total, time, found]);
        return found;
    }
}

export class Chart {
    // names: of the history's values, or a function that gives them; label: what a line is called, if there are several
    constructor(title, history, names, format, label = null) {
        Object.assign(this, {title, history, names, format, label});
        this.box = h("div", {class: "plot"});
        this.key = h("p", {class: "key"});
        this.element = h("figure", {class: "chart"}, h("figcaption", {}, title), this.box, this.key);
        this.watcher = new ResizeObserver(() => this.resize());
        this.watcher.observe(this.box);
        this.onScheme = () => this.draw(true);
        dark.addEventListener("change", this.onScheme);
    }

    close() {
        this.watcher.disconnect();
        dark.removeEventListener("change", this.onScheme);
        this.plot?.destroy();
    }

    resize() {
        if (this.plot && this.box.clientWidth) this.plot.setSize({width: this.box.clientWidth, height: 150});
    }

    draw(isNew = false) {
        const names = typeof this.names === "function" ? this.names() : this.names;
        const data = [this.history.times, ...names.map((name) => this.history.values.get(name) ?? this.history.times.map(() => null))];
        this.writeKey(names, data);
        if (this.history.times.length < 2 || !this.box.clientWidth || typeof uPlot === "undefined") return;
        if (isNew || !this.plot || String(names) !== this.drawn) {
            this.plot?.destroy();
            this.plot = new uPlot(this.options(names), data, this.box);
            this.drawn = String(names);
        } else this.plot.setData(data);
    }

    writeKey(names, data) {
        const last = names.map((name, at) => this.format(data[at + 1].at(-1)));
        this.key.replaceChildren(...names.map((name, at) => h("span", {class: `line-${at % COLOURS.length + 1}`},
            names.length > 1 || this.label ? `${this.label?.(name) ?? name} ${last[at]}` : last[at])));
        this.box.setAttribute("role", "img");
        this.box.setAttribute("aria-label", `${this.title}: ${names.map((name, at) => `${name} ${last[at]}`).join(", ")}`);
    }

    options(names) {
        const style = getComputedStyle(document.documentElement);
        const colour = (name) => style.getPropertyValue(name).trim();
        const axis = {stroke: colour("--faint"), grid: {stroke: colour("--edge"), width: 1}, ticks: {show: false},
            font: "11px system-ui, sans-serif"};
        return {
            width: this.box.clientWidth, height: 150, legend: {show: false}, padding: [8, 26, 0, 0],
            cursor: {drag: {x: false, y: false}, points: {size: 5}},
            scales: {y: {range: (_, least, most) => [Math.min(0, least ?? 0), most > 0 ? most * 1.1 : 1]}},
            axes: [{...axis, space: 70, size: 26, values: [[60, "{HH}:{mm}", null, null, null, null, null, null, 1], [1, "{HH}:{mm}:{ss}", null, null, null, null, null, null, 1]]},
                {...axis, size: 62, ...(this.format === bytes ? {incrs: BINARY} : {}), values: (_, ticks) => ticks.map((each) => this.format(each))}],
            series: [{}, ...names.map((name, at) => ({label: name, stroke: colour(COLOURS[at % COLOURS.length]), width: 1.5,
                points: {show: false}, spanGaps: true}))],
        };
    }
}
