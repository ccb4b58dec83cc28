// The form that changes one setting of a topic or of a queue group.

import { patch } from "./api.js";
import { openForm } from "./dialog.js";
import { h } from "./dom.js";
import { tell } from "./notices.js";
import { field } from "./parts.js";

// `where` takes the change; the promise has what is so afterwards, or null.
export function changeSetting({ name, where, settings }) {
  const which = h("select", {}, Object.keys(settings).map((each) => h("option", {}, each)));
  const value = h("input", { autocomplete: "off" });
  const fill = () => {
    value.value = JSON.stringify(settings[which.value]);
  };
  which.addEventListener("change", fill);
  fill();
  return openForm({
    title: `Change a setting of ${name}`,
    body: [field("Setting", which), field("Value, as JSON", value)],
    action: "Change it",
    async submit() {
      let wanted = value.value;
      try {
        wanted = JSON.parse(value.value);
      } catch {
        // A word without quotes is a text.
      }
      const now = await patch(where, { settings: { [which.value]: wanted } });
      tell(`${which.value} of ${name} is ${value.value} now.`);
      return now;
    },
  });
}
