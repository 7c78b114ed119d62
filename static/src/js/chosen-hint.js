// Shows the hint of what is chosen in the field `data-select` of the same form.
export default function chosenHint(place) {
  const select = place.closest("form").elements[place.dataset.select];
  const show = () => {
    for (const hint of place.querySelectorAll("[data-choice]")) {
      hint.hidden = hint.dataset.choice !== select.value;
    }
  };
  select.addEventListener("change", show);
  show();
}
