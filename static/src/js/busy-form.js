// A form whose answer takes a while: the pressed button shows that it works, its `data-busy` is
// said, and the form is sent once only. Where the answer is this page again, the form begins again.
export default function busyForm(form) {
  form.addEventListener("submit", (event) => {
    if (form.hasAttribute("aria-busy")) {
      event.preventDefault();
      return;
    }
    form.setAttribute("aria-busy", "true");
    event.submitter?.setAttribute("aria-busy", "true");
    const line = form.querySelector("[data-busy-line]");
    if (line) line.textContent = event.submitter?.dataset.busy ?? "";
  });
  // The way back shows the page as it was left.
  addEventListener("pageshow", () => {
    for (const one of [form, ...form.querySelectorAll("[aria-busy]")]) {
      one.removeAttribute("aria-busy");
    }
  });
}
