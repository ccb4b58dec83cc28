// Which view an address means, and the life of a view.
//
//     /dashboard/topics/orders?tab=settings  ->  views/topic.js, { params: { topic: "orders" } }
//
// A view is a function of its stage. It fills `stage.main`, may ask for work to be
// repeated with `stage.every`, and need not clean up: what belongs to a stage ends with it.

import { replace } from "./dom.js";
import { head } from "./parts.js";

const HOME = "/dashboard";
const GONE = "gone";

export function startRouter(routes, { onshow, onreach }) {
  const main = document.getElementById("main");
  let leave = () => {};

  function show({ focus = true } = {}) {
    leave();
    const [found, params] = find(routes, location.pathname);
    const stage = makeStage(main, params, onreach);
    leave = stage.leave;
    document.title = `${found.title(params)} · Headrace`;
    replace(main);
    onshow(found);
    if (focus) main.focus({ preventScroll: true });
    window.scrollTo(0, 0);
    stage.run(() => found.view(stage));
  }

  function go(where) {
    if (where !== location.pathname + location.search) history.pushState(null, "", where);
    show();
  }

  document.addEventListener("click", (event) => {
    const anchor = event.target.closest?.("a[href]");
    const isPlain = event.button === 0 && !event.metaKey && !event.ctrlKey && !event.shiftKey;
    if (!anchor || !isPlain || event.defaultPrevented || anchor.origin !== location.origin) return;
    const isOurs = anchor.pathname === HOME || anchor.pathname.startsWith(`${HOME}/`);
    if (!isOurs || anchor.hash || anchor.target) return;
    event.preventDefault();
    go(anchor.pathname + anchor.search);
  });
  window.addEventListener("popstate", () => show());
  show({ focus: false });
  return { go, refresh: () => show({ focus: false }) };
}

function find(routes, pathname) {
  const parts = pathname.slice(HOME.length).split("/").filter(Boolean).map(decodeURIComponent);
  for (const route of routes) {
    const wanted = route.path.split("/").filter(Boolean);
    if (wanted.length !== parts.length) continue;
    const params = {};
    const fits = wanted.every((part, index) => {
      if (!part.startsWith(":")) return part === parts[index];
      params[part.slice(1)] = parts[index];
      return true;
    });
    if (fits) return [route, params];
  }
  return [routes.at(-1), {}];
}

function makeStage(main, params, onreach) {
  const control = new AbortController();
  const timers = new Set();
  const stage = {
    main,
    params,
    signal: control.signal,
    query: Object.fromEntries(new URLSearchParams(location.search)),
    show: (...parts) => replace(main, ...parts),
    // Keeps what the view is filtered by in the address, so that it can be shared.
    remember(changes) {
      const next = new URLSearchParams(location.search);
      for (const [name, value] of Object.entries(changes)) {
        if (value === "" || value === null || value === undefined) next.delete(name);
        else next.set(name, value);
      }
      const text = next.toString();
      history.replaceState(null, "", location.pathname + (text ? `?${text}` : ""));
    },
    // Runs `work` now and again and again; rests while nobody looks at the page, and ends
    // when what it asks for is not there any more.
    async every(milliseconds, work) {
      if (control.signal.aborted) return;
      if (!document.hidden && (await attempt(work)) === GONE) return;
      const timer = setTimeout(() => {
        timers.delete(timer);
        stage.every(milliseconds, work);
      }, milliseconds);
      timers.add(timer);
    },
    onleave: (work) => control.signal.addEventListener("abort", work),
    leave() {
      control.abort();
      timers.forEach(clearTimeout);
    },
    async run(work) {
      try {
        await work();
        onreach(null);
      } catch (error) {
        if (control.signal.aborted || error.name === "AbortError") return;
        replace(main, head(error.status === 404 ? "Not found" : "This did not work", { about: error.message }));
        if (error.status === undefined) throw error;
      }
    },
  };

  async function attempt(work) {
    try {
      await work();
      onreach(null);
    } catch (error) {
      if (control.signal.aborted || error.name === "AbortError") return;
      if (error.status === undefined) throw error;
      onreach(error);
      if (error.status === 404) return GONE;
    }
    return null;
  }

  return stage;
}
