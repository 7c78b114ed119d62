// A group of buttons with `data-theme-value`: light, dark or system.
export default function themeChoice(group) {
  const buttons = [...group.querySelectorAll("[data-theme-value]")];
  const show = () => {
    for (const button of buttons) {
      const isChosen = button.dataset.themeValue === document.documentElement.dataset.themeChoice;
      button.setAttribute("aria-pressed", String(isChosen));
    }
  };
  group.addEventListener("click", (event) => {
    const button = event.target.closest("[data-theme-value]");
    if (!button) return;
    try {
      localStorage.setItem("theme", button.dataset.themeValue);
    } catch {
      return; // Nothing can be kept: stay with the system's choice.
    }
    dispatchEvent(new Event("rpm:theme"));
    show();
  });
  show();
}
