// Dialogs: a form that does one thing, and a question before what cannot be undone.

import { h, replace } from "./dom.js";
import { button, field } from "./parts.js";

// Opens a form. `submit` does the work; what it throws is shown in the dialog, which
// stays open. The promise has what `submit` gave, or null when it was closed.
export function openForm({ title, body, action, tone = "primary", submit, ready = () => {} }) {
  return new Promise((done) => {
    let outcome = null;
    const problem = h("p", { class: "problem", role: "alert", hidden: true });
    const doing = button(action, () => {}, { tone, type: "submit" });
    const form = h(
      "form",
      { method: "dialog" },
      h("h2", { id: "dialog-title" }, title),
      body,
      problem,
      h("div", { class: "buttons" }, button("Cancel", () => dialog.close()), doing),
    );
    const dialog = h("dialog", { "aria-labelledby": "dialog-title" }, form);
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      doing.disabled = true;
      try {
        outcome = await submit();
        dialog.close();
      } catch (error) {
        replace(problem, error.message);
        problem.hidden = false;
        doing.disabled = false;
      }
    });
    dialog.addEventListener("close", () => {
      dialog.remove();
      done(outcome);
    });
    document.body.append(dialog);
    dialog.showModal();
    ready({ dialog, doing, form });
  });
}

// Asks before something happens, naming it. With `typed`, the name has to be written
// out: what deletes must not be a click away.
export function confirm({ title, words, action, typed = null, tone = "danger primary", submit }) {
  const input = typed && h("input", { autocomplete: "off", spellcheck: "false" });
  return openForm({
    title,
    body: [
      h("div", { class: "prose" }, words),
      typed && field(["Type ", h("b", { class: "mono" }, typed), " to go on"], input),
    ],
    action,
    tone,
    submit,
    ready({ doing }) {
      if (!typed) return;
      doing.disabled = true;
      input.addEventListener("input", () => {
        doing.disabled = input.value !== typed;
      });
      input.focus();
    },
  });
}

// Something to read, with a way to close it.
export function openSheet(title, body) {
  const dialog = h(
    "dialog",
    { "aria-labelledby": "dialog-title" },
    h("div", { class: "dialog" }, h("h2", { id: "dialog-title" }, title), body, h("div", { class: "buttons" }, button("Close", () => dialog.close()))),
  );
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}
