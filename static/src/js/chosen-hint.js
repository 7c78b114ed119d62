// Shows the hint of what is chosen in the field `data-select` of the same form: a list, or buttons.
export default function chosenHint(place) {
  const { form, name } = { form: place.closest("form"), name: place.dataset.select };
  const show = () => {
    const chosen = form.elements[name].value;
    for (const hint of place.querySelectorAll("[data-choice]")) {
      hint.hidden = hint.dataset.choice !== chosen;
    }
  };
  form.addEventListener("change", (event) => {
    if (event.target.name === name) show();
  });
  show();
}
