// Copies `data-copy` and says so for two seconds in the button's own label.
export default function copyText(button) {
  const label = button.getAttribute("aria-label") ?? "Copy";
  const use = button.querySelector("use");
  const icon = use?.getAttribute("href");
  let timer = 0;
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(button.dataset.copy ?? "");
    button.setAttribute("aria-label", "Copied");
    use?.setAttribute("href", icon.replace(/#.*/, "#check"));
    clearTimeout(timer);
    timer = setTimeout(() => {
      button.setAttribute("aria-label", label);
      use?.setAttribute("href", icon);
    }, 2000);
  });
}
