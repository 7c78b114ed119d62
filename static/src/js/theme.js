// Runs before the first paint (a classic script in the head), so the page never flashes:
// the saved choice, or what the system prefers.
(() => {
  const root = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)");
  const saved = () => {
    try {
      return localStorage.getItem("theme");
    } catch {
      return null; // Storage may be forbidden; the system's choice then holds.
    }
  };
  const apply = () => {
    const choice = saved() ?? "system";
    root.dataset.themeChoice = choice;
    root.dataset.theme = choice === "system" ? (system.matches ? "dark" : "light") : choice;
  };
  system.addEventListener("change", apply);
  addEventListener("storage", apply);
  addEventListener("rpm:theme", apply);
  apply();
})();
