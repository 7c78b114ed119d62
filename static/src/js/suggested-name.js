// A form in which the server suggests another `name` for each choice; what a person typed stays.
export default function suggestedName(form) {
  form.addEventListener("htmx:beforeSwap", (event) => {
    const { name, suggested } = form.elements;
    if (name.value && name.value !== suggested.value) event.preventDefault();
  });
}
