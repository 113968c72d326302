// The page: who is logged in, the bar at the top, and which view the address names.

import {Refused, get, logIn, logOut, resume, session} from "./api.js";
import {cluster} from "./cluster.js";
import {clock, closeDialogs, h, notify} from "./dom.js";
import {group} from "./group.js";
import {keys} from "./keys.js";
import {clients, memory, overview, settings, slowlog} from "./server.js";
import {stream} from "./stream.js";
import {streams} from "./streams.js";

const VIEWS = {overview, cluster, streams, stream, group, keys, clients, slowlog, settings, memory};
const TABS = [["overview", "Overview"], ["streams", "Streams"], ["clients", "Clients"], ["slowlog", "Slow log"],
    ["memory", "Memory"], ["settings", "Settings"]];
const CLUSTER_TAB = ["cluster", "Cluster"];
const BELOW = {stream: "streams", group: "streams", keys: "streams"};
const SLOWEST = 20;     // a look that takes long is taken seldom: in at most one part in so many of the time

const main = document.getElementById("main");
const bar = document.getElementById("bar");
let shown = null;
let starting = null;    // the login under way, which all that need one wait for

// --- A view: what it needs while it is seen, and what ends with it

class Place {
    constructor(name, parameters) {
        Object.assign(this, {name, parameters, ending: []});
        this.gone = new AbortController();
        this.failures = new Map();      // what does not work now, by what was tried
    }

    get db() { return this.parameters.get("db") ?? "0"; }

    get(path) { return get(path, this.gone.signal); }

    // Look again and again while the page is seen.
    every(ms, look) {
        let timer = 0, isLooking = false;
        const round = async () => {
            if (isLooking) return;
            isLooking = true;
            const began = performance.now();
            if (!document.hidden) await this.attempt(look);
            isLooking = false;
            if (!this.gone.signal.aborted) timer = setTimeout(round, Math.max(ms, (performance.now() - began) * SLOWEST));
        };
        const wake = () => { if (!document.hidden) { clearTimeout(timer); round(); } };
        document.addEventListener("visibilitychange", wake);
        this.ending.push(() => { clearTimeout(timer); document.removeEventListener("visibilitychange", wake); });
        round();
    }

    // Look, and say so when it does not work, until it does again.
    async attempt(look) {
        try {
            await look();
            this.failures.delete(look);
            this.seen = new Date();
            main.setAttribute("aria-busy", "false");
        } catch (error) {
            if (this.gone.signal.aborted) return;
            if (error instanceof Refused && error.status === 401) {
                await start();
                return;
            }
            if (!(error instanceof Refused)) console.error(error);
            this.failures.set(look, error);
        }
        this.writeFailures();
    }

    writeFailures() {
        const failures = [...this.failures.values()];
        const isGone = failures.some((each) => each.status === 0);
        main.classList.toggle("stale", isGone);
        const message = [...new Set(failures.map((each) => each.message)), isGone && this.seen ? `Figures are from ${clock(this.seen)}.` : ""]
            .filter(Boolean).join(" · ");
        const note = document.getElementById("failure");
        if (!message) note?.remove();
        else if (note) note.textContent = message;
        else main.prepend(h("p", {id: "failure", class: "failure", role: "alert"}, message));
    }

    keep(...parts) {
        this.ending.push(...parts.map((part) => () => part.close()));
        return parts[0];
    }

    close() {
        this.gone.abort();
        for (const end of this.ending) end();
    }
}

// --- The address

function parse() {
    const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
    const parameters = new Map(query.split("&").filter(Boolean).map((part) => part.split(/=(.*)/s, 2)));
    return [path in VIEWS ? path : "streams", parameters];
}

function show() {
    if (session.user === null) return;
    const [name, parameters] = parse();
    shown?.close();
    closeDialogs();
    main.classList.remove("stale");
    shown = new Place(name, parameters);
    const tab = BELOW[name] ?? name;
    for (const link of bar.querySelectorAll("nav a")) {
        if (link.dataset.view === tab) link.setAttribute("aria-current", "page");
        else link.removeAttribute("aria-current");
    }
    main.replaceChildren();
    main.dataset.view = name;
    main.setAttribute("aria-busy", "true");
    VIEWS[name](shown, main);
    document.title = `${main.querySelector("h1")?.textContent ?? "streamd"} · streamd`;
    if (show.isLater) main.focus({preventScroll: true});
    show.isLater = true;
    scrollTo(0, 0);
}

addEventListener("hashchange", show);

// --- Logging in

function writeBar() {
    bar.hidden = session.user === null;
    bar.replaceChildren(
        h("a", {class: "brand", href: "#/streams"}, h("img", {src: "/icon.svg", alt: "", width: "22", height: "22"}), "streamd"),
        h("nav", {"aria-label": "Views"}, ...[TABS[0], ...(session.is_cluster ? [CLUSTER_TAB] : []), ...TABS.slice(1)].map(([name, title]) => h("a", {href: `#/${name}`, "data-view": name}, title))),
        h("span", {class: "who"}, h("span", {class: "user", title: session.writes ? "May change things, as far as the user's permissions go"
            : "The console is read-only: http-allow-writes is no"}, session.user ?? "", session.writes ? "" : " · read-only"),
        h("button", {type: "button", onclick: async () => { await logOut(); askWho(""); }}, "Log out")));
}

function askWho(message) {
    shown?.close();
    closeDialogs();
    main.classList.remove("stale");
    shown = null;
    session.user = null;
    writeBar();
    const user = h("input", {name: "user", autocomplete: "username", value: "default", required: true});
    const password = h("input", {name: "password", type: "password", autocomplete: "current-password"});
    const wrong = h("p", {class: "failure", role: "alert", hidden: !message}, message);
    const button = h("button", {type: "submit", class: "primary"}, "Log in");
    const enter = async (event) => {
        event.preventDefault();
        button.disabled = true;
        try {
            await logIn(user.value, password.value);
            begin();
        } catch (error) {
            wrong.textContent = error.message.replace(/^WRONGPASS /, "");
            wrong.hidden = false;
            button.disabled = false;
            password.select();
        }
    };
    main.replaceChildren(h("form", {class: "login", onsubmit: enter},
        h("h1", {}, h("img", {src: "/icon.svg", alt: "", width: "30", height: "30"}), "streamd"),
        h("label", {}, "User", user), h("label", {}, "Password", password), wrong, button));
    document.title = "Log in · streamd";
    password.focus();
}

function begin() {
    writeBar();
    show();
}

function start() {
    starting ??= resume().then(begin, (error) => askWho(error.status === 401 ? "" : error.message)).finally(() => { starting = null; });
    return starting;
}

addEventListener("error", (event) => notify(event.message, true));
start();
