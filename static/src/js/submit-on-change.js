// A filter form that needs no button: choosing applies at once, typing after a short rest.
export default function submitOnChange(form) {
  let timer = 0;
  form.addEventListener("change", () => form.requestSubmit());
  form.addEventListener("input", (event) => {
    if (event.target.type !== "search") return;
    clearTimeout(timer);
    timer = setTimeout(() => form.requestSubmit(), 350);
  });
  for (const button of form.querySelectorAll("[data-without-js]")) button.hidden = true;
}
