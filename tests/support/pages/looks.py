"""What must hold of every view of the console, as JavaScript that returns what is wrong; and going to a view."""

from __future__ import annotations

from .browser import Page

__all__ = ["CUT_FIGURES", "LOW_CONTRAST", "OVERLAPS", "ROWS", "UNNAMED", "show"]

ROWS = "document.querySelectorAll('.table .body .row:not([hidden])').length"
"""How many rows of tables are in the document."""

OVERLAPS = """(() => {
    const shown = (each) => {
        const box = each.getBoundingClientRect(), style = getComputedStyle(each);
        return box.width > 0 && box.height > 0 && style.visibility !== "hidden";
    };
    // What of an element can be seen: cut by what it scrolls or ends in.
    const seen = (each) => {
        let {left, top, right, bottom} = each.getBoundingClientRect();
        for (let up = each.parentElement; up !== null; up = up.parentElement) {
            if (getComputedStyle(up).overflowX === "visible") continue;
            const box = up.getBoundingClientRect();
            [left, top, right, bottom] = [Math.max(left, box.left), Math.max(top, box.top), Math.min(right, box.right), Math.min(bottom, box.bottom)];
        }
        return {left, top, right, bottom};
    };
    const parts = [...document.querySelectorAll("h1, h2, dt, dd, button, input, select, nav a, label, figcaption, .key span, [role=gridcell], [role=columnheader], p, .user")]
        .filter((each) => shown(each)).map((each) => [each, seen(each)]).filter(([, box]) => box.right - box.left > 1 && box.bottom - box.top > 1);
    const found = [];
    for (let at = 0; at < parts.length; at++) {
        const [a, p] = parts[at];
        if (p.right > innerWidth + 1) found.push(`beyond the edge: ${a.outerHTML.slice(0, 120)}`);
        for (let other = at + 1; other < parts.length; other++) {
            const [b, q] = parts[other];
            if (a.contains(b) || b.contains(a)) continue;
            const width = Math.min(p.right, q.right) - Math.max(p.left, q.left);
            const height = Math.min(p.bottom, q.bottom) - Math.max(p.top, q.top);
            if (width > 1.5 && height > 1.5) found.push(`${a.outerHTML.slice(0, 120)} and ${b.outerHTML.slice(0, 120)}`);
        }
    }
    if (document.documentElement.scrollWidth > innerWidth) found.push(`the page is ${document.documentElement.scrollWidth} px wide`);
    return found.slice(0, 5);
})()"""

UNNAMED = """(() => [...document.querySelectorAll("button, input, select, a[href], [role=grid], [role=img], dialog")].filter((each) => {
    const label = each.getAttribute("aria-label") || each.labels?.[0]?.innerText || each.innerText
        || document.getElementById(each.getAttribute("aria-labelledby") ?? "")?.innerText || each.title;
    return !String(label ?? "").trim();
}).map((each) => each.outerHTML.slice(0, 150)))()"""

CUT_FIGURES = """[...document.querySelectorAll("[role=gridcell].figure, .below .figure")].filter((each) => each.scrollWidth > each.clientWidth + 1)
    .map((each) => each.innerText)"""

LOW_CONTRAST = """(() => {
    const rgb = (text) => text.match(/[\\d.]+/g).map(Number);
    const light = ([r, g, b]) => [r, g, b].map((each) => { const x = each / 255; return x <= .03928 ? x / 12.92 : ((x + .055) / 1.055) ** 2.4; })
        .reduce((sum, each, at) => sum + each * [.2126, .7152, .0722][at], 0);
    const back = (each) => { for (let up = each; up; up = up.parentElement) { const c = rgb(getComputedStyle(up).backgroundColor); if ((c[3] ?? 1) > 0) return c; } return [255, 255, 255]; };
    return [...document.querySelectorAll("h1, h2, dt, dd, a, p, button:not(:disabled), [role=gridcell], .key span")].filter((each) => each.innerText?.trim() && each.getBoundingClientRect().width > 1)
        .map((each) => { const a = light(rgb(getComputedStyle(each).color)), b = light(back(each)); return [(Math.max(a, b) + .05) / (Math.min(a, b) + .05), each.outerHTML.slice(0, 100)]; })
        .filter(([contrast]) => contrast < 4.5).map(([contrast, html]) => `${contrast.toFixed(1)} ${html}`).slice(0, 5);
})()"""


def show(page: Page, view: str) -> None:
    """Go to a view, and wait until it shows what it is to show."""
    page.go(f"#/{view}")
    page.wait(f"document.querySelector('main[data-view={view.partition('?')[0]}][aria-busy=false]')")
