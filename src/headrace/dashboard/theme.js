// The chosen theme, before anything is painted: a page that is light for a moment and
// then dark hurts the eye. It is the one script that is not a module, since modules wait.
{
  let chosen = null;
  try {
    chosen = localStorage.getItem("headrace-theme");
  } catch {
    // Where nothing may be stored, the system's choice stands.
  }
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
}
