// The reference of the HTTP API: /openapi.json as a page to read, to search and to link to.

import { h, replace } from "../dom.js";
import { icon } from "../icons.js";
import { themeButton } from "../theme_button.js";
import { operations, showOperation } from "./operation.js";

async function start() {
  const main = document.getElementById("main");
  const api = await (await fetch("/openapi.json")).json();
  const tags = new Map();
  for (const each of operations(api)) {
    const tag = each.tags[0];
    if (!tags.has(tag)) tags.set(tag, []);
    tags.get(tag).push({ ...each, words: wordsOf(each), element: showOperation(api, each) });
  }
  const sections = [...tags].map(([tag, found]) => {
    const links = found.map((each) => h("li", {}, h("a", { href: `#${each.slug}`, title: `${each.method.toUpperCase()} ${each.path}` },
      h("span", { class: `method ${each.method}` }, each.method.toUpperCase()), h("span", {}, each.summary))));
    return {
      found, links,
      title: h("h2", {}, tag), list: h("ul", {}, links),
      element: h("section", { class: "group", "aria-label": tag }, h("h2", {}, tag), found.map((each) => each.element)),
    };
  });
  const count = h("span", { class: "muted", "aria-live": "polite" });
  const none = h("p", { class: "empty", hidden: true }, "No operation has these words.");
  replace(document.getElementById("nav"), sections.map(({ title, list }) => [title, list]));
  replace(main,
    h("div", { class: "head" }, h("div", { class: "titles" }, h("h1", {}, "The HTTP API"),
      h("p", {}, `Headrace ${api.info.version}. ${api.info.summary} For tools there is `, h("a", { class: "link", href: "/openapi.json" }, "openapi.json"),
        ". Errors are ", h("code", {}, "application/problem+json"), " with a ", h("code", {}, "code"), " that never changes."))),
    sections.map((each) => each.element), none);

  const search = h("input", { type: "search", placeholder: "Search paths, words and fields", "aria-label": "Search the reference" });
  function filter() {
    const wanted = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const { found, links, title, list, element } of sections) {
      let here = 0;
      found.forEach((each, index) => {
        const fits = wanted.every((word) => each.words.includes(word));
        each.element.hidden = links[index].hidden = !fits;
        here += fits;
      });
      element.hidden = title.hidden = list.hidden = here === 0;
      shown += here;
    }
    none.hidden = shown > 0;
    replace(count, `${shown} operations`);
  }
  search.addEventListener("input", filter);
  replace(document.getElementById("top"),
    h("div", { class: "finder" }, icon("search"), search, h("kbd", { "aria-hidden": "true" }, "/")), count,
    h("span", { class: "push" }), document.body.dataset.dashboard === "on" && h("a", { class: "link", href: "/dashboard" }, "Dashboard"), themeButton());
  filter();

  document.addEventListener("keydown", (event) => {
    if (event.key !== "/" || event.target.closest("input, textarea, select")) return;
    event.preventDefault();
    search.focus();
  });
  addEventListener("hashchange", show);
  show();

  // A link leads there, also when a search hides it.
  function show() {
    document.querySelector(".is-here")?.classList.remove("is-here");
    const found = document.getElementById(location.hash.slice(1));
    if (!found?.classList.contains("operation")) return;
    if (found.hidden) {
      search.value = "";
      filter();
    }
    found.classList.add("is-here");
    found.scrollIntoView();
  }
}

function wordsOf(each) {
  const names = (each.parameters ?? []).map((parameter) => parameter.name);
  const body = JSON.stringify(each.requestBody ?? "");
  return [each.method, each.path, each.summary, each.description ?? "", each.tags[0], ...names, body].join(" ").toLowerCase();
}

start();
