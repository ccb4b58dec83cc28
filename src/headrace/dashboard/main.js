// The dashboard: its frame, and which view is where.

import { get, rule } from "./api.js";
import { h, replace } from "./dom.js";
import { makeFinder } from "./finder.js";
import { zone } from "./format.js";
import { icon } from "./icons.js";
import { showKeys, startKeys } from "./keys.js";
import { badge, button } from "./parts.js";
import { startRouter } from "./router.js";
import { themeButton } from "./theme_button.js";
import { delayed } from "./views/delayed.js";
import { group } from "./views/group.js";
import { groups } from "./views/groups.js";
import { letters } from "./views/letters.js";
import { node } from "./views/node.js";
import { overview } from "./views/overview.js";
import { pipelines } from "./views/pipelines.js";
import { queue } from "./views/queue.js";
import { queues } from "./views/queues.js";
import { topic } from "./views/topic.js";
import { topics } from "./views/topics.js";
import { trace } from "./views/trace.js";
import { transactions } from "./views/transactions.js";

// Those with a label are in the navigation; the last is for addresses that mean nothing.
const ROUTES = [
  { path: "/", name: "overview", label: "Overview", letter: "o", view: overview },
  { path: "/topics", name: "topics", label: "Topics", letter: "t", view: topics },
  { path: "/topics/:topic", name: "topics", view: topic },
  { path: "/groups", name: "groups", label: "Groups", letter: "g", view: groups },
  { path: "/groups/:group", name: "groups", view: group },
  { path: "/queues", name: "queues", label: "Queues", letter: "q", view: queues },
  { path: "/queues/:group", name: "queues", view: queue },
  { path: "/trace", name: "trace", label: "Find a message", letter: "m", view: trace, section: "Messages" },
  { path: "/delayed", name: "delayed", label: "Delayed", letter: "d", view: delayed },
  { path: "/letters", name: "letters", label: "Dead letters", letter: "l", view: letters },
  { path: "/letters/:topic", name: "letters", view: letters },
  { path: "/transactions", name: "transactions", label: "Transactions", letter: "x", view: transactions, section: "Running" },
  { path: "/pipelines", name: "pipelines", label: "Pipelines", letter: "p", view: pipelines },
  { path: "/node", name: "node", label: "Node", letter: "n", view: node },
  { path: "/nowhere", name: "", view: nowhere },
].map((route) => ({ ...route, title: titleOf(route) }));

function titleOf(route) {
  return (params) => Object.values(params)[0] ?? route.label ?? "Not found";
}

async function nowhere(stage) {
  stage.show(h("div", { class: "head" }, h("h1", {}, "There is nothing here")));
}

function navigation() {
  const parts = [];
  let list = h("ul");
  parts.push(list);
  for (const route of ROUTES.filter((each) => each.label)) {
    if (route.section) {
      list = h("ul");
      parts.push(h("h2", {}, route.section), list);
    }
    const address = route.path === "/" ? "/dashboard" : `/dashboard${route.path}`;
    const mark = h("span", {});
    list.append(h("li", {}, h("a", { href: address, "data-name": route.name }, icon(route.name), route.label, mark)));
  }
  replace(document.getElementById("nav"), parts);
}

function showCurrent(route) {
  for (const anchor of document.querySelectorAll("#nav a")) {
    if (anchor.dataset.name === route.name) {
      anchor.setAttribute("aria-current", "page");
      // On a narrow window the navigation is a line that scrolls.
      anchor.scrollIntoView({ block: "nearest", inline: "center" });
    } else anchor.removeAttribute("aria-current");
  }
}

function showReach(error) {
  const bar = document.querySelector(".offline");
  if (!error) return bar?.remove();
  if (bar) return undefined;
  const next = error.status === 404 ? "What this page shows is as it was before." : "This page goes on by itself when the node is back.";
  const words = `${error.message.replace(/\.?$/, ".")} ${next}`;
  document.querySelector(".top").after(h("div", { class: "offline", role: "alert" }, words));
  return undefined;
}

async function start() {
  navigation();
  const { actions } = await rule();
  document.body.dataset.actions = String(actions);
  const router = startRouter(ROUTES, { onshow: showCurrent, onreach: showReach });
  const finder = makeFinder(router.go);
  const places = new Map(ROUTES.filter((each) => each.letter).map((each) => [each.letter, each]));
  replace(
    document.getElementById("top"),
    finder.element,
    h("span", { class: "push" }),
    button("", () => showKeys(places), { tone: "quiet", symbol: "keyboard", label: "Keyboard shortcuts" }),
    themeButton(),
  );
  startKeys(ROUTES, { go: router.go, find: finder.focus });
  const health = await get("/health/live");
  replace(
    document.getElementById("side-foot"),
    h("div", { class: "row" }, actions ? badge("changes allowed", "accent") : badge("read-only")),
    h("div", {}, `Headrace ${health.version}, node ${health.node_id}`),
    h("div", {}, `Times are ${zone() === "UTC" ? "UTC" : `of this browser, ${zone()}`}`),
    h("div", {}, h("a", { class: "link", href: "/docs" }, "HTTP API")),
  );
}

// What a view asked for when somebody left it is not waited for any more.
window.addEventListener("unhandledrejection", (event) => {
  if (event.reason?.name === "AbortError") event.preventDefault();
});

start();
