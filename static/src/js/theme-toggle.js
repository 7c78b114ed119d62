// One button: the other of light and dark than the page has now.
export default function themeToggle(button) {
  button.addEventListener("click", () => {
    const next = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
    try {
      localStorage.setItem("theme", next);
    } catch {
      return;
    }
    dispatchEvent(new Event("rpm:theme"));
  });
}
