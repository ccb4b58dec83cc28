// Queues at a glance: a card for each, with what is ready, waiting behind others, in work,
// resting and delayed.

import { get, query } from "../api.js";
import { h, replace } from "../dom.js";
import { count, plural, rate } from "../format.js";
import { bar, barLegend, empty, head, place } from "../parts.js";

const EVERY_MS = 2000;
const MOST = 60;

export async function queues(stage) {
  const cards = h("div", { class: "cards" });
  const more = h("p", { class: "muted" });
  const about = "A queue hands out each message on a lease, and takes it back when the lease ends without an answer.";
  stage.show(head("Queues", { about }), h("div", { class: "stack" }, barLegend(), cards, more));
  const known = new Map();
  await stage.every(EVERY_MS, async () => {
    const answer = await get(`/overview/groups${query({ kind: "queue", sort: "lag", descending: true, limit: MOST })}`, stage.signal);
    if (!answer.total) {
      replace(cards, empty("No queues yet", "A queue is made by the first lease of its group."));
      return;
    }
    for (const row of answer.groups) {
      const made = known.get(row.name) ?? card(row.name);
      known.set(row.name, made);
      made.update(row);
    }
    const wanted = answer.groups.map((row) => known.get(row.name).element);
    if (wanted.some((each, index) => cards.children[index] !== each) || cards.children.length !== wanted.length) {
      cards.replaceChildren(...wanted);
    }
    replace(more, answer.total > MOST ? `The ${MOST} that are furthest behind, of ${count(answer.total)}. The others are under Groups.` : "");
  });
}

function card(name) {
  const [topics, total, drawn, numbers, foot] = [h("span", { class: "muted" }), h("span", { class: "push muted" }), h("div"), h("dl", { class: "numbers" }), h("div", { class: "row muted" })];
  const element = h("a", { class: "card", href: `/dashboard/queues${place(name)}` },
    h("div", {}, h("div", { class: "row" }, h("b", {}, name), total), topics), drawn, numbers, foot);
  return {
    element,
    update(row) {
      replace(topics, row.topics.join(", "));
      replace(total, plural(row.members, "member"));
      replace(drawn, bar(row));
      const pairs = [["Ready", row.ready], ["Waiting", row.waiting], ["In work", row.leased], ["Retrying", row.retrying], ["Delayed", row.delayed]];
      replace(numbers, pairs.map(([words, number]) => h("div", {}, h("dt", {}, words), h("dd", {}, count(number)))));
      replace(foot, `${rate(row.rate_in)} in, ${rate(row.rate_out)} out`, row.dead_lettered ? h("span", { class: "push" }, `${count(row.dead_lettered)} given up`) : null);
    },
  };
}
